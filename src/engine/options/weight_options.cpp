#include "engine/options/weight_options.h"

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle {
namespace {

struct NamedType {
  const char* name;
  WeightType type;
};
constexpr NamedType kTypes[] = {{"q8_0", WeightType::kQ8_0}, {"q5_1", WeightType::kQ5_1},
                                {"q5_0", WeightType::kQ5_0}, {"q4_1", WeightType::kQ4_1},
                                {"q4_0", WeightType::kQ4_0}, {"f16", WeightType::kF16},
                                {"bf16", WeightType::kBF16}};

WeightType weight_type_of(const std::string& name) {
  std::string names;
  for (const NamedType& known : kTypes) {
    if (name == known.name) return known.type;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  throw_error(ErrorCode::kInvalidArgument, "weights is ", files::quote(name), ", expected one of ",
              names);
}

}  // namespace

model::LoadOptions load_options_of(const EngineOptions& options) {
  model::LoadOptions load{.on_load = options.on_load};
  if (!options.weights.empty()) load.weights = weight_type_of(options.weights);
  HEDDLE_CHECK(
      options.activations.empty() || options.activations == "f32" || options.activations == "int8",
      "activations is ", files::quote(options.activations), ", expected f32 or int8");
  if (options.activations == "int8") load.product_activations = LinearActivations::kInt8;
  return load;
}

void describe_weights(ModelInfo& info, const EngineOptions& options,
                      const model::Quantization& quantization) {
  if (options.weights.empty()) return;
  info.weights = name(weight_type_of(options.weights));
  for (const WeightType type : quantization.from) {
    info.packed_from += (info.packed_from.empty() ? "" : ", ") + std::string(name(type));
  }
  info.num_kept_matrices = quantization.num_kept;
  info.weight_error = quantization.relative_error();
}

}  // namespace heddle
