#include "api/each_adapter.h"

#include <string>
#include <utility>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "options.h"
#include "request_json/row_reader.h"

namespace heddle::serve {
namespace {

using app::RowReader;

constexpr const char* kEach = "each_adapter";

/// One adapter as it is goes by its name, which may also be one of the base model, or an adapter
/// that is loaded when it is first named.
ModelChoice choice_of(AdapterList adapters) {
  ModelChoice choice;
  if (adapters.size() == 1 && adapters.front().scale == 1.0f) {
    choice.adapter_id = std::move(adapters.front().name);
  } else {
    choice.adapters = std::move(adapters);
  }
  return choice;
}

EachEntry read_object(json& entry, const std::string& where) {
  EachEntry read{.messages = take(entry, "messages")};
  const bool is_base = files::find_given(entry, "name") == nullptr && !read.messages.is_null();
  if (!is_base) {
    read.adapter.choice = choice_of(read_adapter_list({&entry, 1}, where));
    return read;
  }
  constexpr std::string_view kFields[] = {"name"};
  RowReader(entry, where).check_given_fields(kFields);
  read.adapter.choice.adapter_id = app::kBaseName;
  return read;
}

EachEntry read_entry(json& entry, const std::string& where) {
  if (entry.is_object()) return read_object(entry, where);
  EachEntry read;
  if (entry.is_null()) {
    read.adapter.choice.adapter_id = app::kBaseName;
  } else if (entry.is_string()) {
    read.adapter.choice.adapter_id = files::text_of(entry);
  } else {
    HEDDLE_CHECK(entry.is_array() && files::size_of(entry) > 0, where, " is ",
                 entry.is_array() ? "empty" : files::json_type(entry),
                 ", expected a name, null, an object or an array of objects");
    read.adapter.choice = choice_of(read_adapter_list(entry.get_array(), where));
  }
  return read;
}

}  // namespace

std::vector<EachEntry> read_each_adapter(json each, const json& body) {
  for (const char* other : {"lora", "adapter_id", "adapter_source", "api_token", "n", "echo"}) {
    const json* const given = files::find_given(body, other);
    if (given == nullptr || files::is_number(*given, 1) || files::is_bool(*given, false)) continue;
    throw bad_request(std::string(other) + " is given with each_adapter; leave one of them out",
                      other);
  }
  HEDDLE_CHECK(each.is_array() && files::size_of(each) > 0, kEach, " is ",
               each.is_array() ? "empty" : files::json_type(each),
               ", expected an array of at least one adapter");
  std::vector<EachEntry> entries;
  for (size_t i = 0; i < each.get_array().size(); ++i) {
    entries.push_back(
        read_entry(each.get_array()[i], std::string(kEach) + "[" + std::to_string(i) + "]"));
  }
  return entries;
}

}  // namespace heddle::serve
