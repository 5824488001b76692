#include "model/decoder/scratch.h"

#include <algorithm>

#include "heddle/ops/lora.h"

#include "core/math.h"

namespace heddle::model {

DecoderScratch::DecoderScratch(Device device, const DecoderConfig& config, const StepLimits& limits,
                               DType activations)
    : limits_(limits), inputs_(device, StepInputs::bytes_for(limits)) {
  const auto make = [&](int64_t rows, int64_t width) {
    return DeviceTensor(device, activations, {rows, width});
  };
  const auto make_f32 = [&](int64_t rows, int64_t width) {
    return DeviceTensor(device, DType::kFloat32, {rows, width});
  };
  for (DeviceTensor* tensor : {&residual_, &delta_}) {
    *tensor = make_f32(limits.num_tokens, config.hidden_size);
  }
  normed_ = make(limits.num_tokens, config.hidden_size);
  for (DeviceTensor* tensor : {&q_, &attended_}) {
    *tensor = make(limits.num_tokens, config.num_q_heads * config.head_dim);
  }
  for (DeviceTensor* tensor : {&k_, &v_}) {
    *tensor = make(limits.num_tokens, config.num_kv_heads * config.head_dim);
  }
  gate_ = make(limits.num_tokens, config.intermediate_size);
  up_ = make(limits.num_tokens, config.intermediate_size);
  const auto num_rotations = static_cast<int64_t>(config.rotations.size());
  cos_ = make_f32(num_rotations * limits.num_tokens, config.rotary_dim() / 2);
  sin_ = make_f32(num_rotations * limits.num_tokens, config.rotary_dim() / 2);
  last_ = make(limits.num_logit_rows, config.hidden_size);
}

void DecoderScratch::reserve_pairs(Device device, int64_t max_pairs) {
  StepLimits limits = limits_;
  limits.max_pairs = max_pairs;
  inputs_ = StagedArrays(device, StepInputs::bytes_for(limits));
  limits_ = limits;
}

bool DecoderScratch::reserve_plans(Device device, int max_rank) {
  constexpr int64_t kPlanAlignment = 256;
  if (device.type == DeviceType::kCpu) return false;
  const auto num_bytes = static_cast<int64_t>(lora_plan_bytes(limits_.num_tokens, max_rank));
  if (plans_.view() && num_bytes <= plans_.view().size(1)) return false;
  plans_ = DeviceTensor(device, DType::kUInt8, {2, round_up(num_bytes, kPlanAlignment)});
  return true;
}

void DecoderScratch::tap(Device device, std::span<const int64_t> layers) {
  const TensorView normed = normed_.view();
  taps_ = DeviceTensor(device, normed.dtype(),
                       {limits_.num_tokens, std::ssize(layers) * normed.size(1)});
  tapped_layers_.assign(layers.begin(), layers.end());
}

void DecoderScratch::reserve_affines(Device device, const BlockShape& block) {
  if (device.type == DeviceType::kCpu || site_sums_.view()) return;
  int64_t widest = 0;
  for (const BlockSite& site : block.sites) {
    if (site.kind == SiteKind::kInner) widest = std::max(widest, block.dims_of(site).out);
  }
  site_sums_ = DeviceTensor(device, DType::kFloat32, {limits_.num_tokens * widest});
}

}  // namespace heddle::model
