#pragma once

#include "heddle/ops/kv_cache.h"

#include "cpu/index_array.h"

namespace heddle::cpu::attention {

/// The cache of a checked call on the CPU, walked by sequence and position.
class PageWalk {
 public:
  PageWalk(const PagedKv& cache, const PageTable& table);

  [[nodiscard]] int64_t kv_len(int64_t seq) const;

  /// rows[i] = address of the key at position first + i of sequence seq, for i < count.
  void key_rows(int64_t seq, int64_t kv_head, int64_t first, int64_t count, std::byte** rows) const;

  /// Bytes from a key to the value of the same position and head, and between the heads of a
  /// position.
  [[nodiscard]] int64_t value_distance() const { return value_distance_; }
  [[nodiscard]] int64_t head_distance() const { return head_distance_; }

 private:
  [[nodiscard]] std::byte* page_address(int64_t index) const;

  IndexArray page_indptr_, pages_, last_page_len_;
  std::byte* pool_;
  int64_t page_size_;
  int64_t page_distance_, key_offset_, value_distance_, head_distance_, slot_distance_;  // bytes
};

}  // namespace heddle::cpu::attention
