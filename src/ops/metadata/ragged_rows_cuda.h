#pragma once

#include "ops/metadata/indices_cuda.h"

// The elements of a ragged array, shared among blocks: chunk c belongs to block c mod grid, whatever rows lie in it, so one long
// row costs what many short ones do. The grid follows from the array's extent; how much of it is in use is read on the device.

namespace heddle::cuda {

inline constexpr int kRowThreads = 256;  // of a block
inline constexpr int kWindowRows = 512;  // whose starts lie in shared memory at a time
inline constexpr int kManyPerThread = 4;

/// Rows of a ragged array as an op sees them. An Op has
///   RowFacts facts(row): what it reads once per row, in shared memory by the time that the elements are looked at;
///   bool fetch(facts, row, j, element, RawIndex& value): reads what becomes of element j of the row, which is `element` of the array;
///     false where nothing is to be written;
///   void put(facts, row, j, element, int64_t value).
struct RowFacts {
  int64_t a, b;
};

struct RowWindow {
  int64_t starts[kWindowRows + 1];
  RowFacts facts[kWindowRows];
};

/// Elements [first, last) of the array, all of them in the window's rows, which begin with row `row_base`.
/// All threads of a block; kPerThread * kRowThreads elements at most. Reads are on their way before the first write waits.
template <int kPerThread, class Op>
__device__ void write_elements(const Op& op, const int64_t* starts, const RowFacts* facts,
                               int64_t row_base, int num_rows, int64_t first, int64_t last) {
  RawIndex value[kPerThread];
  int row[kPerThread];
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int64_t element = first + k * kRowThreads + threadIdx.x;
    row[k] = -1;
    if (element >= last) continue;
    const int r = row_of(starts, num_rows, element);
    const RowFacts f = facts != nullptr ? facts[r] : RowFacts{};
    if (op.fetch(f, row_base + r, element - starts[r], element, value[k])) row[k] = r;
  }
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int r = row[k];
    if (r < 0) continue;
    const int64_t element = first + k * kRowThreads + threadIdx.x;
    const RowFacts f = facts != nullptr ? facts[r] : RowFacts{};
    op.put(f, row_base + r, element - starts[r], element, value[k].value());
  }
}

/// The last row that starts at or before the element, or row 0: where to begin in a long list of starts. All threads alike.
__device__ inline int64_t first_row_of(const ConstIndices& cu, int64_t num_rows, int64_t element) {
  int64_t row = 0;
  for (int64_t high = num_rows; high - row > 1;) {
    const int64_t middle = row + (high - row) / 2;
    (held(load(cu, middle)) <= element ? row : high) = middle;
  }
  return row;
}

/// All elements that `cu` [num_rows + 1] places in [0, size). Blocks of kRowThreads; any grid.
template <int kPerThread, class Op>
__device__ void write_ragged(const Op& op, const ConstIndices& cu, int64_t num_rows, int64_t size,
                             RowWindow& window) {
  constexpr int64_t kChunk = int64_t{kPerThread} * kRowThreads;
  int64_t loaded = -1;  // first row of the window
  for (int64_t chunk = blockIdx.x; chunk * kChunk < size; chunk += gridDim.x) {
    const int64_t first = chunk * kChunk, last = smaller(first + kChunk, size);
    int64_t base = num_rows > kWindowRows ? first_row_of(cu, num_rows, first) : 0;
    for (; base < num_rows; base += kWindowRows) {
      const int rows = static_cast<int>(smaller(kWindowRows, num_rows - base));
      if (base != loaded) {
        __syncthreads();
        for (int r = threadIdx.x; r <= rows; r += kRowThreads) {
          window.starts[r] = held(load(cu, base + r));
          if (r < rows) window.facts[r] = op.facts(base + r);
        }
        __syncthreads();
        loaded = base;
      }
      write_elements<kPerThread>(op, window.starts, window.facts, base, rows,
                                 larger(first, window.starts[0]),
                                 smaller(last, window.starts[rows]));
      if (window.starts[rows] >= last) break;
    }
  }
}

}  // namespace heddle::cuda
