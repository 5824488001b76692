#pragma once

#include "core/math.h"
#include "ops/metadata/conversions/select_kernel.h"
#include "ops/metadata/indices_cuda.h"

// The elements of a ragged array, partitioned among blocks: block b writes chunk b, whatever rows
// lie in it, so one long row costs what many short ones do. The grid follows from the array's
// extent; how much of it is in use is read on the device.
//
//   block     a chunk of 256 * kPerLane elements, and a window of 256 rows at a time
//     warp    32 * kPerLane neighbouring elements
//       lane  the elements `lane`, lane + 32, ...
//
// A row's thread loads all that is needed of the row at once, and marks the first element of the
// chunk that the row has, and each first element of a warp that it has. Most warps find no other
// mark; else an element's row is that of the last mark at or before it, within its warp.
//
// Contiguous tensors of up to 256 rows have one window and places of 32 bits: what takes the time
// is instructions, and these are a third of those for any tensors.

namespace heddle::cuda::metadata {

/// A row: elements [begin, end); the meaning of `a` and `b` depends on the op. Place: where an
/// element lies. Number: int64_t where a and b are added to what is written, which may be i64.
template <class Place, class Number>
struct alignas(16) RaggedRow {
  Place begin, end;
  Number a, b;
};

/// Rows count from 1, so that no mark is 0, and row 0 is an empty one. Marks past the chunk, of
/// rows that end before it does, are never read.
template <int kPerLane, class Row>
struct alignas(16) RowWindow {
  int32_t marks[2 * kRowThreads * kPerLane];
  Row rows[1 + kRowThreads];
};

/// The part [first, first + size) of a ragged array.
template <class Place>
struct RaggedChunk {
  Place first;
  int32_t size;

  [[nodiscard]] static __device__ RaggedChunk of_block(Place elements, int per_lane) {
    const Place all = Place{kRowThreads} * per_lane, first = static_cast<Place>(blockIdx.x) * all;
    return {first, static_cast<int32_t>(smaller(all, elements - first))};
  }
  [[nodiscard]] __device__ Place end() const { return first + size; }
  /// An element as seen from the chunk, which holds it; 64 bits may hold any.
  [[nodiscard]] __device__ int32_t offset_of(Place element) const {
    if constexpr (sizeof(Place) == 4) {
      return element - first;
    } else {
      return static_cast<int32_t>(larger(Place{0}, smaller(element - first, Place{size})));
    }
  }
};

/// No marks. A barrier follows.
template <int kPerLane, class Row>
__device__ void clear(RowWindow<kPerLane, Row>& window) {
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) window.marks[k * kRowThreads + threadIdx.x] = 0;
  if (threadIdx.x == 0) window.rows[0] = {};
}

/// Raises a mark to `value`. With an atomicMax() of a place that is the same for all threads, the
/// compiler would have a warp reduce the maximum first.
__device__ inline void raise_mark(uint32_t address, int32_t value) {
  asm volatile("red.shared.max.s32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/// Puts this thread's row into the window. A barrier follows. Where rows overlap, which they do not
/// in a valid batch, the last one has the element.
template <int kPerLane, class Place, class Row>
__device__ void set_row(RowWindow<kPerLane, Row>& window, const RaggedChunk<Place>& chunk,
                        const Row& row) {
  constexpr int kPerWarp = 32 * kPerLane;
  const int mark = static_cast<int>(threadIdx.x) + 1;
  window.rows[mark] = row;
  const int from = chunk.offset_of(larger(row.begin, chunk.first));
  const int to = chunk.offset_of(smaller(row.end, chunk.end()));
  if (from >= to) return;
  const auto marks = static_cast<uint32_t>(__cvta_generic_to_shared(window.marks));
  const int before = from & ~(kPerWarp - 1);
  const uint32_t of_warp = marks + static_cast<uint32_t>(before) * 4;
  raise_mark(marks + static_cast<uint32_t>(from) * 4, mark);
  // Most rows end here, else nothing is raised by 0: less than a branch around each.
  if (before + kPerWarp >= to) return;
#pragma unroll
  for (int i = kPerWarp; i < kRowThreads * kPerLane; i += kPerWarp) {
    raise_mark(of_warp + static_cast<uint32_t>(i) * 4, before + i < to ? mark : 0);
  }
}

/// Writes what the window's rows have of the chunk. An Op has
///   bool has(element, row): whether there is something to copy, the element being the row's;
///   Value fetch(element, row, is_copied): loads what is written to the element, or the fill value;
///   void put(element, row, value);
///   bool fills(): whether put is called for all elements, else for those that are copied.
/// copied: a bit for each of the lane's elements that a window has copied; the last window fills
/// the others.
template <int kPerLane, class Place, class Row, class Op>
__device__ void write_chunk(const Op& op, const RowWindow<kPerLane, Row>& window,
                            const RaggedChunk<Place>& chunk, bool is_last, uint32_t& copied) {
  const int lane = threadIdx.x % 32u;
  const int begin = static_cast<int>(threadIdx.x / 32u) * 32 * kPerLane + lane;
  const auto copy = [&](const auto& row_of_group) {  // loads are issued before a store waits
    typename Op::Tensors::Value value[kPerLane];
    bool is_copied[kPerLane];
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int x = begin + k * 32;
      const Place element = chunk.first + x;
      const Row row = row_of_group(k);
      is_copied[k] = x < chunk.size && element < row.end && op.has(element, row);
      value[k] = op.fetch(element, row, is_copied[k]);
    }
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int x = begin + k * 32;
      const bool is_filled =
          op.fills() && is_last && x < chunk.size && (copied & uint32_t{1} << k) == 0;
      if (is_copied[k] || is_filled) {
        op.put(chunk.first + x, row_of_group(k), Op::Tensors::number(value[k]));
      }
      copied |= uint32_t{is_copied[k]} << k;
    }
  };
  int marks[kPerLane];
  bool is_new = false;  // a row begins after the warp's first element
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    marks[k] = window.marks[begin + k * 32];
    is_new = is_new || (marks[k] > 0 && (k > 0 || lane > 0));
  }
  int last = __shfl_sync(kAllLanes, marks[0], 0);  // mark of the groups of 32 so far
  if (!__any_sync(kAllLanes, is_new)) {
    const Row row = window.rows[last];
    copy([&](int) { return row; });
    return;
  }
  int own[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const unsigned marked = __ballot_sync(kAllLanes, marks[k] > 0);
    const unsigned before = marked & (0xffffffffu >> (31 - lane));
    const int of_lane = __shfl_sync(kAllLanes, marks[k], 31 - __clz(before | 1));
    const int of_group = __shfl_sync(kAllLanes, marks[k], 31 - __clz(marked | 1));
    own[k] = before != 0 ? of_lane : last;
    last = marked != 0 ? of_group : last;
  }
  copy([&](int k) { return window.rows[own[k]]; });
}

/// The last of many rows that starts at or before the element, or an earlier row that is no further
/// away than a window is long. start(row): where it starts. All threads; each looks at one start
/// per round.
template <class Start>
__device__ int64_t first_row_of(int64_t num_rows, int64_t element, const Start& start) {
  int64_t row = 0;
  for (int64_t count = num_rows; count > kRowThreads;) {
    const int64_t step = ceil_div(count, kRowThreads), r = threadIdx.x * step;
    const bool is_before = r < count && start(row + r) <= element;
    const int before = __syncthreads_count(is_before ? 1 : 0);
    row += (before > 0 ? before - 1 : 0) * step;
    count = smaller(step, num_rows - row);
  }
  return row;
}

}  // namespace heddle::cuda::metadata
