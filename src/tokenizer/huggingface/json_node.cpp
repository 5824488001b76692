#include "tokenizer/huggingface/json_node.h"

#include <algorithm>

#include "heddle/core/error.h"

#include "files/parse_json.h"
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
                " others, which are all that are supported");
  }
  nodes.push_back(node);
}

}  // namespace

void JsonNode::expect(bool holds, std::string_view expected) const {
  HEDDLE_CHECK(holds, path_, " is ", files::json_kind(value_->type()), ", expected ", expected);
}

std::optional<JsonNode> JsonNode::find(const char* key) const {
  expect(value_->is_object(), "an object");
  const auto member = value_->find(key);
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return JsonNode(*member, path_ + (path_.find(": ") == path_.npos ? ": " : ".") + key);
}

JsonNode JsonNode::at(const char* key) const {
  auto member = find(key);
  HEDDLE_CHECK(member, path_, " has no ", key);
  return *std::move(member);
}

JsonNode JsonNode::element(size_t index) const {
  return JsonNode((*value_)[index], path_ + "[" + std::to_string(index) + "]");
}

const std::string& JsonNode::string() const {
  expect(value_->is_string(), "a string");
  return value_->get_ref<const std::string&>();
}

bool JsonNode::boolean() const {
  expect(value_->is_boolean(), "a bool");
  return value_->get<bool>();
}

int64_t JsonNode::integer(int64_t last) const {
  expect(value_->is_number_integer(), "an integer");
  const bool too_large =
      value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const auto number = too_large ? -1 : value_->get<int64_t>();
  HEDDLE_CHECK(number >= 0 && number <= last, path_, " is ", value_->dump(), ", expected 0 to ",
               last);
  return number;
}

const nlohmann::json::array_t& JsonNode::array() const {
  expect(value_->is_array(), "an array");
  return value_->get_ref<const nlohmann::json::array_t&>();
}

const nlohmann::json::object_t& JsonNode::object() const {
  expect(value_->is_object(), "an object");
  return value_->get_ref<const nlohmann::json::object_t&>();
}

bool JsonNode::boolean_or(const char* key, bool absent) const {
  const auto member = find(key);
  return member ? member->boolean() : absent;
}

void JsonNode::allow_only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : object()) {
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
