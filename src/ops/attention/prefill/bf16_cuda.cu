#include "ops/attention/prefill/kernel_cuda.h"

namespace heddle::cuda::attention {

template <>
void launch_prefill_of<bfloat16>(const PrefillParams& p, const RotaryFrequencies* rope,
                                 const AttentionLaunch& launch) {
  prefill::run_call<__nv_bfloat16>(p, rope, launch);
}

}  // namespace heddle::cuda::attention
