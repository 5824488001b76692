#include "ops/linear_site/prompt/launch_sm90.h"

namespace heddle::cuda::linear_site {

template <>
void launch_prompt<bfloat16>(const PromptParams& p, const PromptKernel& kernel, int device,
                             cudaStream_t stream) {
  launch_tiles<__nv_bfloat16>(p, kernel, device, stream);
}

}  // namespace heddle::cuda::linear_site
