#include "ops/lora/fused/general_kernel_cuda.h"

namespace heddle::cuda::lora {

template <>
void launch_fused_general<half>(const FusedGeneralParams& p, int num_blocks, int num_windows,
                                int device, cudaStream_t stream) {
  launch_general<__half>(p, num_blocks, num_windows, device, stream);
}

}  // namespace heddle::cuda::lora
