#include "ops/lora/fused/general_kernel_cuda.h"

namespace heddle::cuda::lora {

template <>
void launch_fused_general<bfloat16>(const FusedGeneralParams& p, int num_blocks, int num_windows,
                                    int device, cudaStream_t stream) {
  launch_general<__nv_bfloat16>(p, num_blocks, num_windows, device, stream);
}

}  // namespace heddle::cuda::lora
