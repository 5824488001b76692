#include "ops/attention/decode/kernel_cuda.h"

namespace heddle::cuda::attention::decode {

template void launch_instance<half, 128, 4>(const DecodeLaunchParams&, int, const AttentionLaunch&);

}  // namespace heddle::cuda::attention::decode
