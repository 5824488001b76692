#pragma once

#include "ops/metadata/conversions/select_kernel.h"
#include "ops/metadata/indices_cuda.h"

// The conversions of contiguous tensors, which nearly all are: neighbouring elements, up to 256
// rows, places that fit 32 bits. What takes the time is instructions, so there are few: a third of
// those for any tensors. Compiled for tensors that are all i32, and for i32 and i64 in any mixture.
//
//   block     a chunk of 256 * kPerLane elements, and a thread for each of up to 256 rows
//     warp    32 * kPerLane neighbouring elements
//       lane  the elements `lane`, lane + 32, ...
//
// A block has the elements of a chunk and a thread for each row. A row's thread reads what there is
// to know of it, all at once, and marks the first element of the chunk that the row has, and each
// first element of a warp that it has. Most warps find no other mark; else an element's row is that
// of the last mark at or before it, within its warp.

namespace heddle::cuda::metadata {

/// A row: elements [begin, end); what `a` and `b` say depends on the op. Number: int64_t where they
/// are added to what is written, which may be i64.
template <class Number>
struct alignas(16) ContiguousRow {
  int32_t begin, end;
  Number a, b;
};

/// Rows count from 1, so that no mark is 0, and its row is an empty one. Marks behind the chunk, of
/// rows that do not reach as far, are never looked at.
template <int kPerLane, class Row>
struct alignas(16) ContiguousWindow {
  int32_t marks[2 * kRowThreads * kPerLane];
  Row rows[1 + kRowThreads];
};

/// The part [first, first + size) of a ragged array.
struct ContiguousChunk {
  int32_t first, size;

  [[nodiscard]] static __device__ ContiguousChunk of_block(int32_t elements, int per_lane) {
    const int all = kRowThreads * per_lane, first = static_cast<int>(blockIdx.x) * all;
    return {first, smaller(all, elements - first)};
  }
};

/// No marks. A barrier follows.
template <int kPerLane, class Row>
__device__ void clear(ContiguousWindow<kPerLane, Row>& window) {
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) window.marks[k * kRowThreads + threadIdx.x] = 0;
  if (threadIdx.x == 0) window.rows[0] = {};
}

/// The maximum of a mark and `value` goes there. As atomicMax() of a place that is the same for all
/// threads, the compiler would have a warp take the maximum first.
__device__ inline void raise_mark(uint32_t address, int32_t value) {
  asm volatile("red.shared.max.s32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/// Puts this thread's row there, which begins and ends in the array where it says. A barrier
/// follows. Where rows overlap, which they do not in a batch that makes sense, the last one has the
/// element.
template <int kPerLane, class Row>
__device__ void set_row(ContiguousWindow<kPerLane, Row>& window, const ContiguousChunk& chunk,
                        const Row& row) {
  constexpr int kPerWarp = 32 * kPerLane;
  const int mark = static_cast<int>(threadIdx.x) + 1;
  window.rows[mark] = row;
  const int from = larger(row.begin, chunk.first) - chunk.first;
  const int to = smaller(row.end, chunk.first + chunk.size) - chunk.first;
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

/// Writes the chunk. An Op has
///   bool has(element, row): whether there is something to copy, the element being the row's;
///   Value fetch(element, row, is_copied): reads what becomes of the element, or the fill value;
///   void put(element, row, value);
///   bool fills(): whether put is called for all elements, else for those that are copied.
template <int kPerLane, class Row, class Op>
__device__ void write_chunk(const Op& op, const ContiguousWindow<kPerLane, Row>& window,
                            const ContiguousChunk& chunk) {
  const int lane = threadIdx.x % 32u;
  const int begin = static_cast<int>(threadIdx.x / 32u) * 32 * kPerLane + lane;
  const auto copy = [&](const auto& row_of_group) {  // reads are on their way before a write waits
    typename Op::Value value[kPerLane];
    bool is_copied[kPerLane];
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int x = begin + k * 32, element = chunk.first + x;
      const Row row = row_of_group(k);
      is_copied[k] = x < chunk.size && element < row.end && op.has(element, row);
      value[k] = op.fetch(element, row, is_copied[k]);
    }
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int x = begin + k * 32;
      if (is_copied[k] || (op.fills() && x < chunk.size)) {
        op.put(chunk.first + x, row_of_group(k), Op::T::number(value[k]));
      }
    }
  };
  int marks[kPerLane];
  bool is_new = false;  // a row begins behind the warp's first element
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

}  // namespace heddle::cuda::metadata
