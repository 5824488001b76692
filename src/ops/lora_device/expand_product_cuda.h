#pragma once

#include "cuda/convert_cuda.h"
#include "cuda/mma_cuda.h"

#include "core/math.h"
#include "ops/lora_device/sums.h"

namespace heddle::cuda::lora {

// The product of many rows, y = h B^T, of a warp: h is the 16 x 16 operand (16 rows, 16 ranks), B
// the 16 x 8 operand (16 ranks, 8 outputs).
//
//   a column      one product along the outputs: 8 outputs
//   a group       four columns: 32 outputs of each of 16 rows, 64 bytes of a row of y
//   lane (g, q)   of h: four ranks of the rows g and g + 8, once as hi and once as lo
//                 of B: four ranks of the output that column i has for g, see output_of()
//                 sums: two outputs of each column, of the rows g and g + 8
//
//   outputs of a group   0 1 | 2 3 | 4 5 | 6 7 | 8 9 | ...    column i has the pairs i, i + 4, ...
//   lane q               q = 0 . . . . . . . .   q = 1 ...    8 outputs in a row: 16 bytes of y

inline constexpr int kProductRows = 16;    // rows of h of one product
inline constexpr int kLaneOutputs = 8;     // outputs of a lane in a row and group
inline constexpr int kGroupOutputs = 32;   // outputs of a group
inline constexpr int kProductOutputs = 8;  // outputs of one product

/// Four ranks of two rows of a lane: x and z are those of row g, two each; y and w are those of
/// row g + 8.
using HVector = uint4;

// Vectors of h of 16 rows and 16 ranks: [hi or lo][lane].
inline constexpr int kHTileVectors = 2 * 32;

/// Products of 16 ranks. Of up to 16 ranks lane q has 4 q + [0, 4). Of more it has 8 q + [0, 8) of
/// each 32, which are 16 bytes of B and two products; so there the number is even.
__host__ __device__ constexpr int num_steps(int rank) {
  return rank <= kTileRanks ? 1 : ceil_div(rank, kHPairRanks) * 2;
}

/// The output of a warp whose ranks lane group g loads for column i. Sums of column i then belong
/// to the outputs 8 q + 2 i and 8 q + 2 i + 1 of the group, so that a lane has eight outputs in a
/// row.
__device__ inline int output_of(int i, int g) {
  return i / 4 * kGroupOutputs + g / 2 * kLaneOutputs + i % 4 * 2 + g % 2;
}

/// B of a lane: four ranks of one output for each column and step.
template <int kSteps, int kColumns>
struct Weights {
  uint2 v[kColumns][kSteps];  // [column][step]
};

/// The sums of a lane: for each column two outputs of row g, then the same outputs of row g + 8.
template <int kColumns>
using Sums = float[kColumns][4];

/// h of a lane for one step and 16 rows. `h` points to the lane's vector of hi.
struct HPair {
  HVector v[2];  // hi, lo

  __device__ explicit HPair(const HVector* h) : v{h[0], h[32]} {}
};

/// Adds the products of 16 rows and 16 ranks for all columns: first those of hi, then those of lo.
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

/// Two elements in a word.
template <class T>
__device__ uint32_t pack(T low, T high) {
  return static_cast<uint32_t>(reinterpret_cast<const uint16_t&>(low)) |
         static_cast<uint32_t>(reinterpret_cast<const uint16_t&>(high)) << 16;
}

/// Four ranks of a row of h as hi and lo, two ranks a word.
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

/// Which step and which lane q take the ranks of the quad of `rank`, in an adapter that has
/// `ranks`.
struct HPlace {
  int step, q;

  __device__ HPlace(int ranks, int rank)
      : step(ranks <= 16 ? 0 : rank / 32 * 2 + rank % 8 / 4),
        q(ranks <= 16 ? rank / 4 : rank % 32 / 8) {}
};

/// The first `num` of four ranks and zeros behind them. The first one stays also where `num` is 0
/// or less.
__device__ inline float4 keep_ranks(float4 v, int num) {
  if (num < 2) v.y = 0.0f;
  if (num < 3) v.z = 0.0f;
  if (num < 4) v.w = 0.0f;
  return v;
}

/// Puts the four ranks of row `row` from `rank` on where products take them, in an adapter that has
/// `ranks`, which are `steps` steps. h: [tile of 16 rows][step][hi or lo][lane].
template <class T>
__device__ void store_quad(HVector* h, int steps, int ranks, int row, int rank, const float4& v) {
  const HWords words = split_h<T>(v);
  const HPlace place(ranks, rank);
  const int tile = row / kProductRows, lane = row % 8 * 4 + place.q;
  auto* to = reinterpret_cast<uint32_t*>(h + (tile * steps + place.step) * kHTileVectors + lane) +
             row % kProductRows / 8;
  to[0] = words.hi[0], to[2] = words.hi[1];
  to += 32 * 4;
  to[0] = words.lo[0], to[2] = words.lo[1];
}

}  // namespace heddle::cuda::lora
