#include "ops/linear_site/portable/portable_launch_cuda.h"

namespace heddle::cuda::linear_site {

template <>
void launch_portable<bfloat16>(const PortableDecodeParams& p, const PortableKernel& kernel,
                               int device, cudaStream_t stream) {
  launch_rows<__nv_bfloat16>(p, kernel, device, stream);
}

template <>
void launch_portable<bfloat16>(const PortablePromptParams& p, const PortableKernel& kernel,
                               int device, cudaStream_t stream) {
  launch_rows<__nv_bfloat16>(p, kernel, device, stream);
}

}  // namespace heddle::cuda::linear_site
