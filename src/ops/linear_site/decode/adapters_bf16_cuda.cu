#include "ops/linear_site/decode/adapter_launch_cuda.h"

namespace heddle::cuda::linear_site {

template <>
void launch_shrink<bfloat16>(const ShrinkParams& p, int num_blocks, int device,
                             cudaStream_t stream) {
  run_shrink<__nv_bfloat16>(p, num_blocks, device, stream);
}

template <>
void launch_expand<bfloat16>(const ExpandParams& p, int device, cudaStream_t stream) {
  run_expand<__nv_bfloat16>(p, device, stream);
}

}  // namespace heddle::cuda::linear_site
