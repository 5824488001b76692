#include "files/parse_json.h"

#include <unordered_set>
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

}  // namespace

template <class Json>
Json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, typename Json::parse_event_t event, Json& parsed) {
    using Event = typename Json::parse_event_t;
    switch (event) {
      case Event::object_start: keys.emplace_back(); [[fallthrough]];
      case Event::array_start:
        HEDDLE_CHECK(depth < limits.depth, name, ": nested deeper than ", limits.depth, " levels");
        break;
      case Event::key: {
        const std::string& key = parsed.template get_ref<const std::string&>();
        HEDDLE_CHECK(keys.back().insert(key).second, name, ": key ", quote(key), " is given twice");
        HEDDLE_CHECK(keys.back().size() <= limits.members, name, ": an object has more than ",
                     limits.members, " members");
        break;
      }
      case Event::object_end: keys.pop_back(); break;
      case Event::array_end:
      case Event::value: break;
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const nlohmann::json::exception& e) {
    throw_error(ErrorCode::kInvalidArgument, name, ": not valid JSON: ", reason(e));
  }
}

template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

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
