#pragma once

#include "core/math.h"
#include "ops/metadata/conversions/select_kernel.h"
#include "ops/metadata/indices_cuda.h"

// The elements of a ragged array, shared among blocks: block b has chunk b, whatever rows lie in
// it, so one long row costs what many short ones do. The grid follows from the array's extent; how
// much of it is in use is read on the device.
//
//   block     a chunk of 256 * kPerThread elements, and a window of 256 rows at a time
//     warp    32 * kPerThread neighbouring elements
//       lane  the elements `lane`, lane + 32, ...
//
// What a block waits for, one after the other: all that it needs of its rows, a row per thread; a
// barrier; the element. Within the block everything counts from the chunk's beginning, in 32 bits.

namespace heddle::cuda::metadata {

/// What becomes of a row: its elements [begin, end) are copied. `offset` is what the op adds to all
/// of them.
struct RowSpan {
  int64_t begin = 0, end = 0, offset = 0;
};

struct RowWindow {
  struct __align__(16) Row {
    int32_t begin, end;
    int64_t offset;
  };
  int32_t starts[kRowThreads];  // at most the end of the chunk
  Row rows[kRowThreads];
  int32_t end;  // of the last row
};

/// A block's chunk of a ragged array.
struct Chunk {
  int64_t first;
  int32_t size;

  [[nodiscard]] static __device__ Chunk of_block(int64_t elements, int per_thread) {
    const int64_t all = int64_t{kRowThreads} * per_thread, first = blockIdx.x * all;
    return {first, static_cast<int32_t>(smaller(all, elements - first))};
  }
  /// A place in the array, seen from the chunk: -1 in front of it, `size` behind it.
  [[nodiscard]] __device__ int32_t place_of(int64_t element) const {
    return static_cast<int32_t>(larger(-1, smaller(element - first, size)));
  }
};

/// A vector as the elements of a chunk see it: x is at + x * step.
template <class Byte>
struct ChunkOf {
  Byte* at;
  int64_t step;  // bytes
  bool is_int64;

  /// A list, or a table seen as that of its first row.
  template <class Tensor>
  __device__ ChunkOf(const Tensor& t, int64_t first)
      : at(t.data + first * t.step_bytes()), step(t.step_bytes()), is_int64(t.is_int64) {}
};

/// One side of a copy has an element where the ragged array has it; the other side has it `offset`
/// bytes further, by rows. With a fill value, what no row copies gets that.
template <bool kReadsByRow>
struct ElementCopies {
  ChunkOf<std::byte> to;
  ChunkOf<const std::byte> from;
  Fill fill{};

  __device__ LoadedIndex fetch(int x, int /*row*/, int64_t offset, bool is_copied) const {
    return load_input(from.at + (kReadsByRow ? offset : 0) + x * from.step, from.is_int64,
                      is_copied);
  }
  __device__ void put(int x, int64_t offset, bool is_copied, const LoadedIndex& value) const {
    if (!is_copied && !fill.on) return;
    store_at(to.at + (kReadsByRow ? 0 : offset) + x * to.step, to.is_int64,
             is_copied ? value.value() : fill.value);
  }
};

/// Puts a row per thread into the window; `start` is its beginning, `end` that of the next one. A
/// barrier follows.
__device__ inline void set_row(RowWindow& window, const Chunk& chunk, bool in_range, int64_t start,
                               int64_t end, const RowSpan& span) {
  window.starts[threadIdx.x] = in_range ? chunk.place_of(start) : chunk.size;
  window.rows[threadIdx.x] = {chunk.place_of(span.begin), in_range ? chunk.place_of(span.end) : -1,
                              span.offset};
  if (threadIdx.x == kRowThreads - 1) window.end = chunk.place_of(end);
}

/// kCount elements of each lane, 32 apart, from `begin` on and of [first, last); window row
/// row_of(x) has element x. Reads are on their way before a write waits.
template <int kCount, class Copies, class RowOf>
__device__ void copy_elements(const Copies& copies, const RowWindow& window, int begin, int first,
                              int last, const RowOf& row_of_element) {
  LoadedIndex value[kCount];
  int row[kCount];
  bool is_copied[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const int x = begin + k * 32 + static_cast<int>(threadIdx.x) % 32;
    row[k] = row_of_element(x);
    const RowWindow::Row span = window.rows[row[k]];
    is_copied[k] = x >= first && x < last && x >= span.begin && x < span.end;
    value[k] = copies.fetch(x, row[k], span.offset, is_copied[k]);
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const int x = begin + k * 32 + static_cast<int>(threadIdx.x) % 32;
    if (x < first || x >= last) continue;
    copies.put(x, window.rows[row[k]].offset, is_copied[k], value[k]);
  }
}

/// Elements [from, to) of the chunk, all of them in the window's rows or in none. All threads. A
/// warp has neighbouring elements; it counts the rows that begin in front of them, so that most
/// warps, with one row, search no further.
template <int kPerThread, class Copies>
__device__ void write_elements(const Copies& copies, const RowWindow& window, int from, int to) {
  const int lane = threadIdx.x % 32;
  const int begin = static_cast<int>(threadIdx.x) / 32 * 32 * kPerThread;
  const int end = begin + 32 * kPerThread;
  const int first = begin > from ? begin : from, last = end < to ? end : to;
  if (first >= last) return;
  uint32_t begun = 0;  // at the first element, and 16 bits higher at the last one
#pragma unroll
  for (int r = 0; r < kRowThreads; r += 32) {
    const int start = window.starts[r + lane];
    begun += (start <= first ? 1u : 0u) + (start < last ? 1u << 16 : 0u);
  }
  begun = __reduce_add_sync(kAllLanes, begun);
  const int begun_at_first = static_cast<int>(begun & 0xffff);
  const int row = begun_at_first > 0 ? begun_at_first - 1 : 0;
  const int num_rows = static_cast<int>(begun >> 16) - row;
  if (num_rows <= 1) {
    copy_elements<kPerThread>(copies, window, begin, first, last, [&](int) { return row; });
    return;
  }
  constexpr int kAtATime = kPerThread < 2 ? kPerThread : 2;
#pragma unroll 1
  for (int x = begin; x < last; x += 32 * kAtATime) {
    copy_elements<kAtATime>(copies, window, x, first, last, [&](int element) {
      return row + row_of(window.starts + row, num_rows, element);
    });
  }
}

/// The last of many rows that starts at or before the element, or a row in front of it that is no
/// further away than a window is long. All threads; each looks at one start per round.
__device__ inline int64_t first_row_of(const ConstIndexList& cu, int64_t num_rows,
                                       int64_t element) {
  int64_t row = 0;
  for (int64_t count = num_rows; count > kRowThreads;) {
    const int64_t step = ceil_div(count, kRowThreads), r = threadIdx.x * step;
    const bool is_before = r < count && bounded(load_input(cu, row + r).value()) <= element;
    const int before = __syncthreads_count(is_before ? 1 : 0);
    row += (before > 0 ? before - 1 : 0) * step;
    count = smaller(step, num_rows - row);
  }
  return row;
}

/// The chunk of an array whose rows start where `cu` [num_rows + 1] says. An Op has
///   facts(row): what else it reads of a row, not yet looked at;
///   RowSpan span(row, start, end, facts).
template <int kPerThread, class Op, class Copies>
__device__ void write_chunk(const Op& op, const Copies& copies, const ConstIndexList& cu,
                            int64_t num_rows, const Chunk& chunk, RowWindow& window) {
  int done = 0;
  int64_t base = num_rows > kRowThreads ? first_row_of(cu, num_rows, chunk.first) : 0;
  while (true) {
    const int64_t row = base + threadIdx.x;
    const bool in_range = row < num_rows;
    const LoadedIndex start = load_input(cu, row, in_range),
                      end = load_input(cu, row + 1, in_range);
    const auto facts = op.facts(row, in_range);
    const int64_t from = bounded(start.value()), to = bounded(end.value());
    set_row(window, chunk, in_range, from, to, op.span(row, from, to, facts));
    __syncthreads();
    base += kRowThreads;
    const int rows_end = base >= num_rows ? chunk.size : (window.end > done ? window.end : done);
    write_elements<kPerThread>(copies, window, done, rows_end);
    if (rows_end >= chunk.size) return;
    done = rows_end;
    __syncthreads();
  }
}

}  // namespace heddle::cuda::metadata
