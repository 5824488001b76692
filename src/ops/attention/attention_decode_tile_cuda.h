#pragma once

// One warp and a tile of 16 keys: copies, rotation, scores, weights, weighted values. A row of a tile is kDim elements in shared memory,
// its vectors of 16 bytes exchanged by the row's number, so that neither copies nor ldmatrix meet in a bank.
//
// Products are keys x rows: S^T = K Q^T and O^T = V^T P^T, so that a product has 16 keys, or elements, and 8 rows of q. Lane (g, q) =
// (lane / 4, lane % 4) holds the scores of keys g, g + 8 and of rows 2q, 2q + 1, and of the sums elements g, g + 8 of every 16.

#include <cstdint>

#include "cuda/convert_cuda.h"
#include "cuda/exp_cuda.h"
#include "cuda/memory_cuda.h"
#include "cuda/mma_cuda.h"
#include "cuda/rotary_cuda.h"

#include "ops/attention/attention_decode_work_cuda.h"

namespace heddle::cuda {

/// The compiler knows nothing about v from here on. So what follows from it is computed where it is used, not before a loop, where it
/// would hold registers.
__device__ inline void forget(int& v) { asm volatile("" : "+r"(v)); }
__device__ inline void forget(uint32_t& v) { asm volatile("" : "+r"(v)); }
__device__ inline void forget(int64_t& v) { asm volatile("" : "+l"(v)); }

__device__ inline uint32_t transpose_matrix(uint32_t m) {
  uint32_t t;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(m));
  return t;
}

/// Offset of 16-byte vector `vector` of row `row` in a tile whose rows have row_bytes.
__device__ inline uint32_t vector_offset(int row, int vector, int row_bytes) {
  return static_cast<uint32_t>(row * row_bytes + ((vector ^ (row & 7)) << 4));
}
/// Offset of an element.
__device__ inline uint32_t element_offset(int row, int element, int row_bytes) {
  return vector_offset(row, element >> 3, row_bytes) + static_cast<uint32_t>(element & 7) * 2;
}

/// The first num_there of 8 elements, for rows that begin anywhere; zeros behind them.
__device__ inline void copy_elements(std::byte* to, const std::byte* from, int num_there) {
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    reinterpret_cast<uint16_t*>(to)[i] =
        i < num_there ? reinterpret_cast<const uint16_t*>(from)[i] : uint16_t{0};
  }
}

/// Rows of a tile that are copied one by one: where a tile lies in several pages, rows are not aligned, or not all of its keys exist.
/// `address` is that of the key or value in lane r for row r.
template <int kDim>
__device__ __noinline__ void copy_rows(std::byte* to, uint64_t address, int position, int first_key,
                                       int kv_len, int head_dim, bool is_aligned) {
  constexpr int kVectors = kDim / 8, kRowsAtOnce = 32 / kVectors;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int vector = lane % kVectors, there = head_dim - vector * 8;
#pragma unroll 1
  for (int i = 0; i < kTileKeys / kRowsAtOnce; ++i) {
    const int r = i * kRowsAtOnce + lane / kVectors;
    const auto* row =
        reinterpret_cast<const std::byte*>(__shfl_sync(~0u, address, r)) + vector * 16;
    const bool is_key = position + r >= first_key && position + r < kv_len;
    std::byte* place = to + vector_offset(r, vector, 2 * kDim);
    if (vector >= (head_dim + 15) / 16 * 2) continue;
    if (is_aligned) {
      copy_async_16(place, row, is_key ? min(max(there, 0), 8) * 2 : 0);
    } else {
      copy_elements(place, row, is_key ? there : 0);
    }
  }
}

/// What a warp asks for next: the keys or the values of a tile. Warp w has the tiles w, w + kWarps, ... of a unit. Entries of the table are
/// asked for long before they are needed: where tiles lie within pages, 32 tiles at once.
template <int kDim, int kWarps>
class TileCursor {
 public:
  __device__ TileCursor(const DecodeParams& p, const Run* runs, int num_runs)
      : p_(p), runs_(runs), num_runs_(num_runs), lane_(static_cast<int>(threadIdx.x) % 32) {
    if (num_runs > 0) position_ = first_position(runs[0]);
    skip_runs();
    if (p_.has_whole_tiles) {
      addresses_ = address_of(lane_);
      next_addresses_ = address_of(32 + lane_);
    } else {
      ask_for_row();
    }
  }

  /// The position of the warp's first tile of a run.
  [[nodiscard]] __device__ static int first_position(const Run& run) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    return run.begin + ((warp - run.first_tile) & (kWarps - 1)) * kTileKeys;
  }

  /// Starts copying the next part, if there is one, to `to`; one group of copies either way.
  __device__ void fetch(std::byte* to) {
    if (run_ < num_runs_) {
      copy(to, is_value_ ? p_.kv.value_distance : 0);
      if (is_value_) go_on();
      is_value_ = !is_value_;
    }
    commit_copies();
  }

 private:
  static constexpr int kVectors = kDim / 8, kRowBytes = 2 * kDim, kRowsAtOnce = 32 / kVectors;
  static constexpr int kStep = kWarps * kTileKeys;

  __device__ void skip_runs() {
    while (run_ < num_runs_ && position_ >= runs_[run_].end) {
      if (++run_ < num_runs_) position_ = first_position(runs_[run_]);
    }
  }

  /// The address of the key at the beginning of the warp's tile number `tile`, which lies within a page.
  [[nodiscard]] __device__ uint64_t address_of(int tile) const {
    for (int r = 0; r < num_runs_; ++r) {
      const Run& run = runs_[r];
      const int position = first_position(run);
      const int count = max((run.end - position + kStep - 1) / kStep, 0);
      if (tile < count) return address(run, position + tile * kStep);
      tile -= count;
    }
    return 0;
  }
  [[nodiscard]] __device__ uint64_t address(const Run& run, int position) const {
    const PageSlot at = page_slot(p_.kv, position);
    return reinterpret_cast<uint64_t>(page_address(p_.kv, run.first_page + at.page) +
                                      row_offset(p_.kv, run.kv_head, at.slot));
  }
  /// Of the lane's row of the tile, nearest to what there is.
  __device__ void ask_for_row() {
    if (run_ == num_runs_) return;
    const Run& run = runs_[run_];
    addresses_ =
        address(run, min(max(position_ + lane_ % kTileKeys, run.first_key), run.kv_len - 1));
  }

  __device__ void go_on() {
    position_ += kStep;
    skip_runs();
    if (!p_.has_whole_tiles) return ask_for_row();
    if (++tile_ % 32 != 0) return;
    addresses_ = next_addresses_;
    next_addresses_ = address_of(tile_ + 32 + lane_);
  }

  __device__ void copy(std::byte* to, int64_t distance) const {
    const Run& run = runs_[run_];
    const int vector = lane_ % kVectors, first_row = lane_ / kVectors;
    if (!p_.has_whole_tiles) {
      return copy_rows<kDim>(to, addresses_ + static_cast<uint64_t>(distance), position_,
                             run.first_key, run.kv_len, p_.head_dim, p_.kv.is_aligned);
    }
    const uint64_t tile =
        __shfl_sync(~0u, addresses_, tile_ % 32) + static_cast<uint64_t>(distance);
    if (position_ < run.first_key || position_ + kTileKeys > run.kv_len) {
      return copy_rows<kDim>(to, tile + static_cast<uint64_t>(lane_ % kTileKeys * p_.kv.slot_step),
                             position_, run.first_key, run.kv_len, p_.head_dim, true);
    }
    if (vector >= (p_.head_dim + 15) / 16 * 2) return;
    const int bytes = min(max(p_.head_dim - vector * 8, 0), 8) * 2;
    int64_t step = kRowsAtOnce * p_.kv.slot_step;
    forget(step);
    const auto* row =
        reinterpret_cast<const std::byte*>(tile) + first_row * p_.kv.slot_step + vector * 16;
    const uint32_t place = shared_address(to) + vector_offset(first_row, vector, kRowBytes);
#pragma unroll
    for (int i = 0; i < kTileKeys / kRowsAtOnce; ++i) {
      // Row i * kRowsAtOnce + first_row: its vectors are exchanged by both numbers, one after the other.
      const uint32_t flip = (i * kRowsAtOnce & 7) << 4;
      copy_async_16((place ^ flip) + i * kRowsAtOnce * kRowBytes, row, bytes);
      row += step;
    }
  }

  const DecodeParams& p_;
  const Run* runs_;
  int num_runs_, lane_;
  int run_ = 0, position_ = 0, tile_ = 0;
  bool is_value_ = false;
  uint64_t addresses_ = 0, next_addresses_ = 0;  // of the keys of 32 tiles, or of the rows of one
};

/// Which keys the rows of a unit see.
template <int kRowTiles>
class VisibleKeys {
 public:
  __device__ VisibleKeys(const AttentionKernelParams& p, const Run& run) : p_(p), run_(run) {
    tree_ = tree_mask(p, run.seq, run.q_len);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const KeyRange range = range_of(token_of(lane % (8 * kRowTiles)));
    all_begin_ = __reduce_max_sync(~0u, range.begin);
    all_end_ = __reduce_min_sync(~0u, range.end);
    if (tree_.words != nullptr) all_end_ = min(all_end_, run.kv_len - run.q_len);
  }

  /// Scores of the tile at `position` that a row does not see become -inf.
  __device__ void hide(int position, float (&s)[kRowTiles][4]) const {
    if (position >= all_begin_ && position + kTileKeys <= all_end_) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = token_of(tile * 8 + lane % 4 * 2 + i % 2);
        if (!sees(token, position + lane / 4 + i / 2 * 8)) s[tile][i] = -INFINITY;
      }
    }
  }

 private:
  /// The query of a row; the last one for rows behind it, whose sums nobody takes.
  [[nodiscard]] __device__ int token_of(int row) const {
    return run_.q_len == 1 ? 0 : min((run_.first_row + row) / p_.group_size, run_.q_len - 1);
  }
  [[nodiscard]] __device__ KeyRange range_of(int token) const {
    return visible_keys(p_, run_.kv_len - run_.q_len + token, run_.kv_len, tree_.words != nullptr);
  }
  [[nodiscard]] __device__ bool sees(int token, int key) const {
    const KeyRange range = range_of(token);
    if (key < range.begin || key >= range.end) return false;
    const int drafted = key - (run_.kv_len - run_.q_len);
    return tree_.words == nullptr || drafted < 0 || (tree_.bits(token, drafted) & 1) != 0;
  }

  const AttentionKernelParams& p_;
  const Run& run_;
  TreeMask tree_;
  int all_begin_, all_end_;  // keys that all rows see
};

/// The state of a warp in a segment.
template <int kDim, int kRowTiles>
struct TileSums {
  float max[kRowTiles][2], sum[kRowTiles][2];
  float o[kDim / 16][kRowTiles][4];

  __device__ void clear() {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      max[tile][0] = max[tile][1] = -INFINITY;
      sum[tile][0] = sum[tile][1] = 0.0f;
#pragma unroll
      for (int j = 0; j < kDim / 16; ++j) {
        o[j][tile][0] = o[j][tile][1] = o[j][tile][2] = o[j][tile][3] = 0.0f;
      }
    }
  }
};

/// s = the products of 16 keys and the rows of q, both in shared memory; the sum of the even and of the odd products of 16 elements.
template <class T, int kDim, int kRowTiles>
__device__ void score_tile(uint32_t keys, uint32_t q, int num_steps, int lane,
                           float (&s)[kRowTiles][4]) {
  float part[2][kRowTiles][4] = {};
  const uint32_t key_row = keys + vector_offset(lane & 15, lane >> 4, 2 * kDim);
  // Of one row tile: the four vectors of two steps. Of two: both vectors of one step, of either tile.
  uint32_t q_row = kRowTiles == 1
                       ? q + vector_offset(lane & 7, lane >> 3, 2 * kDim)
                       : q + vector_offset((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1, 2 * kDim);
  forget(q_row);
#pragma unroll
  for (int k = 0; k < kDim / 16; k += 2) {
    if (k >= num_steps) break;
    uint32_t rows[4], a[4];
    load_matrices(rows, q_row ^ (k << 5));
    load_matrices(a, key_row ^ (k << 5));
    mma_m16n8k16<T>(part[0][0], a, rows[0], rows[1]);
    if constexpr (kRowTiles == 2) mma_m16n8k16<T>(part[0][1], a, rows[2], rows[3]);
    if (k + 1 >= num_steps) break;
    load_matrices(a, key_row ^ ((k + 1) << 5));
    if constexpr (kRowTiles == 2) {
      load_matrices(rows, q_row ^ ((k + 1) << 5));
      mma_m16n8k16<T>(part[1][0], a, rows[0], rows[1]);
      mma_m16n8k16<T>(part[1][1], a, rows[2], rows[3]);
    } else {
      mma_m16n8k16<T>(part[1][0], a, rows[2], rows[3]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[tile][i] = part[0][tile][i] + part[1][tile][i];
  }
}

__device__ inline float max_of_keys(float v) {
  for (int distance = 4; distance < 32; distance *= 2) {
    v = fmaxf(v, __shfl_xor_sync(~0u, v, distance));
  }
  return v;
}
__device__ inline float sum_of_keys(float v) {
  for (int distance = 4; distance < 32; distance *= 2) v += __shfl_xor_sync(~0u, v, distance);
  return v;
}

/// Scores become weights 2^(s - max); the maximum grows, and the sums of earlier tiles shrink with it.
template <int kDim, int kRowTiles>
__device__ void weigh_tile(TileSums<kDim, kRowTiles>& sums, float (&s)[kRowTiles][4]) {
  float shrink[kRowTiles][2];
  bool grows = false;
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float max = fmaxf(sums.max[tile][i], max_of_keys(fmaxf(s[tile][i], s[tile][i + 2])));
      const float base = max == -INFINITY ? 0.0f : max;  // nothing seen: the weights are 0, not NaN
      shrink[tile][i] = exp2_fast(sums.max[tile][i] - base);
      grows |= max > sums.max[tile][i];
      sums.max[tile][i] = max;
      s[tile][i] = exp2_fast(s[tile][i] - base);
      s[tile][i + 2] = exp2_fast(s[tile][i + 2] - base);
    }
  }
  if (__any_sync(~0u, grows)) {  // else the factors are 1, or the sums 0
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) sums.sum[tile][i] *= shrink[tile][i];
#pragma unroll
      for (int j = 0; j < kDim / 16; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums.o[j][tile][i] *= shrink[tile][i % 2];
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) sums.sum[tile][i] += s[tile][i] + s[tile][i + 2];
  }
}

/// Adds the weighted values of a tile; the weights are rounded to T.
template <class T, int kDim, int kRowTiles>
__device__ void add_values(uint32_t values, int num_steps, int lane,
                           const float (&weights)[kRowTiles][4], TileSums<kDim, kRowTiles>& sums) {
  uint32_t b[kRowTiles][2];
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
    b[tile][0] = transpose_matrix(narrow_two<T>({weights[tile][0], weights[tile][1]}));
    b[tile][1] = transpose_matrix(narrow_two<T>({weights[tile][2], weights[tile][3]}));
  }
  const uint32_t row =
      values + vector_offset((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1, 2 * kDim);
#pragma unroll
  for (int j = 0; j < kDim / 16; ++j) {
    if (j >= num_steps) break;
    uint32_t a[4];
    load_matrices_transposed(a, row ^ (j << 5));
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      mma_m16n8k16<T>(sums.o[j][tile], a, b[tile][0], b[tile][1]);
    }
  }
}

}  // namespace heddle::cuda
