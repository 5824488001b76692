#pragma once

#include <algorithm>
#include <cstdint>

#include "heddle/core/context.h"

#include "core/math.h"

namespace heddle::cpu {

inline constexpr int64_t kTaskColumns = 4096;       // long rows are shared among threads, too
inline constexpr int64_t kElementsPerChunk = 8192;  // some microseconds of work

/// Calls columns(row, begin, end) for pieces that make up all rows of an operation on elements, on
/// the threads of the context.
template <class Columns>
void for_row_tasks(const ExecContext& ctx, int64_t num_rows, int64_t width, Columns&& columns) {
  if (width == 0) return;
  const int64_t pieces = ceil_div(width, kTaskColumns);
  const int64_t piece_width = std::min(width, kTaskColumns);
  const int64_t grain = ceil_div(kElementsPerChunk, piece_width);
  parallel_for(ctx, num_rows * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % pieces * kTaskColumns;
      columns(i / pieces, first, std::min(first + kTaskColumns, width));
    }
  });
}

}  // namespace heddle::cpu
