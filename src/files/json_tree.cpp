#include "files/json_tree.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/value.hpp>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle::files {
namespace {

using boost::json::error_code;
using Text = boost::json::string_view;

[[noreturn]] void refuse_number(std::string_view text) {
  throw JsonFault(JsonFault::Kind::kMalformed, "number overflow: " + printable(text, 40));
}

/// Builds the value from the parser's events, which may throw.
class Builder {
 public:
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_array_size = max_object_size;
  static constexpr size_t max_key_size = max_object_size;
  static constexpr size_t max_string_size = max_object_size;

  Builder(const JsonLimits& limits, Json& root) : limits_(limits), root_(root) {}

  // What the parser calls; true: go on.
  bool on_document_begin(error_code& /*error*/) { return true; }
  bool on_document_end(error_code& /*error*/) { return true; }
  bool on_null(error_code& /*error*/) { return put(nullptr); }
  bool on_bool(bool value, error_code& /*error*/) { return put(value); }
  bool on_int64(int64_t value, Text /*text*/, error_code& /*error*/) { return put(value); }
  bool on_uint64(uint64_t value, Text /*text*/, error_code& /*error*/) { return put(value); }
  bool on_number_part(Text /*text*/, error_code& /*error*/) { return true; }
  bool on_comment_part(Text /*text*/, error_code& /*error*/) { return true; }
  bool on_comment(Text /*text*/, error_code& /*error*/) { return true; }

  /// The parser's own value may be off by some units of the last place.
  bool on_double(double rough, Text text, error_code& /*error*/) {
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || !std::isfinite(value)) {
      if (!(std::abs(rough) < 1)) refuse_number(text);
      value = std::copysign(0.0, rough);  // closer to 0 than any other
    }
    return put(value);
  }

  bool on_string_part(Text text, size_t /*size*/, error_code& /*error*/) { return add(text); }
  bool on_string(Text text, size_t /*size*/, error_code& /*error*/) {
    add(text);
    place().emplace_string().assign(text_.data(), text_.size());
    text_.clear();
    return true;
  }
  bool on_key_part(Text text, size_t /*size*/, error_code& /*error*/) { return add(text); }
  bool on_key(Text text, size_t /*size*/, error_code& /*error*/) {
    add(text);
    Open& open = open_.back();
    const auto [member, is_new] = open.object->emplace(text_, nullptr);
    if (!is_new) throw JsonFault(JsonFault::Kind::kTwice, text_);
    if (open.object->size() > limits_.members) throw JsonFault(JsonFault::Kind::kMembers, "");
    open.member = &member->value();
    text_.clear();
    return true;
  }

  bool on_object_begin(error_code& /*error*/) {
    check_depth();
    open_.push_back({.object = &place().emplace_object()});
    return true;
  }
  bool on_array_begin(error_code& /*error*/) {
    check_depth();
    open_.push_back({.array = &place().emplace_array()});
    return true;
  }
  bool on_object_end(size_t /*size*/, error_code& /*error*/) { return close(); }
  bool on_array_end(size_t /*size*/, error_code& /*error*/) { return close(); }

 private:
  /// An object or array that has not ended. Only the innermost grows, so pointers to the others
  /// and into them stay.
  struct Open {
    JsonObject* object = nullptr;
    JsonArray* array = nullptr;
    Json* member = nullptr;  // of an object: where the value of the last key goes
  };

  void check_depth() const {
    if (open_.size() >= limits_.depth) throw JsonFault(JsonFault::Kind::kDepth, "");
  }
  bool add(Text text) {
    text_.append(text.data(), text.size());
    return true;
  }
  Json& place() {
    if (open_.empty()) return root_;
    const Open& in = open_.back();
    return in.object != nullptr ? *in.member : in.array->emplace_back(nullptr);
  }
  template <class Value>
  bool put(Value value) {
    place() = value;
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Json& root_;
  std::vector<Open> open_;
  std::string text_;  // of the string or key that the parser is in
};

/// "parse error at line 1, column 5"
std::string place_of(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto line = std::ranges::count(before, '\n') + 1;
  const size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return "parse error at line " + std::to_string(line) + ", column " +
         std::to_string(before.size() - begin + 1);
}

/// Why the parser stopped at this place.
std::string reason_of(const error_code& code, std::string_view text, size_t at) {
  using boost::json::error;
  if (code == error::illegal_leading_surrogate || code == error::illegal_trailing_surrogate ||
      code == error::expected_utf16_escape) {
    return "half a surrogate pair";
  }
  if (code == error::expected_hex_digit) return "expected a hexadecimal digit";
  if (at >= text.size()) return "unexpected end of the text";
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const std::string shown = quote(text.substr(at, size));
  return shown.starts_with("'\\x") && lead >= 0x80 ? "bytes that are not UTF-8"
                                                   : "unexpected " + shown;
}

}  // namespace

struct JsonTree::State {
  boost::json::monotonic_resource memory;
  // Gives nothing back by itself: it ends with its memory.
  Json value = Json(boost::json::storage_ptr(&memory));
};

JsonTree::JsonTree() : state_(std::make_unique<State>()) {}
JsonTree::JsonTree(JsonTree&& other) noexcept = default;
JsonTree& JsonTree::operator=(JsonTree&& other) noexcept = default;
JsonTree::~JsonTree() = default;

Json& JsonTree::operator*() { return state_->value; }
const Json& JsonTree::operator*() const { return state_->value; }
Json* JsonTree::operator->() { return &state_->value; }
const Json* JsonTree::operator->() const { return &state_->value; }

JsonTree parse_json_text(std::string_view text, const JsonLimits& limits) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  JsonTree tree;
  boost::json::parse_options options;
  options.max_depth = limits.depth + 1;  // the builder looks first
  boost::json::basic_parser<Builder> parser(options, limits, *tree);
  const size_t start = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  error_code error;
  const size_t end =
      start + parser.write_some(false, text.data() + start, text.size() - start, error);
  if (error == boost::json::error::exponent_overflow) {
    const size_t begin = text.find_last_of(" \t\r\n,:[", end == 0 ? 0 : end - 1) + 1;
    refuse_number(text.substr(begin, end - begin));
  }
  if (error || end < text.size()) {
    throw JsonFault(JsonFault::Kind::kMalformed,
                    place_of(text, end) + ": " + reason_of(error, text, end));
  }
  return tree;
}

JsonTree parse_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  try {
    return parse_json_text(text, limits);
  } catch (const JsonFault& fault) {
    switch (fault.kind()) {
      case JsonFault::Kind::kMalformed: break;
      case JsonFault::Kind::kTwice:
        throw_error(ErrorCode::kInvalidArgument, name, ": key ", quote(fault.what()),
                    " is given twice");
      case JsonFault::Kind::kDepth:
        throw_error(ErrorCode::kInvalidArgument, name, ": nested deeper than ", limits.depth,
                    " levels");
      case JsonFault::Kind::kMembers:
        throw_error(ErrorCode::kInvalidArgument, name, ": an object has more than ", limits.members,
                    " members");
    }
    throw_error(ErrorCode::kInvalidArgument, name, ": not valid JSON: ", fault.what());
  }
}

}  // namespace heddle::files
