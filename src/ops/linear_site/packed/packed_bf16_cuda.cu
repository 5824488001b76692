#include "ops/linear_site/packed/packed_launch_cuda.h"

namespace heddle::cuda::linear_site {

template <>
void launch_packed<bfloat16>(const ExecContext& ctx, PackedParams p, WeightType type) {
  launch_packed_rows<__nv_bfloat16>(ctx, p, type);
}

}  // namespace heddle::cuda::linear_site
