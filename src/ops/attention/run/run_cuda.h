#pragma once

#include "ops/attention/call/attention_args.h"

namespace heddle::cuda::attention {

/// A checked call of batch_prefill or batch_decode on a GPU; errors call it `op`. Throws
/// kUnsupported for dtypes that the kernels do not take.
void run(const ExecContext& ctx, const char* op, const AttentionArgs& args);

/// See heddle::batch_decode_workspace_bytes.
[[nodiscard]] size_t decode_workspace_bytes(Device device, int64_t num_seqs, int64_t num_q_heads,
                                            int64_t head_dim);

}  // namespace heddle::cuda::attention
