#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/tensor_view.h"
#include "heddle/ops/kv_cache.h"

namespace heddle::cuda::attention {

/// An i32 or i64 array as kernels take it, so not read on the host; data is null where it is
/// absent.
struct IndexParams {
  const std::byte* data = nullptr;
  int64_t stride = 0;  // elements
  bool is_int64 = false;

  IndexParams() = default;
  explicit IndexParams(const ConstTensorView& t) {
    if (!t) return;
    data = t.raw();
    stride = t.stride(0);
    is_int64 = t.dtype() == DType::kInt64;
  }
};

/// Division by a number d known on the host: n / d = (n * multiplier >> 32) >> shift, right for
/// every n and d in [1, 2^31). With 2^(s-1) < d <= 2^s the multiplier is ceil(2^(31+s) / d) < 2^32,
/// too large by less than 1, so the quotient errs by less than n / 2^(31+s) < 1 / d. For d = 1 the
/// multiplier is 0, which stands for n itself.
struct Divisor {
  uint32_t multiplier = 0, shift = 0;

  Divisor() = default;
  constexpr explicit Divisor(uint32_t d) {
    if (d == 1) return;
    uint32_t s = 1;
    while ((uint64_t{1} << s) < d) ++s;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << (31 + s)) + d - 1) / d);
    shift = s - 1;
  }
  /// The host's form of divide() in paged_kv_cuda.h.
  [[nodiscard]] constexpr uint32_t of(uint32_t n) const {
    return multiplier == 0 ? n : static_cast<uint32_t>(uint64_t{n} * multiplier >> 32) >> shift;
  }
};
static_assert(Divisor(1).of(2147483647) == 2147483647 && Divisor(7).of(2147483647) == 306783378);
static_assert(Divisor(16).of(31) == 1 && Divisor(16).of(32) == 2 &&
              Divisor(2147483647).of(2147483646) == 0);

/// A cache and a page table as kernels take them; paged_kv_cuda.h reads it. Steps are bytes. A
/// sequence has fewer than 2^31 tokens.
struct PagedKvParams {
  std::byte* pool =
      nullptr;  // nullptr with page_step 1 where the table holds addresses: one formula serves both
  int64_t page_step = 1;
  int64_t pool_pages = 0;  // 0 where the table holds addresses
  int64_t key_offset = 0;  // from a page's address to its first key (slot 0, head 0) of the layer
  int64_t value_distance = 0;  // from a key to its value
  int64_t head_step = 0, slot_step = 0;
  IndexParams page_indptr, pages, last_page_len;
  int32_t page_size = 1;
  Divisor by_page_size;
  /// has_aligned_rows() of the cache. Where false, kernels read single elements.
  bool is_aligned = false;

  PagedKvParams() = default;
  /// is_aligned: has_aligned_rows(cache).
  PagedKvParams(const PagedKv& cache, const PageTable& table, bool is_aligned);
};

}  // namespace heddle::cuda::attention
