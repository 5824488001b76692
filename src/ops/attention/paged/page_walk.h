#pragma once

#include "heddle/ops/kv_cache.h"

#include "cpu/index_array.h"

namespace heddle::cpu::attention {

/// The cache of a checked call on the CPU, walked by sequence and position. Both are the caller's.
class PageWalk {
 public:
  PageWalk(const PagedKv& cache, const PageTable& table);

  [[nodiscard]] int64_t kv_len(int64_t seq) const;

  /// rows[i] = address of the key at position first + i of sequence seq, for i < count.
  void key_rows(int64_t seq, int64_t kv_head, int64_t first, int64_t count, std::byte** rows) const;
  /// scales[i] = address of the scale of such a key, in a cache of f8e4m3. A scale of the whole
  /// cache has one address for all keys.
  void key_scales(int64_t seq, int64_t kv_head, int64_t first, int64_t count, float** scales) const;

  /// Bytes from a key to the value of the same position and head, and between the heads of a
  /// position.
  [[nodiscard]] int64_t value_distance() const { return elements_.value; }
  [[nodiscard]] int64_t head_distance() const { return elements_.head; }
  /// Floats, of scales.
  [[nodiscard]] int64_t value_scale_distance() const {
    return scales_.value / int64_t{sizeof(float)};
  }
  [[nodiscard]] int64_t head_scale_distance() const {
    return scales_.head / int64_t{sizeof(float)};
  }

 private:
  /// Where elements or scales lie. Distances are bytes; key: from a page's address to its first.
  struct Places {
    std::byte* pool;  // nullptr: pages have addresses
    int64_t page, key, value, head, slot;
  };
  static Places scales_of(const PagedKv& cache);
  /// each(i, address) for the positions first + i.
  template <class Each>
  void walk(const Places& of, int64_t seq, int64_t kv_head, int64_t first, int64_t count,
            const Each& each) const;

  IndexArray page_indptr_, pages_, last_page_len_;
  int64_t page_size_;
  Places elements_, scales_;
};

}  // namespace heddle::cpu::attention
