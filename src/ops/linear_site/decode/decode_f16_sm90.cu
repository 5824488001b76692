#include "ops/linear_site/decode/launch_sm90.h"

namespace heddle::cuda::linear_site {

template <>
void launch_decode<half>(const DecodeParams& p, const SiteKernel& kernel, int device,
                         cudaStream_t stream) {
  launch<__half>(p, kernel, device, stream);
}

template <>
void launch_shrink<half>(const ShrinkParams& p, int num_blocks, int device, cudaStream_t stream) {
  run_shrink<__half>(p, num_blocks, device, stream);
}

template <>
void launch_expand<half>(const ExpandParams& p, int device, cudaStream_t stream) {
  run_expand<__half>(p, device, stream);
}

}  // namespace heddle::cuda::linear_site
