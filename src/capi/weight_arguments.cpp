#include "capi/weight_arguments.h"

#include <string>

namespace heddle::capi {
namespace {

constexpr uintptr_t kAlignment = 64;

static_assert(int{HEDDLE_F32} == int(WeightType::kF32));
static_assert(int{HEDDLE_F16} == int(WeightType::kF16));
static_assert(int{HEDDLE_BF16} == int(WeightType::kBF16));
static_assert(int{HEDDLE_Q8_0} == int(WeightType::kQ8_0));
static_assert(int{HEDDLE_Q4_0} == int(WeightType::kQ4_0));
static_assert(int{HEDDLE_Q4_1} == int(WeightType::kQ4_1));
static_assert(int{HEDDLE_Q5_0} == int(WeightType::kQ5_0));
static_assert(int{HEDDLE_Q5_1} == int(WeightType::kQ5_1));
static_assert(int{HEDDLE_Q4_K} == int(WeightType::kQ4K));
static_assert(int{HEDDLE_Q5_K} == int(WeightType::kQ5K));
static_assert(int{HEDDLE_Q6_K} == int(WeightType::kQ6K));

}  // namespace

WeightType type_of(heddle_weight_type type) {
  HEDDLE_CHECK(type >= HEDDLE_F32 && type <= HEDDLE_Q6_K, "type is ", type,
               ", which is no heddle_weight_type");
  return static_cast<WeightType>(type);
}

PackedWeight weight_of(const ExecContext& ctx, const char* name,
                       const heddle_packed_weight* weight) {
  const heddle_packed_weight& w = required(name, weight);
  const std::string data_name = std::string(name) + ".data";
  const char* const of_data = data_name.c_str();
  const ConstTensorView data = in(of_data, w.data);
  check_device(ctx, {{of_data, data}});
  const WeightType type = type_of(w.type);
  const size_t bytes = bytes_of(of_data, data).size();
  const size_t expected = packed_bytes(type, w.out_features, w.in_features);
  HEDDLE_CHECK(bytes == expected, of_data, ".size(0) is ", bytes,
               ", expected packed_bytes = ", expected);
  HEDDLE_CHECK(reinterpret_cast<uintptr_t>(data.raw()) % kAlignment == 0, of_data, " is not ",
               kAlignment, "-byte aligned");
  return {.type = type,
          .out_features = w.out_features,
          .in_features = w.in_features,
          .data = data.raw()};
}

}  // namespace heddle::capi
