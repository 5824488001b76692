#pragma once

#include "heddle/ops/linear.h"

namespace heddle::cuda::linear_site {

/// Calls f.template operator()<type>() for a type of quantised blocks; linear_site takes no dense
/// type packed.
template <class F>
void for_packed_format(WeightType type, F&& f) {
  switch (type) {
    case WeightType::kQ8_0: return f.template operator()<WeightType::kQ8_0>();
    case WeightType::kQ4_0: return f.template operator()<WeightType::kQ4_0>();
    case WeightType::kQ4_1: return f.template operator()<WeightType::kQ4_1>();
    case WeightType::kQ5_0: return f.template operator()<WeightType::kQ5_0>();
    case WeightType::kQ5_1: return f.template operator()<WeightType::kQ5_1>();
    case WeightType::kQ4K: return f.template operator()<WeightType::kQ4K>();
    case WeightType::kQ5K: return f.template operator()<WeightType::kQ5K>();
    case WeightType::kQ6K: return f.template operator()<WeightType::kQ6K>();
    default: return;
  }
}

}  // namespace heddle::cuda::linear_site
