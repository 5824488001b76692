#pragma once

#include "ops/attention/call/attention_args.h"

namespace heddle::cpu::attention {

/// A checked call of batch_prefill or batch_decode on the CPU.
void run(const ExecContext& ctx, const AttentionArgs& args);

}  // namespace heddle::cpu::attention
