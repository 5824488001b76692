#include "ops/attention/decode/kernel_cuda.h"

namespace heddle::cuda::attention::decode {

template void launch_instance<bfloat16, 256, 1>(const DecodeLaunchParams&, int,
                                                const AttentionLaunch&);
template void launch_instance<bfloat16, 256, 1>(const RotatingDecodeParams&, int,
                                                const AttentionLaunch&);

}  // namespace heddle::cuda::attention::decode
