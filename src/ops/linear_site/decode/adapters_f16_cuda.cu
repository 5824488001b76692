#include "ops/linear_site/decode/adapter_launch_cuda.h"

namespace heddle::cuda::linear_site {

template <>
void launch_shrink<half>(const ShrinkParams& p, int num_blocks, int device, cudaStream_t stream) {
  run_shrink<__half>(p, num_blocks, device, stream);
}

template <>
void launch_expand<half>(const ExpandParams& p, int device, cudaStream_t stream) {
  run_expand<__half>(p, device, stream);
}

}  // namespace heddle::cuda::linear_site
