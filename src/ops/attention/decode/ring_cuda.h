#pragma once

#include "ops/attention/decode/merge_cuda.h"

namespace heddle::cuda::attention::decode {

/// The ring of a warp: keys and values of one tile after the other, in the order in which they are asked for.
template <class Shape>
class PartRing {
 public:
  __device__ PartRing(const DecodeParams& p, DecodeShared<Shape>& s)
      : ahead_(p, s.work), parts_(s.ring[threadIdx.x / 32]) {}

  /// Finds the first parts, by a table that the kernel in front may still write.
  __device__ FirstPages start() {
    filled_ = used_ = 0;
    return ahead_.start();
  }
  /// Asks for all parts but one: of no more than two batches.
  __device__ void begin() {
    static_assert(Shape::kParts - 1 <= 2 * 2);
#pragma unroll 1
    for (int part = 0; part < Shape::kParts - 1; part += 2) {
      ahead_.fetch_keys(next(filled_));
      if (part + 1 < Shape::kParts - 1) ahead_.fetch_values(next(filled_));
    }
  }
  /// The keys of the next tile, or the values behind them: asks for the part that is kParts - 1 behind it. All lanes have read the part
  /// before.
  template <bool kIsValues>
  [[nodiscard]] __device__ std::byte* take() {
    __syncwarp();
    constexpr bool kFetchesValues = kIsValues == (Shape::kParts % 2 == 1);
    kFetchesValues ? ahead_.fetch_values(next(filled_)) : ahead_.fetch_keys(next(filled_));
    wait_for_copies<Shape::kParts - 1>();
    __syncwarp();
    return next(used_);
  }
  /// What is filled next; it is not in use.
  [[nodiscard]] __device__ std::byte* free_part() const { return parts_[filled_]; }
  /// That, or the whole ring where it is empty.
  [[nodiscard]] __device__ MergePlace free_place(bool is_empty) const {
    return {reinterpret_cast<float4*>(is_empty ? parts_[0] : free_part()),
            (is_empty ? Shape::kParts : 1) * Shape::kPartBytes / static_cast<int>(sizeof(float4))};
  }

 private:
  __device__ std::byte* next(int& part) {
    std::byte* at = parts_[part];
    part = part == Shape::kParts - 1 ? 0 : part + 1;
    return at;
  }

  TileCursor<Shape::kDim, Shape::kWarps> ahead_;
  std::byte (*parts_)[Shape::kPartBytes];
  int filled_ = 0, used_ = 0;
};

}  // namespace heddle::cuda::attention::decode
