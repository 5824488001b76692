#include "tokenizer/huggingface/json_node.h"

#include <algorithm>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/printable.h"

namespace heddle::tokenizer {
namespace {

// Each goes over the text once more. Models have up to seven.
constexpr size_t kMaxComponents = 64;

void flatten(const JsonNode& node, const char* key, std::vector<JsonNode>& nodes) {
  if (node.value().is_null()) return;
  if (node.at("type").string() == "Sequence") {
    node.allow_only({"type", key});
    const JsonNode list = node.at(key);
    for (size_t i = 0; i < list.array().size(); ++i) flatten(list.element(i), key, nodes);
    return;
  }
  if (nodes.size() == kMaxComponents) {
    throw_error(ErrorCode::kUnsupported, node.path(), " comes after ", kMaxComponents,
                " others, the most that are supported");
  }
  nodes.push_back(node);
}

}  // namespace

void JsonNode::expect(bool holds, std::string_view expected) const {
  HEDDLE_CHECK(holds, path_, " is ", files::json_kind(*value_), ", expected ", expected);
}

std::optional<JsonNode> JsonNode::find(const char* key) const {
  expect(value_->is_object(), "an object");
  const files::Json* const member = files::find_member(*value_, key);
  if (member == nullptr || member->is_null()) return std::nullopt;
  return JsonNode(*member, path_ + (path_.find(": ") == path_.npos ? ": " : ".") + key);
}

JsonNode JsonNode::at(const char* key) const {
  auto member = find(key);
  HEDDLE_CHECK(member, path_, " has no ", key);
  return *std::move(member);
}

JsonNode JsonNode::element(size_t index) const {
  return JsonNode(value_->get_array()[index], path_ + "[" + std::to_string(index) + "]");
}

std::string_view JsonNode::string() const {
  expect(value_->is_string(), "a string");
  return files::text_of(*value_);
}

bool JsonNode::boolean() const {
  expect(value_->is_bool(), "a bool");
  return value_->get_bool();
}

int64_t JsonNode::integer(int64_t last) const {
  expect(files::is_integer(*value_), "an integer");
  const auto number = files::integer_in(*value_, 0, last);
  HEDDLE_CHECK(number, path_, " is ", files::json_text(*value_), ", expected 0 to ", last);
  return *number;
}

const files::JsonArray& JsonNode::array() const {
  expect(value_->is_array(), "an array");
  return value_->get_array();
}

const files::JsonObject& JsonNode::object() const {
  expect(value_->is_object(), "an object");
  return value_->get_object();
}

bool JsonNode::boolean_or(const char* key, bool absent) const {
  const auto member = find(key);
  return member ? member->boolean() : absent;
}

void JsonNode::allow_only(std::initializer_list<std::string_view> keys) const {
  for (const auto& member : object()) {
    const std::string_view key = member.key();
    if (std::ranges::find(keys, key) != keys.end()) continue;
    throw_error(ErrorCode::kUnsupported, path_, " has the member ", files::quote(key),
                ", which is not supported");
  }
}

void JsonNode::refuse_type() const {
  throw_error(ErrorCode::kUnsupported, path_, " of type ", files::quote(at("type").string()),
              " is not supported");
}

std::vector<JsonNode> flat_sequence(const JsonNode& node, const char* key) {
  std::vector<JsonNode> nodes;
  flatten(node, key, nodes);
  return nodes;
}

}  // namespace heddle::tokenizer
