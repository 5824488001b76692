#include "ops/linear_site/packed/packed_launch_sm90.h"

namespace heddle::cuda::linear_site {

template <>
void launch_packed_sm90<bfloat16>(const ExecContext& ctx, const PackedParams& p, WeightType type) {
  launch_packed_tiles<__nv_bfloat16>(ctx, p, type);
}

}  // namespace heddle::cuda::linear_site
