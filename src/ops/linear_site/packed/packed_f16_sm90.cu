#include "ops/linear_site/packed/packed_launch_sm90.h"

namespace heddle::cuda::linear_site {

template <>
void launch_packed_sm90<half>(const ExecContext& ctx, const PackedParams& p, WeightType type) {
  launch_packed_tiles<__half>(ctx, p, type);
}

}  // namespace heddle::cuda::linear_site
