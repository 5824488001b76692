#include "generate/adapter_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "request_json/merge_fields.h"
#include "request_json/shown.h"

namespace heddle::app {
namespace {

using files::JsonArray;
using files::JsonObject;
using json = files::Json;

constexpr std::array<std::string_view, 2> kEntryFields = {"name", "scale"};
constexpr double kMaxScale = std::numeric_limits<float>::max();

/// The number of the fewest digits that is this f32: 0.1, not 0.10000000149011612.
double short_form(float value) {
  std::array<char, 32> digits;
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  double number = 0;
  std::from_chars(digits.data(), end, number);
  return number;
}

/// With --adapters any name may be one: the engine looks.
bool is_adapter(const std::string& name, const RowDefaults& defaults) {
  return (defaults.finds_adapters && name != kBaseName) ||
         std::ranges::find(defaults.adapters, name) != defaults.adapters.end();
}

/// [{"name": "sql", "scale": 0.5}, ...]
AdapterList read_list(const std::string& of, std::span<const json> value,
                      const RowDefaults& defaults) {
  HEDDLE_CHECK(!value.empty(), of, " is empty, expected an array of at least one object");
  AdapterList list;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = of + "[" + std::to_string(i) + "]";
    HEDDLE_CHECK(value[i].is_object(), where, " is ", files::json_type(value[i]),
                 ", expected an object with name and scale");
    const RowReader entry(value[i], where);
    entry.check_fields(kEntryFields);
    const std::string name = entry.required_text("name");
    HEDDLE_CHECK(is_adapter(name, defaults), where, ": unknown adapter ", quote(name),
                 "; there are ", names_of(defaults.adapters));
    list.push_back({name, entry.number("scale", 1.0f, -kMaxScale, kMaxScale)});
  }
  return list;
}

/// The adapter that `model` names, empty for the base model.
std::string named_by_model(const RowReader& row, const json& model, const RowDefaults& defaults) {
  const std::string name = row.text("model", model);
  const bool is_base = name == kBaseName ||
                       std::ranges::find(defaults.base_names, name) != defaults.base_names.end();
  if (is_base && defaults.finds_adapters) return "";
  HEDDLE_CHECK(is_adapter(name, defaults) || is_base || defaults.base_names.empty(), row.where(),
               ": unknown model ", quote(name), "; there are ", names_of(defaults.adapters),
               " and ", defaults.base_names.empty() ? "" : shown(defaults.base_names.front()));
  return is_adapter(name, defaults) ? name : "";
}

/// How the lists of the row act, of which it has one of two adapters or more.
void read_merge(const RowReader& reader, Row& row) {
  const json* merge = reader.find("merge");
  if (merge == nullptr) return;
  row.request.merge = app::read_merge(*merge, reader.where() + ": merge");
  const auto is_merged = [](const AdapterList& list) { return list.size() > 1; };
  HEDDLE_CHECK(is_merged(row.request.adapters) || std::ranges::any_of(row.each, is_merged),
               reader.where(), ": the row has merge, but no list of two adapters or more");
}

void read_one(const RowReader& row, const RowDefaults& defaults, Request& request) {
  const json* adapter = row.find("adapter");
  const json* adapters = row.find("adapters");
  const json* model = row.find("model");
  std::optional<std::string> named;
  if (adapter != nullptr) {
    const std::string name = row.text("adapter", *adapter);
    const bool is_known = is_adapter(name, defaults);
    HEDDLE_CHECK(is_known || name == kBaseName, row.where(), ": unknown adapter ", quote(name),
                 "; there are ", names_of(defaults.adapters));
    HEDDLE_CHECK(adapters == nullptr, row.where(),
                 ": the row has both adapter and adapters, expected only one of them");
    named = is_known ? name : "";
  }
  request.adapter = named.value_or(adapters == nullptr ? defaults.adapter : "");
  if (adapters != nullptr) {
    const std::string where = row.where() + ": adapters";
    HEDDLE_CHECK(adapters->is_array(), where, " is ", files::json_type(*adapters),
                 ", expected an array of at least one object");
    request.adapters = read_list(where, adapters->get_array(), defaults);
  }
  // Before the model is loaded it is unknown whether a name is its own or one of --adapters.
  const bool is_open = defaults.finds_adapters && defaults.base_names.empty();
  if (model == nullptr || is_open) return;
  const std::string chosen = named_by_model(row, *model, defaults);
  if (adapters != nullptr) {
    HEDDLE_CHECK(chosen.empty(), row.where(), ": adapters is given and model is ",
                 quote(row.text("model", *model)), ", expected only one of them");
    return;
  }
  HEDDLE_CHECK(!named || *named == chosen, row.where(), ": adapter is ", quote(named.value_or("")),
               " and model is ", quote(row.text("model", *model)), ", expected only one of them");
  request.adapter = chosen;
}

/// An entry of each_adapter: a name, null for the base model, an object or an array of objects.
AdapterList read_entry(const RowReader& row, const json& entry, const std::string& where,
                       const RowDefaults& defaults) {
  if (entry.is_null()) return {};
  if (entry.is_array()) return read_list(where, entry.get_array(), defaults);
  if (entry.is_object()) return read_list(where, {&entry, 1}, defaults);
  HEDDLE_CHECK(entry.is_string(), where, " is ", files::json_type(entry),
               ", expected a name, null, an object or an array of objects");
  const std::string name = row.text("each_adapter", entry);
  HEDDLE_CHECK(is_adapter(name, defaults) || name == kBaseName, where, ": unknown adapter ",
               quote(name), "; there are ", names_of(defaults.adapters));
  return is_adapter(name, defaults) ? AdapterList{{name}} : AdapterList{};
}

}  // namespace

void read_adapters(const RowReader& reader, const RowDefaults& defaults, Row& row) {
  const json* each = reader.find("each_adapter");
  if (each == nullptr) {
    read_one(reader, defaults, row.request);
    return read_merge(reader, row);
  }
  for (const char* other : {"adapter", "adapters", "model"}) {
    HEDDLE_CHECK(reader.find(other) == nullptr, reader.where(),
                 ": the row has both each_adapter and ", other, ", expected only one of them");
  }
  HEDDLE_CHECK(each->is_array() && files::size_of(*each) > 0, reader.where(), ": each_adapter is ",
               each->is_array() ? "empty" : files::json_type(*each),
               ", expected an array of at least one adapter");
  row.request.adapter.clear();
  for (size_t i = 0; i < each->get_array().size(); ++i) {
    const std::string where = reader.where() + ": each_adapter[" + std::to_string(i) + "]";
    row.each.push_back(read_entry(reader, each->get_array()[i], where, defaults));
  }
  read_merge(reader, row);
}

std::string shown_adapters(const std::vector<AdapterWeight>& list, const AdapterMerge& merge) {
  std::string all = list.empty() ? kBaseName : "";
  for (const auto& [name, scale] : list) {
    if (!all.empty()) all += "+";
    if (scale != 1.0f) all += files::json_text(short_form(scale)) + "*";
    all += name;
  }
  if (list.size() > 1 && merge != AdapterMerge()) {
    return std::string(heddle::name(merge.method)) + "(" + all + ")";
  }
  return all;
}

void add_adapters(const std::vector<AdapterWeight>& list, const AdapterMerge& merge,
                  JsonObject& answer) {
  const bool is_one = list.size() == 1 && list[0].scale == 1.0f;
  answer["adapter"] = is_one ? json(list[0].name) : json();
  if (list.empty() || is_one) return;
  JsonArray entries;
  for (const auto& [name, scale] : list) {
    entries.push_back(JsonObject{{"name", name}, {"scale", short_form(scale)}});
  }
  answer["adapters"] = std::move(entries);
  if (list.size() > 1 && merge != AdapterMerge()) answer["merge"] = merge_object(merge);
}

}  // namespace heddle::app
