#pragma once

#include "heddle/ops/attention.h"

#include "ops/attention/cpu/attention_kernels.h"

namespace heddle {

/// A checked call of batch_prefill, or of batch_decode where q_indptr is absent, on a GPU. Throws kUnsupported for dtypes that the
/// kernels do not take and in a build without CUDA.
void attend_on_cuda(const ExecContext& ctx, const char* op,
                    const cpu::attention::AttentionParams& params, const PagedKv& cache,
                    const PageTable& table, const AttentionOptions& options, int64_t num_tokens,
                    int64_t num_seqs, const ConstTensorView& q_indptr);

}  // namespace heddle
