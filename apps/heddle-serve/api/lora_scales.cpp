#include "api/lora_scales.h"

#include <limits>
#include <set>

#include "heddle/core/error.h"

#include "api/fields.h"
#include "request_json/ordered_json.h"
#include "request_json/row_reader.h"

namespace heddle::serve {

std::vector<LoraScale> read_lora_scales(const std::string& body) {
  constexpr std::string_view kFields[] = {"id", "scale"};
  constexpr int64_t kMostId = std::numeric_limits<int64_t>::max();
  constexpr double kMost = std::numeric_limits<float>::max();
  const files::JsonTree list = app::parse_ordered_json(body, "request");
  HEDDLE_CHECK(list->is_array(), "the body is ", files::json_type(*list),
               ", expected an array of objects");
  std::vector<LoraScale> scales;
  std::set<int64_t> ids;
  for (const json& entry : list->get_array()) {
    HEDDLE_CHECK(entry.is_object(), "the body holds ", files::json_type(entry),
                 ", expected objects");
    const app::RowReader row(entry, "request");
    row.check_given_fields(kFields);
    HEDDLE_CHECK(row.find("id") != nullptr, "id is missing");
    const LoraScale scale{.id = row.integer("id", 0, 0, kMostId),
                          .scale = row.number("scale", 0.0f, -kMost, kMost)};
    HEDDLE_CHECK(ids.insert(scale.id).second, "id ", scale.id, " is given twice");
    scales.push_back(scale);
  }
  return scales;
}

}  // namespace heddle::serve
