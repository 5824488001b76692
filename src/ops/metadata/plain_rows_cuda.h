#pragma once

#include "ops/metadata/indices_cuda.h"

// The conversions of plain tensors, which nearly all are: neighbouring i32, up to 256 rows, places that fit 32 bits. What takes the
// time is instructions, so there are few: a third of those for any tensors.
//
// A block has the elements of a chunk and a thread for each row. A row's thread reads what there is to know of it, all at once, and
// marks the first element of the chunk that the row has, and the first one of each warp. An element finds its row by the last mark
// at or before it within its warp.

namespace heddle::cuda {

inline constexpr int kPlainThreads = 256;  // of a block, and rows

/// What becomes of a row: elements [begin, end) are copied, `a` and `b` say where to or what.
struct alignas(16) PlainRow {
  int32_t begin, end, a, b;
};

template <int kPerLane>
struct alignas(16) PlainWindow {
  int16_t marks[kPlainThreads * kPerLane];  // a row or -1
  PlainRow rows[kPlainThreads];
};

/// The part [first, first + size) of a ragged array.
struct PlainChunk {
  int32_t first, size;

  [[nodiscard]] static __device__ PlainChunk of_block(int32_t elements, int per_lane) {
    const int all = kPlainThreads * per_lane, first = static_cast<int>(blockIdx.x) * all;
    return {first, smaller(all, elements - first)};
  }
};

/// No marks. A barrier follows.
template <int kPerLane>
__device__ void clear_marks(PlainWindow<kPerLane>& window) {
  using Marks = std::conditional_t<kPerLane == 1, int16_t, int4>;
  static_assert(kPerLane == 1 || kPerLane == 8);
  if constexpr (kPerLane == 1) {
    window.marks[threadIdx.x] = -1;
  } else {
    reinterpret_cast<Marks*>(window.marks)[threadIdx.x] = make_int4(-1, -1, -1, -1);
  }
}

/// Marks the elements of this thread's row, [start, end) of the array. A barrier follows.
template <int kPerLane>
__device__ void mark_row(PlainWindow<kPerLane>& window, const PlainChunk& chunk, int32_t start,
                         int32_t end, const PlainRow& row) {
  constexpr int kPerWarp = 32 * kPerLane;
  window.rows[threadIdx.x] = row;
  const int from = larger(start, chunk.first) - chunk.first;
  const int to = smaller(end, chunk.first + chunk.size) - chunk.first;
  if (from >= to) return;
  const auto mark = static_cast<int16_t>(threadIdx.x);
  window.marks[from] = mark;
  for (int i = (from / kPerWarp + 1) * kPerWarp; i < to; i += kPerWarp) window.marks[i] = mark;
}

/// Writes the chunk. An Op has
///   int32_t fetch(element, row, is_copied): reads what becomes of the element, or the fill value;
///   void put(element, row, value);
///   kFills: put is called for all elements, else for those that a row copies.
template <int kPerLane, class Op>
__device__ void write_chunk(const Op& op, const PlainWindow<kPerLane>& window,
                            const PlainChunk& chunk) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int begin = static_cast<int>(threadIdx.x) / 32 * 32 * kPerLane + lane;
  const unsigned up_to_lane = 0xffffffffu >> (31 - lane);
  const auto fetch = [&](int x, int r, const PlainRow& row, bool& is_copied) {
    const int element = chunk.first + x;
    is_copied = r >= 0 && x < chunk.size && element >= row.begin && element < row.end;
    return op.fetch(element, row, is_copied);
  };
  const auto put = [&](int x, const PlainRow& row, bool is_copied, int32_t value) {
    if (is_copied || (op.fills() && x < chunk.size)) op.put(chunk.first + x, row, value);
  };
  int marks[kPerLane];
  bool is_new = false;  // a row begins behind the warp's first element
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    marks[k] = window.marks[begin + k * 32];
    is_new = is_new || (marks[k] >= 0 && (k > 0 || lane > 0));
  }
  int r = __shfl_sync(kAllLanes, marks[0], 0);
  if (!__any_sync(kAllLanes, is_new)) {
    const PlainRow row = window.rows[larger(r, 0)];
    int32_t value[kPerLane];
    bool is_copied[kPerLane];
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) value[k] = fetch(begin + k * 32, r, row, is_copied[k]);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) put(begin + k * 32, row, is_copied[k], value[k]);
    return;
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const unsigned marked = __ballot_sync(kAllLanes, marks[k] >= 0);
    const unsigned before = marked & up_to_lane;
    const int of_lane = __shfl_sync(kAllLanes, marks[k], before != 0 ? 31 - __clz(before) : 0);
    const int own = before != 0 ? of_lane : r;
    const PlainRow row = window.rows[larger(own, 0)];
    bool is_copied;
    const int32_t value = fetch(begin + k * 32, own, row, is_copied);
    put(begin + k * 32, row, is_copied, value);
    if (marked != 0) r = __shfl_sync(kAllLanes, marks[k], 31 - __clz(marked));
  }
}

}  // namespace heddle::cuda
