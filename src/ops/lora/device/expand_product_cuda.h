#pragma once

#include "cuda/convert_cuda.h"
#include "cuda/mma_cuda.h"

#include "ops/lora/device/params.h"

namespace heddle::cuda::lora {

inline constexpr int kProductRows = 16;  // rows of h of one product
inline constexpr int kLaneOutputs = 8;   // of a row and a group of outputs: 16 bytes of y
inline constexpr int kGroupOutputs = 32;
inline constexpr int kProductOutputs = 8;  // of one product

/// Of lane (g, q) for 16 ranks and a tile of 16 rows: two and two ranks of row g are x and z, of row g + 8 y and w.
using HVector = uint4;

inline constexpr int kHTileVectors = 2 * 32;  // hi of all lanes, then lo

/// Ranks are multiplied 16 at a time. In an adapter with more, lane q has 8 of each 32, so the products are two and two.
__host__ __device__ constexpr int num_steps(int rank) {
  return rank <= kTileRanks ? 1 : (rank + kHPairRanks - 1) / kHPairRanks * 2;
}

/// Output of a warp that lane group g has in column i: so each lane has sums of outputs that lie one behind the other.
__device__ inline int output_of(int i, int g) {
  return i / 4 * kGroupOutputs + g / 2 * kLaneOutputs + i % 4 * 2 + g % 2;
}

/// Weights of a lane for kSteps steps of 16 ranks; products along the outputs of a warp.
template <int kSteps, int kColumns>
struct Weights {
  uint2 v[kColumns][kSteps];
};

/// Of lane (g, q): row g of a tile and outputs 2 q + [0, 2) of a column, then row g + 8.
template <int kColumns>
using Sums = float[kColumns][4];

/// What a lane has of h for one step and 16 rows.
struct HPair {
  HVector v[2];  // hi, lo

  __device__ explicit HPair(const HVector* h) : v{h[0], h[32]} {}
};

template <class T, int kSteps, int kColumns>
__device__ void multiply(const HPair& h, const Weights<kSteps, kColumns>& b, int step,
                         Sums<kColumns>& sum) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const HVector& x = h.v[half];
    const uint32_t a[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      mma_m16n8k16<T>(sum[i], a, b.v[i][step].x, b.v[i][step].y);
    }
  }
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

}  // namespace heddle::cuda::lora
