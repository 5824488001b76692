#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "heddle/ops/linear_site.h"

#include "ops/linear_site/call/site_call.h"

namespace heddle {

inline constexpr int kMaxSiteSlices = 16;

/// The y of a site's slices as lora_apply takes them, without an allocation.
class LoraSlices {
 public:
  explicit LoraSlices(std::span<const LinearSlice> slices) : num_(slices.size()) {
    for (size_t s = 0; s < num_; ++s) slices_[s].y = slices[s].y;
  }
  /// y of f32 in place of theirs, one matrix [num_tokens, all columns] of `y32`.
  LoraSlices(std::span<const LinearSlice> slices, const TensorView& y32) : num_(slices.size()) {
    int64_t column = 0;
    for (size_t s = 0; s < num_; ++s) {
      const int64_t width = slices[s].y.size(1);
      slices_[s].y = y32.narrow(1, column, width);
      column += width;
    }
  }
  [[nodiscard]] std::span<const LoraSlice> span() const { return {slices_.data(), num_}; }
  [[nodiscard]] const TensorView& y(size_t slice) const { return slices_[slice].y; }

 private:
  std::array<LoraSlice, kMaxSiteSlices> slices_;
  size_t num_;
};

/// Calls f(slices, index of the first of them) for as many slices at a time as a launch takes.
template <class F>
void for_launches(std::span<const LinearSlice> slices, F&& f) {
  constexpr size_t kMax = kMaxLaunchSlices;
  for (size_t first = 0; first < slices.size(); first += kMax) {
    f(slices.subspan(first, std::min(kMax, slices.size() - first)), first);
  }
}

[[nodiscard]] inline bool is_packed(const LinearSlice& slice) {
  return slice.packed.type != WeightType::kF32 || slice.packed.data != nullptr;
}
[[nodiscard]] inline bool has_packed(std::span<const LinearSlice> slices) {
  return std::ranges::any_of(slices, is_packed);
}

[[nodiscard]] inline int64_t sum_out_features(std::span<const LinearSlice> slices) {
  int64_t sum = 0;
  for (const LinearSlice& slice : slices) sum += slice.y.size(1);
  return sum;
}

}  // namespace heddle
