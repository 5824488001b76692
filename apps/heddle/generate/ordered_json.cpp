#include "generate/ordered_json.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "shown.h"

namespace heddle::app {
namespace {

using json = nlohmann::ordered_json;

/// Nesting that no honest row reaches; deeper text is refused before it is parsed.
constexpr int kMaxDepth = 64;

int nesting_of(const std::string& text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

/// Builds the value from the parser's events. json::parse looks through all fields of an object
/// for each that it adds.
class Builder {
 public:
  explicit Builder(const std::string& where) : where_(where) {}

  json take() { return std::move(root_); }

  // What nlohmann's parser calls; true: go on.
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  bool number_float(double value, const std::string& /*text*/) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t& /*value*/) { return false; }  // JSON text has none
  bool start_object(size_t /*size*/) { return open(json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t /*size*/) { return open(json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Open& object = open_.back();
    HEDDLE_CHECK(object.fields.insert(name).second, where_, ": field ", quote(name),
                 " is given twice");
    auto& fields = object.value->get_ref<json::object_t&>();
    object.field = &fields.emplace_back(name, nullptr).second;
    return true;
  }

  [[noreturn]] bool parse_error(size_t /*position*/, const std::string& /*token*/,
                                const json::exception& error) const {
    const std::string what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    const size_t number_end = what.find("] ");
    throw_error(ErrorCode::kInvalidArgument, where_, ": malformed JSON: ",
                shown(what.substr(number_end == std::string::npos ? 0 : number_end + 2)));
  }

 private:
  /// An object or array that has not ended. Only the innermost grows, so pointers to the others
  /// and into them stay.
  struct Open {
    json* value;
    json* field = nullptr;         // of an object: where the value of the last name goes
    std::set<std::string> fields;  // of an object
  };

  json& place() {
    if (open_.empty()) return root_;
    if (open_.back().field != nullptr) return *open_.back().field;
    return open_.back().value->get_ref<json::array_t&>().emplace_back();
  }
  template <class Value>
  bool put(Value&& value) {
    place() = json(std::forward<Value>(value));
    return true;
  }
  bool open(json&& empty) {
    json& value = place();
    value = std::move(empty);
    open_.push_back({.value = &value, .field = nullptr, .fields = {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  json root_;
  std::vector<Open> open_;
};

}  // namespace

json parse_ordered_json(const std::string& text, const std::string& where) {
  const int depth = nesting_of(text);
  HEDDLE_CHECK(depth <= kMaxDepth, where, ": JSON nested ", depth, " deep, at most ", kMaxDepth,
               " is supported");
  Builder builder(where);
  json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace heddle::app
