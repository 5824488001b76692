#include "request_json/merge_fields.h"

#include <limits>
#include <string_view>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"

namespace heddle::app {
namespace {

using Method = AdapterMerge::Method;

constexpr std::string_view kFields[] = {"method", "density", "majority_sign_method", "seed"};

}  // namespace

AdapterMerge read_merge(const files::Json& value, const std::string& where) {
  HEDDLE_CHECK(value.is_object(), where, " is ", files::json_type(value),
               ", expected an object with method and density");
  const RowReader row(value, where);
  row.check_fields(kFields);
  return {.method = merge_method(row.required_text("method")),
          .density = merge_density(row),
          .majority_sign = merge_sign(row),
          .seed = merge_seed(row)};
}

double merge_density(const RowReader& row) {
  static_cast<void>(row.number("density", 0.0f, 0.0, 1.0));  // which is an f32
  const files::Json* const value = row.find("density");
  return value == nullptr ? 0.0 : files::number_of(*value);
}

AdapterMerge::MajoritySign merge_sign(const RowReader& row) {
  const files::Json* const value = row.find("majority_sign_method");
  if (value == nullptr) return AdapterMerge::MajoritySign::kTotal;
  return majority_sign_method(row.text("majority_sign_method", *value));
}

int64_t merge_seed(const RowReader& row) {
  using Limits = std::numeric_limits<int64_t>;
  return row.integer("seed", 0, Limits::min(), Limits::max());
}

files::JsonObject merge_object(const AdapterMerge& merge) {
  files::JsonObject object{{"method", name(merge.method)}, {"density", merge.density}};
  const bool draws = merge.method == Method::kDareLinear || merge.method == Method::kDareTies;
  const bool elects = merge.method == Method::kTies || merge.method == Method::kDareTies;
  if (elects) object["majority_sign_method"] = name(merge.majority_sign);
  if (draws) object["seed"] = merge.seed;
  return object;
}

}  // namespace heddle::app
