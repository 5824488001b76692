#include "ops/linear_site/prompt/launch_sm90.h"

namespace heddle::cuda::linear_site {

template <>
void launch_prompt<half>(const PromptParams& p, const PromptKernel& kernel, int device,
                         cudaStream_t stream) {
  launch_tiles<__half>(p, kernel, device, stream);
}

}  // namespace heddle::cuda::linear_site
