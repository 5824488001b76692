#include "ops/attention/decode/kernel_cuda.h"

namespace heddle::cuda::attention::decode {

template void launch_instance<float8_e4m3, 256, 1>(const CodeDecodeParams&, int,
                                                   const AttentionLaunch&);

}  // namespace heddle::cuda::attention::decode
