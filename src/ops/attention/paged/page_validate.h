#pragma once

#include <optional>

#include "heddle/core/check.h"
#include "heddle/ops/attention.h"

#include "cpu/index_array.h"

namespace heddle {

/// Checks all that can be said of a cache and a page table without its pages; binds the number of
/// sequences.
void check_paged_kv(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
                    Dim& num_seqs);

/// The scales of a cache of f8e4m3, as far as its pages are not needed for it; a cache of another
/// dtype has none.
void check_kv_scales(const PagedKv& cache);

/// Checks q_indptr or seq_indptr [num_seqs + 1]: ascending, and within the rows [0, num_tokens)
/// that it cuts.
void check_token_indptr(const char* name, const ExecContext& ctx, const ConstTensorView& indptr,
                        const Dim& num_seqs, const Dim& num_tokens);

// What is checked of tables in host memory: always on the CPU, with HEDDLE_VALIDATE=1 also on CUDA,
// on copies.

/// Starts ascend and lie within the table, lengths within a page.
void check_page_lengths(const PagedKv& cache, const PageTable& table, int64_t num_seqs);
/// The pages that a call on the CPU reads or writes are those of the pool, or have addresses.
/// Sequence i has starts[i + 1] - starts[i] new tokens, without starts one. Nothing before the
/// window_left keys before them is used; -1: all keys are.
void check_used_pages(const PagedKv& cache, const PageTable& table, int64_t num_seqs,
                      const std::optional<cpu::IndexArray>& starts, int64_t window_left);
/// Checks every page that a sequence has, used or not, and that addresses are aligned for CUDA.
/// With HEDDLE_VALIDATE=1 alone.
void validate_pages(const PagedKv& cache, const PageTable& table, int64_t num_seqs);
/// q_indptr or seq_indptr [num_seqs + 1] ascends within [0, num_tokens].
void check_token_starts(const char* name, const cpu::IndexArray& begin, int64_t num_seqs,
                        int64_t num_tokens);
/// Each sequence has no mask or one of its size, within num_words.
void check_tree_mask_indptr(const cpu::IndexArray& begin, const cpu::IndexArray& q_indptr,
                            int64_t num_seqs, int64_t num_words);

namespace cuda::attention {

/// All of the above for tables on the device, which this waits for; nothing while the stream is
/// captured. token_indptr may be absent.
void validate_tables(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
                     int64_t num_seqs, const char* token_indptr_name,
                     const ConstTensorView& token_indptr, int64_t num_tokens,
                     const AttentionOptions& options = {});

}  // namespace cuda::attention
}  // namespace heddle
