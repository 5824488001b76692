#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/divide.h"
#include "cuda/index.h"

#include "heddle/core/context.h"
#include "heddle/ops/kv_cache.h"

namespace heddle::cuda::attention {

/// A cache and a page table as kernels take them; paged_kv_cuda.h reads it. Steps are bytes. A
/// sequence has fewer than 2^31 tokens.
struct PagedKvParams {
  std::byte* pool =
      nullptr;  // nullptr with page_step 1 where the table holds addresses: one formula serves both
  int64_t page_step = 1;
  int64_t key_offset = 0;  // from a page's address to its first key (slot 0, head 0) of the layer
  int64_t value_distance = 0;  // from a key to its value
  int64_t head_step = 0, slot_step = 0;
  ConstIndexVector page_indptr, pages, last_page_len;
  FaultRecord* faults = nullptr;  // of the context
  uint32_t table_pages = 0;       // entries of the table
  uint32_t pool_pages = 0;        // where there is a pool
  int32_t page_size = 1;
  FastDivisor by_page_size;
  /// has_aligned_rows() of the cache. Where false, kernels read single elements.
  bool is_aligned = false;

  PagedKvParams() = default;
  /// is_aligned: has_aligned_rows(cache).
  PagedKvParams(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
                bool is_aligned);
};

/// The scales of a cache of f8e4m3 as kernels take them; steps are bytes. Those of page `id` begin
/// at pool + id * page_step + key_offset, one formula for scales in a pool of their own, in the
/// pages of a pool and in pages with addresses.
struct KvScaleParams {
  std::byte* pool = nullptr;
  int64_t page_step = 1;
  int64_t key_offset = 0;      // to the scale of the layer's first key
  int64_t value_distance = 0;  // from the scale of a key to that of its value
  int64_t head_step = 0, slot_step = 0;
  float k_scale = 1.0f, v_scale = 1.0f;  // of all tokens, where they have none of their own
  bool has_token_scales = false;

  KvScaleParams() = default;
  explicit KvScaleParams(const PagedKv& cache);
};

}  // namespace heddle::cuda::attention
