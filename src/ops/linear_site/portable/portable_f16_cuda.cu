#include "ops/linear_site/portable/portable_launch_cuda.h"

namespace heddle::cuda::linear_site {

template <>
void launch_portable<half>(const PortableDecodeParams& p, const PortableKernel& kernel, int device,
                           cudaStream_t stream) {
  launch_rows<__half>(p, kernel, device, stream);
}

template <>
void launch_portable<half>(const PortablePromptParams& p, const PortableKernel& kernel, int device,
                           cudaStream_t stream) {
  launch_rows<__half>(p, kernel, device, stream);
}

}  // namespace heddle::cuda::linear_site
