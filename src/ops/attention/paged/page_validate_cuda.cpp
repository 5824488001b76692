#include "cuda/copies/host_copies.h"

#include "ops/attention/paged/page_validate.h"

namespace heddle::cuda::attention {

void validate_tables(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
                     int64_t num_seqs, const char* token_indptr_name,
                     const ConstTensorView& token_indptr, int64_t num_tokens,
                     const AttentionOptions& options) {
  if (is_captured(ctx.stream)) return;
  HostCopies copy(ctx.stream);
  const PageTable on_host{copy(table.page_indptr), copy(table.pages), copy(table.last_page_len)};
  const ConstTensorView starts = copy(token_indptr), masks = copy(options.tree_mask_indptr);
  copy.wait();
  check_page_lengths(cache, on_host, num_seqs);
  validate_pages(cache, on_host, num_seqs);
  if (starts) {
    check_token_starts(token_indptr_name, cpu::IndexArray(starts), num_seqs, num_tokens);
  }
  if (masks) {
    check_tree_mask_indptr(cpu::IndexArray(masks), cpu::IndexArray(starts), num_seqs,
                           options.tree_mask.size(0));
  }
}

}  // namespace heddle::cuda::attention
