#include "ops/linear_site/decode/launch_sm90.h"

namespace heddle::cuda::linear_site {

template <>
void launch_decode<bfloat16>(const DecodeParams& p, const SiteKernel& kernel, int device,
                             cudaStream_t stream) {
  launch<__nv_bfloat16>(p, kernel, device, stream);
}

}  // namespace heddle::cuda::linear_site
