#include "ops/attention/paged/page_validate.h"

#include <algorithm>

#include "heddle/core/validate.h"

#include "cpu/validate_indices.h"
#include "ops/attention/paged/tree_masks.h"

namespace heddle {
namespace {

constexpr int64_t kPageAlignment = 16;  // bytes, of pages with addresses on CUDA
constexpr int64_t kScaleBytes = sizeof(float);
constexpr float kMaxScale = 1e36f;  // of a whole cache: kernels may multiply it by 256

/// Whether scales lie between the codes of the pages.
bool has_scales_in_pages(const PagedKv& cache) {
  return cache.has_token_scales && cache.scale_pool == nullptr;
}

/// Entry i of the table, which sequence seq uses.
void check_page(const PagedKv& cache, int64_t seq, int64_t i, int64_t page) {
  if (cache.pool != nullptr) {
    cpu::check_index("pages", i, page, 0, cache.num_pages, "num_pages");
  } else {
    HEDDLE_CHECK(page != 0, "pages[", i, "] is null, but sequence ", seq, " uses it");
    HEDDLE_CHECK(page > 0, "pages[", i, "] is ", page, ", expected an address");
    HEDDLE_CHECK(!has_scales_in_pages(cache) || page % kScaleBytes == 0, "pages[", i, "] is ", page,
                 ", expected a multiple of ", kScaleBytes, " where scales lie in the page");
  }
}

}  // namespace

void check_page_lengths(const PagedKv& cache, const PageTable& table, int64_t num_seqs) {
  const cpu::IndexArray page_indptr(table.page_indptr), last_page_len(table.last_page_len);
  const int64_t num_pages = table.pages.size(0);
  HEDDLE_CHECK(page_indptr[0] >= 0, "page_indptr[0] is ", page_indptr[0], ", expected 0");
  for (int64_t i = 0; i < num_seqs; ++i) {
    const int64_t begin = page_indptr[i], end = page_indptr[i + 1];
    HEDDLE_CHECK(begin <= end && end <= num_pages, "page_indptr[", i + 1, "] is ", end,
                 ", expected at least page_indptr[", i, "] = ", begin,
                 " and at most num pages = ", num_pages);
    if (begin == end) continue;
    HEDDLE_CHECK(1 <= last_page_len[i] && last_page_len[i] <= cache.page_size, "last_page_len[", i,
                 "] is ", last_page_len[i], ", expected 1 to page_size = ", cache.page_size);
  }
}

void check_used_pages(const PagedKv& cache, const PageTable& table, int64_t num_seqs,
                      const std::optional<cpu::IndexArray>& starts, int64_t window_left) {
  const cpu::IndexArray page_indptr(table.page_indptr), pages(table.pages);
  const cpu::IndexArray last_page_len(table.last_page_len);
  for (int64_t seq = 0; seq < num_seqs; ++seq) {
    const int64_t begin = page_indptr[seq], end = page_indptr[seq + 1];
    const int64_t new_tokens = starts ? (*starts)[seq + 1] - (*starts)[seq] : 1;
    if (begin == end || new_tokens == 0) continue;
    int64_t first = 0;  // position
    if (window_left >= 0) {
      const int64_t kv_len = (end - begin - 1) * cache.page_size + last_page_len[seq];
      first = std::max<int64_t>(kv_len - new_tokens - std::min(window_left, kv_len), 0);
    }
    for (int64_t i = begin + first / cache.page_size; i < end; ++i) {
      check_page(cache, seq, i, pages[i]);
    }
  }
}

void validate_pages(const PagedKv& cache, const PageTable& table, int64_t num_seqs) {
  const cpu::IndexArray page_indptr(table.page_indptr), pages(table.pages);
  for (int64_t seq = 0; seq < num_seqs; ++seq) {
    for (int64_t i = page_indptr[seq]; i < page_indptr[seq + 1]; ++i) {
      check_page(cache, seq, i, pages[i]);
      if (cache.pool != nullptr) continue;
      HEDDLE_CHECK(cache.device.type == DeviceType::kCpu || pages[i] % kPageAlignment == 0,
                   "pages[", i, "] is ", pages[i], ", expected a multiple of ", kPageAlignment);
    }
  }
}

void check_token_starts(const char* name, const cpu::IndexArray& begin, int64_t num_seqs,
                        int64_t num_tokens) {
  HEDDLE_CHECK(begin[0] >= 0, name, "[0] is ", begin[0], ", expected at least 0");
  for (int64_t i = 0; i < num_seqs; ++i) {
    HEDDLE_CHECK(begin[i] <= begin[i + 1] && begin[i + 1] <= num_tokens, name, "[", i + 1, "] is ",
                 begin[i + 1], ", expected at least ", name, "[", i, "] = ", begin[i],
                 " and at most num_tokens = ", num_tokens);
  }
}

void check_tree_mask_indptr(const cpu::IndexArray& begin, const cpu::IndexArray& q_indptr,
                            int64_t num_seqs, int64_t num_words) {
  HEDDLE_CHECK(begin[0] >= 0, "options.tree_mask_indptr[0] is ", begin[0], ", expected at least 0");
  for (int64_t i = 0; i < num_seqs; ++i) {
    const int64_t words = begin[i + 1] - begin[i], q_len = q_indptr[i + 1] - q_indptr[i];
    HEDDLE_CHECK(words == 0 || words == q_len * tree_mask_words(q_len),
                 "options.tree_mask_indptr gives sequence ", i, " ", words,
                 " words, expected 0 or ", q_len * tree_mask_words(q_len), " for its ", q_len,
                 " queries");
    HEDDLE_CHECK(begin[i + 1] <= num_words, "options.tree_mask_indptr[", i + 1, "] is ",
                 begin[i + 1], ", expected at most num words = ", num_words);
  }
}

void check_kv_scales(const PagedKv& cache) {
  if (cache.dtype != DType::kFloat8E4M3) {
    HEDDLE_CHECK(!cache.has_token_scales && cache.k_scale == 1.0f && cache.v_scale == 1.0f,
                 "cache is ", cache.dtype, ", but has scales, which belong to f8e4m3");
    return;
  }
  if (!cache.has_token_scales) {
    const auto is_scale = [](float x) { return x > 0.0f && x <= kMaxScale; };
    HEDDLE_CHECK(is_scale(cache.k_scale) && is_scale(cache.v_scale), "cache has k_scale ",
                 cache.k_scale, " and v_scale ", cache.v_scale, ", expected above 0, up to ",
                 kMaxScale);
    return;
  }
  const bool has_address = cache.scale_pool != nullptr;
  HEDDLE_CHECK(
      !has_address || cache.pool != nullptr,
      "cache has a scale_pool, but its pages have addresses: expected scales in the pages");
  HEDDLE_CHECK((cache.page_size == 1 || cache.scale_slot_stride != 0) &&
                   (cache.num_kv_heads == 1 || cache.scale_head_stride != 0) &&
                   (!has_address || cache.num_pages <= 1 || cache.scale_page_stride != 0),
               "cache has scales with strides of 0, expected one for each token and head, or two "
               "numbers for all");
  const auto begin = reinterpret_cast<intptr_t>(has_address ? cache.scale_pool : nullptr);
  HEDDLE_CHECK(begin % kScaleBytes == 0, "scales begin at address ", begin,
               ", expected a multiple of ", kScaleBytes);
  if (has_address || cache.pool == nullptr) return;
  HEDDLE_CHECK(reinterpret_cast<intptr_t>(cache.pool) % kScaleBytes == 0 &&
                   cache.page_stride % kScaleBytes == 0,
               "pages with scales begin at address ", reinterpret_cast<intptr_t>(cache.pool),
               " and are ", cache.page_stride, " bytes apart, expected multiples of ", kScaleBytes);
}

void check_paged_kv(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
                    Dim& num_seqs) {
  HEDDLE_CHECK(cache.device == ctx.device, "cache is on ", cache.device, ", the context runs on ",
               ctx.device);
  if (cache.dtype != DType::kFloat32 && cache.dtype != DType::kFloat16 &&
      cache.dtype != DType::kBFloat16 && cache.dtype != DType::kFloat8E4M3) {
    throw_error(ErrorCode::kUnsupported, "cache is ", cache.dtype,
                ", supported: f32, f16, bf16, f8e4m3");
  }
  HEDDLE_CHECK(cache.num_kv_heads >= 1 && cache.page_size >= 1 && cache.head_dim >= 1,
               "cache has num_kv_heads ", cache.num_kv_heads, ", page_size ", cache.page_size,
               ", head_dim ", cache.head_dim, ", expected at least 1 each");
  check_kv_scales(cache);
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

}  // namespace heddle
