#include "ops/attention/decode/kernel_cuda.h"

namespace heddle::cuda::attention {

template <>
void launch_decode_of<half>(const DecodeParams& p, const RotaryFrequencies* rope,
                            const AttentionLaunch& launch) {
  decode::run_call<__half>(p, rope, launch);
}

}  // namespace heddle::cuda::attention
