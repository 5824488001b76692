#include "model/adapters/kinds/mlx_config.h"

#include <limits>
#include <string>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::model {
namespace {

using files::Json;

[[noreturn]] void wrong(const AdapterConfig& config, const char* field, const Json* value,
                        const char* expected) {
  throw_error(ErrorCode::kInvalidArgument, config.path, ": ", field, " is ",
              value == nullptr ? "missing" : files::printable(files::json_text(*value)),
              ", expected ", expected);
}

}  // namespace

bool is_mlx_config(const Json& root) {
  return files::find_given(root, "peft_type") == nullptr &&
         (files::find_given(root, "fine_tune_type") != nullptr ||
          files::find_given(root, "lora_parameters") != nullptr);
}

void read_mlx_config(const Json& root, AdapterConfig& config) {
  config.method = AdapterMethod::kMlx;
  const Json* const type = files::find_given(root, "fine_tune_type");
  config.use_dora = type != nullptr && files::is_text(*type, "dora");
  if (type != nullptr && !config.use_dora && !files::is_text(*type, "lora")) {
    throw_error(ErrorCode::kUnsupported, config.path, ": fine_tune_type is ",
                files::printable(files::json_text(*type)),
                ", supported: \"lora\" and \"dora\"; merge it with mlx_lm.fuse and run the model "
                "that this writes");
  }
  const Json* const parameters = files::find_given(root, "lora_parameters");
  if (parameters == nullptr || !parameters->is_object()) {
    wrong(config, "lora_parameters", parameters, "an object with rank and scale");
  }
  const Json* const rank = files::find_given(*parameters, "rank");
  const auto r = rank == nullptr ? std::nullopt
                                 : files::integer_in(*rank, 1, std::numeric_limits<int32_t>::max());
  if (!r) wrong(config, "rank of lora_parameters", rank, "an integer of 1 or more");
  const Json* const scale = files::find_given(*parameters, "scale");
  if (scale == nullptr || !scale->is_number()) {
    wrong(config, "scale of lora_parameters", scale, "a number");
  }
  config.r = *r;
  config.lora_alpha = files::number_of(*scale) * static_cast<double>(*r);
  const Json* const model = files::find_given(root, "model");
  if (model != nullptr && model->is_string()) config.base_model = files::text_of(*model);
}

}  // namespace heddle::model
