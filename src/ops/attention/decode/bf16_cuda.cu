#include "ops/attention/decode/kernel_cuda.h"

namespace heddle::cuda::attention {

template <>
void launch_decode_of<bfloat16>(const DecodeParams& p, const RotaryFrequencies* rope,
                                const AttentionLaunch& launch) {
  decode::run_call<__nv_bfloat16>(p, rope, launch);
}

}  // namespace heddle::cuda::attention
