#include "files/parse_json.h"

#include <set>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle::files {
namespace {

/// What nlohmann says, without its exception's number: "parse error at line 1, column 5: ...".
std::string reason(const nlohmann::json::exception& e) {
  std::string_view what = e.what();
  if (const size_t end = what.find("] "); what.starts_with('[') && end != what.npos) {
    what.remove_prefix(end + 2);
  }
  return printable(what);
}

/// Builds the value from the parser's events. The parser that calls back, Json::parse(text, call),
/// looks through an object's members whenever one of them ends, and an ordered_json looks through
/// its members for each that it takes: both take the square of the members. No array or object is
/// destroyed while it holds something.
template <class Json>
class Builder {
 public:
  Builder(const std::string& name, const JsonLimits& limits) : name_(name), limits_(limits) {}

  JsonDocument<Json> take() { return std::move(root_); }

  // What nlohmann's parser calls; true: go on.
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(typename Json::number_integer_t value) { return put(value); }
  bool number_unsigned(typename Json::number_unsigned_t value) { return put(value); }
  bool number_float(typename Json::number_float_t value, const std::string& /*text*/) {
    return put(value);
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(typename Json::binary_t& /*value*/) { return false; }  // JSON text has none
  bool start_object(size_t /*size*/) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t /*size*/) { return open(Json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& text) {
    Open& object = open_.back();
    HEDDLE_CHECK(object.keys.insert(text).second, name_, ": key ", quote(text), " is given twice");
    HEDDLE_CHECK(object.keys.size() <= limits_.members, name_, ": an object has more than ",
                 limits_.members, " members");
    object.member = &add_member(*object.value, text);
    return true;
  }

  [[noreturn]] bool parse_error(size_t /*position*/, const std::string& /*token*/,
                                const nlohmann::json::exception& e) const {
    throw_error(ErrorCode::kInvalidArgument, name_, ": not valid JSON: ", reason(e));
  }

 private:
  /// An object or array that has not ended. Only the innermost grows, so pointers to the others
  /// and into them stay.
  struct Open {
    Json* value;
    Json* member = nullptr;      // of an object: where the value of the last key goes
    std::set<std::string> keys;  // of an object
  };

  Json& place() {
    if (open_.empty()) return *root_;
    const Open& in = open_.back();
    if (in.member != nullptr) return *in.member;
    return in.value->template get_ref<typename Json::array_t&>().emplace_back();
  }
  template <class Value>
  bool put(Value&& value) {
    place() = Json(std::forward<Value>(value));
    return true;
  }
  bool open(Json&& empty) {
    HEDDLE_CHECK(open_.size() < limits_.depth, name_, ": nested deeper than ", limits_.depth,
                 " levels");
    Json& value = place();
    value = std::move(empty);
    open_.push_back({.value = &value, .member = nullptr, .keys = {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& name_;
  const JsonLimits& limits_;
  JsonDocument<Json> root_;
  std::vector<Open> open_;
};

}  // namespace

template <class Json>
JsonDocument<Json> parse_json(std::string_view text, const std::string& name,
                              const JsonLimits& limits) {
  Builder<Json> builder(name, limits);
  Json::sax_parse(text, &builder);
  return builder.take();
}

template JsonDocument<nlohmann::json> parse_json(std::string_view, const std::string&,
                                                 const JsonLimits&);
template JsonDocument<nlohmann::ordered_json> parse_json(std::string_view, const std::string&,
                                                         const JsonLimits&);

const char* json_kind(nlohmann::json::value_t type) {
  using Type = nlohmann::json::value_t;
  switch (type) {
    case Type::null: return "null";
    case Type::object: return "an object";
    case Type::array: return "an array";
    case Type::string: return "a string";
    case Type::boolean: return "a bool";
    case Type::number_integer:
    case Type::number_unsigned: return "an integer";
    case Type::number_float: return "a fraction";
    case Type::binary:
    case Type::discarded: break;
  }
  return "no JSON";
}

}  // namespace heddle::files
