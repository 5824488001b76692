#pragma once

#include <vector>

#include "ops/linear_site/test/linear_site_test_body.h"

namespace heddle::testing {

inline constexpr WeightType kBlockTypes[] = {
    WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0,
    WeightType::kQ5_1, WeightType::kQ4K,  WeightType::kQ5K,  WeightType::kQ6K,
};

/// Features of whole blocks, up to `most`.
inline int64_t random_features(WeightType type, int64_t most) {
  return block_size(type) * random_int(1, most / block_size(type));
}

/// A site whose slices have packed weights of one format, of several, or dense ones among them.
inline SiteShape random_packed_shape(WeightType type, int64_t rows) {
  SiteShape s;
  s.rows = rows;
  s.in = random_features(type, small_or<int64_t>(512, 1536));
  const int64_t num = random_int(1, 6);
  for (int64_t i = 0; i < num; ++i) {
    s.outs.push_back(random_int(1, small_or<int64_t>(60, 400)));
    s.formats.push_back(pick({type, type, s.in % 256 == 0 ? WeightType::kQ6K : type,
                              random_int(0, 3) == 0 ? WeightType::kF32 : WeightType::kQ4_0}));
  }
  s.formats[0] = type;
  s.is_regular = random_int(0, 3) > 0;
  s.max_rank = pick({0, 0, 16});
  s.has_float_y = random_int(0, 1) == 0;
  s.has_bias = random_int(0, 1) == 0;
  return s;
}

}  // namespace heddle::testing
