#pragma once

#include <cstdint>

#include "heddle/ops/lora.h"

#include "cpu/index_array.h"

namespace heddle {

/// Where the segments of a batch end, which says so or gives their lengths.
class SegmentEnds {
 public:
  explicit SegmentEnds(const LoraBatch& batch)
      : starts_(batch.seg_starts),
        stops_(batch.seg_lens ? batch.seg_lens : batch.seg_ends),
        has_lengths_(batch.seg_lens) {}

  /// Behind the last row of segment s. A sum that 64 bits do not hold wraps, as on a GPU.
  [[nodiscard]] int64_t operator[](int64_t s) const {
    const int64_t stop = stops_[s];
    return !has_lengths_ ? stop
                         : static_cast<int64_t>(static_cast<uint64_t>(starts_[s]) +
                                                static_cast<uint64_t>(stop));
  }
  /// How errors begin to name an end.
  [[nodiscard]] const char* name() const {
    return has_lengths_ ? "seg_starts + seg_lens[" : "seg_ends[";
  }

 private:
  cpu::IndexArray starts_, stops_;
  bool has_lengths_;
};

}  // namespace heddle
