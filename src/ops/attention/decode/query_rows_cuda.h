#pragma once

// The rows of q of a run, and which keys each of them sees.

#include <cmath>

#include "cuda/convert_cuda.h"
#include "cuda/divide_cuda.h"

#include "ops/attention/decode/softmax_state_cuda.h"
#include "ops/attention/device/finite_values_cuda.h"

namespace heddle::cuda::attention::decode {

/// The rows of q of a run: heads of one query, or of the queries of a bundle, one after the other.
struct QueryRows {
  int64_t first_query, first_head;
  int count;

  __device__ QueryRows(const DecodeLaunchParams& p, const Run& run, int max_rows)
      : first_query(run.cut->first_query) {
    const HeadRows rows = rows_of(p, run.unit);
    first_head = int64_t{rows.kv_head} * p.group_size + rows.first;
    count = min(p.group_size - rows.first, max_rows) * run.cut->num_queries;
  }
  /// Of row `row`; a query has no more rows in the run than heads in its group.
  struct Row {
    int64_t query, head;
  };
  [[nodiscard]] __device__ Row at(const DecodeLaunchParams& p, int row) const {
    const int query = divide(row, p.by_group_size);
    return {first_query + query, first_head + row - query * p.group_size};
  }
};

/// Vector number `place` of the rows of q: where it goes, where it comes from, and how many of its
/// elements exist (none after the last row or after the end of a row).
struct RowVector {
  std::byte* to;
  const std::byte* from;
  int there;
};
template <class Shape>
__device__ RowVector row_vector(const DecodeLaunchParams& p, const QueryRows& rows, int place,
                                std::byte* q) {
  constexpr int kVectors = Shape::kDim / 8;
  const int row = place / kVectors, vector = place % kVectors;
  const auto [query, head] = rows.at(p, min(row, max(rows.count - 1, 0)));
  return {q + vector_offset(row, vector, Shape::kRowBytes),
          p.q + (query * p.q_token + head * p.q_head + vector * 8) * 2,
          row < rows.count ? p.head_dim - vector * 8 : 0};
}

/// Copies rows of q to shared memory. Aligned rows are still on their way afterwards.
template <class Shape>
__device__ void fetch_rows(const DecodeLaunchParams& p, const Run& run, std::byte* q) {
  constexpr int kPlaces = Shape::kRows * Shape::kDim / 8;
  const QueryRows rows(p, run, Shape::kRows);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kPlaces; i += Shape::kThreads) {
    const RowVector v = row_vector<Shape>(p, rows, i, q);
    if (p.is_q_aligned) {
      copy_async_16(v.to, v.from, v.there > 0 ? 16 : 0);
    } else {
      copy_elements(v.to, v.from, v.there);
    }
  }
}

/// The keys that a row's query sees, [first_key, kv_len). In a bundle each query sees one key more
/// than the one before, and a window moves with it.
struct RowKeys {
  int first_key, kv_len;

  /// Of a query alone.
  __device__ explicit RowKeys(const SequenceCut& cut)
      : first_key(cut.first_key), kv_len(cut.kv_len) {}
  __device__ RowKeys(const DecodeLaunchParams& p, const SequenceCut& cut, int row)
      : kv_len(cut.kv_len - (cut.num_queries - 1) + divide(row, p.by_group_size)) {
    first_key = first_seen_key(kv_len, p.window_left);
  }
  [[nodiscard]] __device__ bool has(int key) const { return key >= first_key && key < kv_len; }
};

/// Whether all rows see all keys of the tile at `position`.
template <int kKeys>
__device__ bool is_seen_by_all(const SequenceCut& cut, int position) {
  const int num_before = cut.num_queries - 1;  // queries before the last one
  // The last query begins num_before keys after the first one, at most.
  const int first_key = cut.first_key + (cut.first_key > 0 ? num_before : 0);
  return position >= first_key && position + kKeys <= cut.kv_len - num_before;
}

/// Scores of the keys of the tile at `position` that a row does not see become -inf. s: [page
/// tile][row tile].
template <bool kHasBundles, int kPageTiles, int kRowTiles>
__device__ void hide_keys(const DecodeLaunchParams& p, const SequenceCut& cut, int position,
                          float (&s)[kPageTiles][kRowTiles][4]) {
  if (is_seen_by_all<kPageTiles * kTileKeys>(cut, position)) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = tile * kDecodeRowTile + lane % 4 * 2 + i;
      const RowKeys seen = kHasBundles ? RowKeys(p, cut, row) : RowKeys(cut);
#pragma unroll
      for (int j = 0; j < 2 * kPageTiles; ++j) {
        if (!seen.has(position + lane / 4 + j * 8)) s[j / 2][tile][j % 2 * 2 + i] = -INFINITY;
      }
    }
  }
}

/// Adds values of the tile that are infinite or NaN to the rows that see them, and makes them zero.
template <class T, int kDim, int kRowTiles>
__device__ void add_not_finite(const DecodeLaunchParams& p, const SequenceCut& cut, int position,
                               std::byte* values, const float (&weights)[kRowTiles][4],
                               KeyTileSums<kDim, kRowTiles>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int key = 0; key < kTileKeys; ++key) {
    // Its weights for rows 2q, 2q + 1 are those of a lane (key % 8, q).
    const int from = key % 8 * 4 + lane % 4;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      float weight[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float low = __shfl_sync(~0u, weights[tile][i], from);
        const float high = __shfl_sync(~0u, weights[tile][i + 2], from);
        weight[i] = widen(narrow<T>(key < 8 ? low : high));
      }
#pragma unroll
      for (int j = 0; j < kDim / 16; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float value = widen(*reinterpret_cast<const T*>(
              values + element_offset(key, 16 * j + half * 8 + lane / 4, 2 * kDim)));
          if (isfinite(value)) continue;
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const RowKeys seen(p, cut, tile * kDecodeRowTile + lane % 4 * 2 + i);
            if (seen.has(position + key)) sums.o[j][tile][2 * half + i] += weight[i] * value;
          }
        }
      }
    }
  }
  __syncwarp();
#pragma unroll 1
  for (int i = lane; i < kTileKeys * kDim; i += 32) {
    T& value = *reinterpret_cast<T*>(values + i * int{sizeof(T)});
    if (!isfinite(widen(value))) value = T{};
  }
  __syncwarp();
}

/// Takes values that are infinite or NaN out of a tile of a bundle that some rows see in part: a
/// weight of 0 times such a value would be NaN in the others. weights: of the tile.
template <class T, int kDim, int kRowTiles>
__device__ void take_out_not_finite(const DecodeLaunchParams& p, const SequenceCut& cut,
                                    int position, std::byte* values,
                                    const float (&weights)[kRowTiles][4],
                                    KeyTileSums<kDim, kRowTiles>& sums) {
  if (cut.num_queries <= 1 || is_seen_by_all<kTileKeys>(cut, position)) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  bool any = false;
#pragma unroll
  for (int i = lane * 16; i < kTileKeys * kDim * 2; i += 32 * 16) {
    const auto eight = *reinterpret_cast<const uint4*>(values + i);
    any |= (not_finite<T>(eight.x) | not_finite<T>(eight.y) | not_finite<T>(eight.z) |
            not_finite<T>(eight.w)) != 0;
  }
  if (__any_sync(~0u, any)) add_not_finite<T>(p, cut, position, values, weights, sums);
}

}  // namespace heddle::cuda::attention::decode
