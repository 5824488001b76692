#include "ops/attention/paged/page_validate.h"

#include "cpu/validate_indices.h"
#include "ops/attention/cpu/attention_kernels.h"

namespace heddle {
namespace {

constexpr int64_t kPageAlignment = 16;  // bytes, of pages with addresses on CUDA

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

void validate_pages(const PagedKv& cache, const PageTable& table, int64_t num_seqs) {
  const cpu::IndexArray page_indptr(table.page_indptr), pages(table.pages);
  for (int64_t seq = 0; seq < num_seqs; ++seq) {
    for (int64_t i = page_indptr[seq]; i < page_indptr[seq + 1]; ++i) {
      if (cache.pool != nullptr) {
        cpu::check_index("pages", i, pages[i], 0, cache.num_pages, "num_pages");
        continue;
      }
      HEDDLE_CHECK(pages[i] != 0, "pages[", i, "] is null, but sequence ", seq, " uses it");
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

}  // namespace heddle
