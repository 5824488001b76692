#pragma once

#include "cuda/convert_cuda.h"

#include "ops/lora/grouped/site_cuda.h"

namespace heddle::cuda::lora {

inline constexpr int kProductRows = 16;  // rows of h of one product

/// Of lane (g, q) for 16 ranks and a tile of 16 rows: two and two ranks of row g are x and z, of row g + 8 y and w.
using HVector = uint4;
inline constexpr int kHTileVectors = 2 * 32;  // hi of all lanes, then lo

/// In shared memory: the row tile and slice whose h comes behind.
struct ExpandShared {
  const std::byte* b;
  int64_t b_stride;  // bytes
  int32_t rank;      // 0: nothing to do
  int32_t first_row, num_rows;
  std::byte* y[kGroupedTileRows];  // output 0 of each row
  float factor[kGroupedTileRows];
};
inline constexpr int kHeadBytes = (sizeof(ExpandShared) + 127) / 128 * 128;

/// Ranks are multiplied 16 at a time. In an adapter with more, lane q has 8 of each 32, so the products are two and two.
__host__ __device__ constexpr int num_steps(int rank) {
  return rank <= kTileRanks ? 1 : (rank + kHPairRanks - 1) / kHPairRanks * 2;
}

/// Vector `index` of a row of joined h lies at index ^ h_swap(): eight rows that are read together meet in no bank.
__device__ constexpr int h_swap(int row, int row_vectors) {
  return row_vectors == kHStepVectors ? row / 2 % 4 : row % 8;
}

/// Four ranks of h of one row: the sums of its subtrees, or values of a tensor.
__device__ inline float4 load_h(const GroupedParams& p, int slice, int row, int rank, int parts) {
  const float* from = p.partials + int64_t{row} * p.h_width + slice * p.slice_ranks + rank;
  float4 v[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) {
    if (i < parts) v[i] = __ldcg(reinterpret_cast<const float4*>(from + i * p.part_stride));
  }
  const auto join = [&](int num) {
#pragma unroll
    for (int i = 0; i < kChains / 2; ++i) {
      if (i >= num) break;
      const float4 x = v[2 * i], y = v[2 * i + 1];
      v[i] = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
    }
  };
  if (parts == 8) join(4);
  if (parts >= 4) join(2);
  join(1);
  return v[0];
}

__device__ inline float4 load_tensor_h(const SiteParams& site, int64_t row, int rank, int num) {
  float v[4];
  with_type(site.input_dtype, [&](auto type) {
    using U = decltype(type);
    const U* from = static_cast<const U*>(site.input) + row * site.input_stride + rank;
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = i < num ? widen(from[i]) : 0.0f;
  });
  return {v[0], v[1], v[2], v[3]};
}

template <class T>
__device__ uint32_t pack(T low, T high) {
  return static_cast<uint32_t>(reinterpret_cast<const uint16_t&>(low)) |
         static_cast<uint32_t>(reinterpret_cast<const uint16_t&>(high)) << 16;
}

/// Four ranks of h of a row, as products take them: two and two.
struct HWords {
  uint32_t hi[2], lo[2];
};
template <class T>
__device__ HWords split_h(const float4& v) {
  const T hi[4] = {narrow<T>(v.x), narrow<T>(v.y), narrow<T>(v.z), narrow<T>(v.w)};
  const T lo[4] = {narrow<T>(v.x - widen(hi[0])), narrow<T>(v.y - widen(hi[1])),
                   narrow<T>(v.z - widen(hi[2])), narrow<T>(v.w - widen(hi[3]))};
  return {{pack(hi[0], hi[1]), pack(hi[2], hi[3])}, {pack(lo[0], lo[1]), pack(lo[2], lo[3])}};
}

/// Where four ranks from `rank` on go, in an adapter that has `ranks`: step, and lane of four.
struct HPlace {
  int step, q;

  __device__ HPlace(int ranks, int rank)
      : step(ranks <= 16 ? 0 : rank / 32 * 2 + rank % 8 / 4),
        q(ranks <= 16 ? rank / 4 : rank % 32 / 8) {}
};

/// Zeros in the place of ranks that are not there.
__device__ inline float4 keep_ranks(float4 v, int num) {
  if (num < 2) v.y = 0.0f;
  if (num < 3) v.z = 0.0f;
  if (num < 4) v.w = 0.0f;
  return v;
}

/// h of the rows [first, first + 16 * tiles) of the tile, as h[tile][step][hi or lo][lane]. All threads call it.
template <class T, int kWarps, bool kIsTensor>
__device__ void make_h(const GroupedParams& p, const ExpandShared& s, int slice, int first,
                       int tiles, int parts, HVector* h) {
  const int steps = num_steps(s.rank), quads = 4 * steps;  // of ranks
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < tiles * kProductRows * quads; i += kWarps * 32) {
    const int row = i / quads, rank = (i - row * quads) * 4;
    float4 v{0.0f, 0.0f, 0.0f, 0.0f};
    const int num = s.rank - rank;
    if (first + row < s.num_rows && num > 0) {
      const int at = s.first_row + first + row;
      if constexpr (kIsTensor) {
        v = load_tensor_h(p.site, p.plan.rows[at], rank, num);
      } else {
        v = keep_ranks(load_h(p, slice, at, rank, parts), num);
      }
    }
    const HWords words = split_h<T>(v);
    const HPlace place(s.rank, rank);
    const int tile = row / kProductRows, lane = row % 8 * 4 + place.q;
    auto* to = reinterpret_cast<uint32_t*>(h + (tile * steps + place.step) * kHTileVectors + lane) +
               row % kProductRows / 8;
    to[0] = words.hi[0], to[2] = words.hi[1];
    to += 32 * 4;
    to[0] = words.lo[0], to[2] = words.lo[1];
  }
}

}  // namespace heddle::cuda::lora
