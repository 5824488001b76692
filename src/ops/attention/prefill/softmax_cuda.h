#pragma once

// Scores, weights and weighted values of the rows of a warp for one tile of keys.
//
// Lane (g, q) = (lane / 4, lane % 4) holds of each product of 16 rows the rows g and g + 8, of 8
// keys or elements those of 2 q and 2 q + 1; so the weights lie where the second product takes its
// rows, and never leave the registers.

#include <cmath>
#include <cstdint>

#include "cuda/convert_cuda.h"
#include "cuda/exp_cuda.h"
#include "cuda/mma_cuda.h"

#include "ops/attention/prefill/tile_cuda.h"

namespace heddle::cuda::attention::prefill {

/// Within 1e-6: 1 - 2 / (exp(2 x) + 1).
__device__ inline float tanh_fast(float x) {
  return 1.0f - __fdividef(2.0f, exp2_fast(x * 2.88539008f) + 1.0f);
}

/// Where the lanes of a warp find the operands of products in shared memory.
template <class S>
struct LaneAddresses {
  uint32_t queries, keys, values;

  __device__ LaneAddresses(const std::byte* shared, int warp, int lane) {
    const uint32_t base = shared_address(shared);
    queries = base + vector_offset<S::kDim>(warp * S::kWarpRows + lane % 16, lane / 16);
    keys = base + S::kKeysAt + vector_offset<S::kDim>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    values = base + S::kValuesAt + vector_offset<S::kDim>(lane % 16, lane / 16);
  }
};

/// s[m][n]: 16 rows m times 8 keys n.
template <class S>
using Scores = float[S::kProductRows][S::kKeys / 8][4];

template <class S>
__device__ void clear_scores(Scores<S>& s) {
#pragma unroll
  for (int m = 0; m < S::kProductRows; ++m) {
#pragma unroll
    for (int n = 0; n < S::kKeys / 8; ++n) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.0f;
  }
}

/// s += q . k for the queries and keys at these addresses of the lane.
template <class T, class S>
__device__ void add_scores(uint32_t queries_at, uint32_t keys_at, Scores<S>& s) {
#pragma unroll
  for (int k = 0; k < S::kDim / 16; ++k) {
    uint32_t rows[S::kProductRows][4];
#pragma unroll
    for (int m = 0; m < S::kProductRows; ++m) {
      load_matrices(rows[m], (queries_at ^ k * 32) + m * 16 * S::kRowBytes);
    }
#pragma unroll
    for (int n = 0; n < S::kKeys / 16; ++n) {
      uint32_t keys[4];
      load_matrices(keys, (keys_at ^ k * 32) + n * 16 * S::kRowBytes);
#pragma unroll
      for (int m = 0; m < S::kProductRows; ++m) {
        mma_m16n8k16<T>(s[m][2 * n], rows[m], keys[0], keys[1]);
        mma_m16n8k16<T>(s[m][2 * n + 1], rows[m], keys[2], keys[3]);
      }
    }
  }
}

/// Scores that are not q . k times a positive scale.
template <class S>
__device__ void transform_scores(const AttentionCallParams& p, Scores<S>& s) {
  const float in = p.soft_cap > 0.0f ? __fdividef(p.sm_scale, p.soft_cap) : p.sm_scale;
#pragma unroll
  for (float(&products)[S::kKeys / 8][4] : s) {
#pragma unroll
    for (float(&product)[4] : products) {
#pragma unroll
      for (float& x : product) {
        x *= in;
        if (p.soft_cap > 0.0f) x = p.soft_cap * tanh_fast(x);
      }
    }
  }
}

/// Scores of keys that a row does not see become -inf.
template <class S>
__device__ void mask_scores(const PrefillParams& p, const PrefillItem item, int first_key,
                            Scores<S>& s) {
  // Read here: else what follows from it would be in registers from before the loop over tiles.
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  const int warp = thread / 32, lane = thread % 32;
  const int first_new = item.kv_len - item.q_len;
#pragma unroll
  for (int m = 0; m < S::kProductRows; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = warp * S::kWarpRows + m * 16 + h * 8 + lane / 4;
      const KeyRange keys = keys_of_row(p, item, row);
      const int mine = first_key + lane % 4 * 2, begin = keys.begin - mine, end = keys.end - mine;
      uint32_t bits[S::kKeys / 32];
      if (S::kGeneral && item.has_tree()) {
        const int token = row_of(p, item, min(row, item.num_rows - 1)).token;
#pragma unroll
        for (int w = 0; w < S::kKeys / 32; ++w)
          bits[w] = item.tree.bits(token, mine + 32 * w - first_new);
      }
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = n * 8 + e;
          bool is_seen = key >= begin && key < end;
          if (S::kGeneral && item.has_tree()) {
            is_seen &= mine + key < first_new || (bits[n / 4] >> (n % 4 * 8 + e) & 1) != 0;
          }
          if (!is_seen) s[m][n][2 * h + e] = -INFINITY;
        }
      }
    }
  }
}

/// The online softmax of a warp's rows. A tile of which a row sees nothing leaves its state as it
/// is, bit for bit.
template <class S>
struct PrefillSoftmax {
  float max[S::kProductRows][2];  // of the scores so far
  float sum[S::kProductRows][2];  // of this lane's weights, in f32, before they are rounded
  float o[S::kProductRows][S::kDim / 8][4];
  float shift[S::kProductRows][2];  // of the exponents of the tile's weights

  __device__ PrefillSoftmax() {
#pragma unroll
    for (int m = 0; m < S::kProductRows; ++m) {
      max[m][0] = max[m][1] = -INFINITY;
      sum[m][0] = sum[m][1] = 0.0f;
#pragma unroll
      for (int d = 0; d < S::kDim / 8; ++d)
        o[m][d][0] = o[m][d][1] = o[m][d][2] = o[m][d][3] = 0.0f;
    }
  }

  /// Takes the maximum of a tile in: earlier sums shrink where it is a new one. Where no row of the
  /// warp has a new one, the factors are all 1.
  __device__ void raise_max(const Scores<S>& s, float scale_log2) {
    float shrink[S::kProductRows][2];
    bool has_new = false;
#pragma unroll
    for (int m = 0; m < S::kProductRows; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < S::kKeys / 8; ++n) {
          top = fmaxf(top, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(fmaxf(top, __shfl_xor_sync(~0u, top, 2)), max[m][h]);
        const bool is_new = top != max[m][h];
        shrink[m][h] = is_new ? exp2_fast((max[m][h] - top) * scale_log2) : 1.0f;
        sum[m][h] *= shrink[m][h];
        max[m][h] = top;
        shift[m][h] = top == -INFINITY ? 0.0f : top * scale_log2;
        has_new |= is_new;
      }
    }
    if (!__any_sync(~0u, has_new)) return;
#pragma unroll
    for (int m = 0; m < S::kProductRows; ++m) {
#pragma unroll
      for (int d = 0; d < S::kDim / 8; ++d) {
        o[m][d][0] *= shrink[m][0], o[m][d][1] *= shrink[m][0];
        o[m][d][2] *= shrink[m][1], o[m][d][3] *= shrink[m][1];
      }
    }
  }

  /// Weights of 16 keys, in place of their scores and rounded to T as rows of a product.
  template <class T>
  __device__ void weigh(Scores<S>& s, int keys, float scale_log2,
                        uint32_t (&rows)[S::kProductRows][4]) {
#pragma unroll
    for (int m = 0; m < S::kProductRows; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float(&x)[4] = s[m][2 * keys + i / 2];
        const int h = i % 2;
        const float2 w{exp2_fast(__fmaf_rn(x[2 * h], scale_log2, -shift[m][h])),
                       exp2_fast(__fmaf_rn(x[2 * h + 1], scale_log2, -shift[m][h]))};
        sum[m][h] += w.x + w.y;
        rows[m][i] = narrow_two<T>(w);
      }
    }
  }

  /// Takes a tile in whose maximum is in.
  template <class T>
  __device__ void add_values(const LaneAddresses<S>& at, Scores<S>& s, float scale_log2) {
#pragma unroll
    for (int k = 0; k < S::kKeys / 16; ++k) {
      uint32_t rows[S::kProductRows][4];
      weigh<T>(s, k, scale_log2, rows);
#pragma unroll
      for (int d = 0; d < S::kDim / 16; ++d) {
        uint32_t values[4];
        load_matrices_transposed(values, (at.values ^ d * 32) + k * 16 * S::kRowBytes);
#pragma unroll
        for (int m = 0; m < S::kProductRows; ++m) {
          mma_m16n8k16<T>(o[m][2 * d], rows[m], values[0], values[1]);
          mma_m16n8k16<T>(o[m][2 * d + 1], rows[m], values[2], values[3]);
        }
      }
    }
  }
};

}  // namespace heddle::cuda::attention::prefill
