#include "ops/linear_site/packed/packed_launch_cuda.h"

namespace heddle::cuda::linear_site {

template <>
void launch_packed<half>(const ExecContext& ctx, PackedParams p, WeightType type) {
  launch_packed_rows<__half>(ctx, p, type);
}

}  // namespace heddle::cuda::linear_site
