#pragma once

#include "ops/metadata/indices.h"

namespace heddle::cpu::metadata {

// Loops over consecutive elements; the caller has seen to the bounds. The case of one element, a
// decode step's, is inline.

void copy_long_run(const IndexList& to, int64_t at, const ConstIndexList& from, int64_t first,
                   int64_t n);
void count_long_run(const IndexList& to, int64_t at, int64_t n, int64_t first);
void fill_long_run(const IndexList& to, int64_t at, int64_t n, int64_t value);

/// to[at + i] = from[first + i],   i < n
inline void copy_run(const IndexList& to, int64_t at, const ConstIndexList& from, int64_t first,
                     int64_t n) {
  if (n == 1) {
    to.set(at, from[first]);
  } else if (n > 1) {
    copy_long_run(to, at, from, first, n);
  }
}

/// to[at + i] = first + i,   i < n
inline void count_run(const IndexList& to, int64_t at, int64_t n, int64_t first) {
  if (n == 1) {
    to.set(at, first);
  } else if (n > 1) {
    count_long_run(to, at, n, first);
  }
}

/// to[at + i] = value,   i < n
inline void fill_run(const IndexList& to, int64_t at, int64_t n, int64_t value) {
  if (n == 1) {
    to.set(at, value);
  } else if (n > 1) {
    fill_long_run(to, at, n, value);
  }
}

/// to[at + j] = from[offset + j] for the j of `range` that `from` has; the others are filled.
inline void copy_piece(const IndexList& to, int64_t at, const ConstIndexList& from, int64_t offset,
                       Range range, const Fill& fill) {
  Range copied = range.within(offset, from.size);
  if (copied.length() == 0) copied = {range.end, range.end};
  copy_run(to, at + copied.begin, from, offset + copied.begin, copied.length());
  if (!fill.on) return;
  fill_run(to, at + range.begin, copied.begin - range.begin, fill.value);
  fill_run(to, at + copied.end, range.end - copied.end, fill.value);
}

}  // namespace heddle::cpu::metadata
