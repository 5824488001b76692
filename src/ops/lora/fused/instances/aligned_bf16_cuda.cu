#include "ops/lora/fused/aligned_kernel_cuda.h"

namespace heddle::cuda::lora {

template <>
void launch_fused_aligned<bfloat16>(const FusedParams& p, const FusedLaunch& launch,
                                    cudaStream_t stream) {
  launch.is_aligned ? launch_aligned<__nv_bfloat16, true>(p, launch, stream)
                    : launch_aligned<__nv_bfloat16, false>(p, launch, stream);
}

}  // namespace heddle::cuda::lora
