#pragma once

#include "heddle/core/context.h"

#include "ops/metadata/indices.h"

namespace heddle::cpu::metadata {

/// Elements that one task copies or counts up, some 10 us of work; less is not worth another
/// thread, so smaller batches run in the caller's thread.
inline constexpr int64_t kElementsPerTask = 65536;

/// Cuts the elements [begin, end) of a ragged array into pieces of single rows and calls piece(row,
/// range), range counted from the row's start(row). Balanced over elements: one long row is shared
/// among threads, many short ones make one task. start(row), row <= num_rows, ascends; if it does
/// not, some elements are met twice or never, but none outside [begin, end).
template <class Start, class Piece>
void for_each_piece(const ExecContext& ctx, int64_t num_rows, int64_t begin, int64_t end,
                    int64_t grain, const Start& start, const Piece& piece) {
  const auto cut = [&](int64_t task_begin, int64_t task_end) {
    const int64_t first = begin + task_begin, last = begin + task_end;
    int64_t row = 0;
    for (int64_t high = num_rows; high - row > 1;) {  // start(row) <= first < start(high)
      const int64_t middle = row + (high - row) / 2;
      (start(middle) <= first ? row : high) = middle;
    }
    for (int64_t from = start(row); row < num_rows && from < last; ++row) {
      const int64_t to = start(row + 1);
      const Range range{std::max(from, first) - from, std::min(to, last) - from};
      if (range.begin < range.end) piece(row, range);
      from = to;
    }
  };
  if (num_rows > 0) parallel_for(ctx, end - begin, grain, cut);
}

}  // namespace heddle::cpu::metadata
