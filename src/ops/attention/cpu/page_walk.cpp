#include "ops/attention/cpu/page_walk.h"

#include <algorithm>

#include "heddle/core/validate.h"

#include "ops/attention/paged/page_validate.h"

namespace heddle {
void check_paged_kv(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
                    Dim& num_seqs) {
  HEDDLE_CHECK(cache.device == ctx.device, "cache is on ", cache.device, ", the context runs on ",
               ctx.device);
  if (cache.dtype != DType::kFloat32 && cache.dtype != DType::kFloat16 &&
      cache.dtype != DType::kBFloat16) {
    throw_error(ErrorCode::kUnsupported, "cache is ", cache.dtype, ", supported: f32, f16, bf16");
  }
  HEDDLE_CHECK(cache.num_kv_heads >= 1 && cache.page_size >= 1 && cache.head_dim >= 1,
               "cache has num_kv_heads ", cache.num_kv_heads, ", page_size ", cache.page_size,
               ", head_dim ", cache.head_dim, ", expected at least 1 each");
  check_shape("last_page_len", table.last_page_len, {&num_seqs});
  Dim indptr_size("num_seqs + 1", num_seqs.value() + 1), num_pages("num pages");
  check_shape("page_indptr", table.page_indptr, {&indptr_size});
  check_shape("pages", table.pages, {&num_pages});
  check_dtype("last_page_len", table.last_page_len, {DType::kInt32, DType::kInt64});
  check_dtype("page_indptr", table.page_indptr, {DType::kInt32, DType::kInt64});
  if (cache.pool == nullptr) {
    check_dtype("pages (addresses)", table.pages, {DType::kInt64});
  } else {
    check_dtype("pages", table.pages, {DType::kInt32, DType::kInt64});
  }
  check_device(ctx, {{"last_page_len", table.last_page_len},
                     {"page_indptr", table.page_indptr},
                     {"pages", table.pages}});
  if (ctx.device.type != DeviceType::kCpu) return;  // what follows reads the table

  check_page_lengths(cache, table, num_seqs.value());
  if (validating()) validate_pages(cache, table, num_seqs.value());
}

void check_token_indptr(const char* name, const ExecContext& ctx, const ConstTensorView& indptr,
                        const Dim& num_seqs, const Dim& num_tokens) {
  Dim size("num_seqs + 1", num_seqs.value() + 1);
  check_shape(name, indptr, {&size});
  check_dtype(name, indptr, {DType::kInt32, DType::kInt64});
  check_device(ctx, {{name, indptr}});
  if (ctx.device.type != DeviceType::kCpu) return;
  check_token_starts(name, cpu::IndexArray(indptr), num_seqs.value(), num_tokens.value());
}

PageWalk::PageWalk(const PagedKv& cache, const PageTable& table)
    : page_indptr_(table.page_indptr),
      pages_(table.pages),
      last_page_len_(table.last_page_len),
      pool_(cache.pool),
      page_size_(cache.page_size) {
  const auto element = static_cast<int64_t>(size_of(cache.dtype));
  page_distance_ = cache.page_stride * element;
  key_offset_ = cache.k_offset * element;
  value_distance_ = (cache.v_offset - cache.k_offset) * element;
  head_distance_ = cache.head_stride * element;
  slot_distance_ = cache.slot_stride * element;
}

int64_t PageWalk::kv_len(int64_t seq) const {
  const int64_t num_pages = page_indptr_[seq + 1] - page_indptr_[seq];
  return num_pages == 0 ? 0 : (num_pages - 1) * page_size_ + last_page_len_[seq];
}

std::byte* PageWalk::page_address(int64_t index) const {
  const int64_t page = pages_[index];
  return pool_ != nullptr ? pool_ + page * page_distance_ : reinterpret_cast<std::byte*>(page);
}

void PageWalk::key_rows(int64_t seq, int64_t kv_head, int64_t first, int64_t count,
                        std::byte** rows) const {
  int64_t page = page_indptr_[seq] + first / page_size_, slot = first % page_size_;
  for (int64_t i = 0; i < count; ++page, slot = 0) {
    std::byte* row =
        page_address(page) + key_offset_ + kv_head * head_distance_ + slot * slot_distance_;
    for (const int64_t end = std::min(count, i + page_size_ - slot); i < end; ++i) {
      rows[i] = row;
      row += slot_distance_;
    }
  }
}

}  // namespace heddle
