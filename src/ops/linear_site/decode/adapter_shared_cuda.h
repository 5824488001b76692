#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/linear_site/decode/decode_params_cuda.h"
#include "ops/lora_device/foreign_plan_cuda.h"

namespace heddle::cuda::linear_site {

// What the warps of a block that work for adapters keep in shared memory.

/// A row tile as a slice needs it, in shared memory.
struct RowTileOfSlice {
  const void* b;
  int32_t row_stride, rank;  // of B; rank 0: nothing to do
  int32_t num_rows;
  uint8_t rows[lora::kRowTileRows];
};
static_assert(sizeof(RowTileOfSlice) == 40);

/// Of a row of partial sums, which are 16 ranks of a row: where its h goes.
struct PartialRow {
  uint32_t bits = 0;

  PartialRow() = default;
  __device__ PartialRow(int row, int tile, int rank)
      : bits(static_cast<uint32_t>(row | tile << 8 | rank << 16)) {}
  [[nodiscard]] __device__ int row() const { return static_cast<int>(bits & 0xff); }
  [[nodiscard]] __device__ int first_rank() const {
    return static_cast<int>(bits >> 8 & 0xff) * lora::kTileRanks;
  }
  [[nodiscard]] __device__ int rank() const { return static_cast<int>(bits >> 16); }
};

/// What the warps of a block share.
struct AdapterShared {
  std::byte* ring;  // [warp][stage]
  int num_stages;   // of each warp
  int delta_stride;
  RowTileOfSlice* row_tiles;
  PartialRow* partial_rows;
  uint4* h;            // [row][step of 16 ranks][lane q], four ranks as hi and lo
  RowFactor* factors;  // [row]
  float* delta;        // [row][column of the tile]
};

/// Where they lie in a block's shared memory.
[[nodiscard]] __device__ inline AdapterShared shared_by_adapters(std::byte* shared,
                                                                 const SharedLayout& layout) {
  return {.ring = shared + layout.ring,
          .num_stages = layout.num_adapter_stages,
          .delta_stride = static_cast<int>(layout.delta_stride),
          .row_tiles = reinterpret_cast<RowTileOfSlice*>(shared + layout.row_tiles),
          .partial_rows = reinterpret_cast<PartialRow*>(shared + layout.partial_rows),
          .h = reinterpret_cast<uint4*>(shared + layout.h),
          .factors = reinterpret_cast<RowFactor*>(shared + layout.factors),
          .delta = reinterpret_cast<float*>(shared + layout.delta)};
}

}  // namespace heddle::cuda::linear_site
