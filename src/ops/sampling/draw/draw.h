#pragma once

#include <cstdint>

#include "ops/sampling/draw/draw_kernels.h"

namespace heddle {

struct DrawOptions {
  float temperature;  // > 0
  int32_t top_k;
  float top_p, min_p;
  double u;  // in [0, 1)
};

/// Memory for the draw of one row.
struct DrawScratch {
  float* weights;  // [vocab_size]
  OrderKey* keys;  // [vocab_size]
};

/// The token that `sample` (heddle/ops/sampling.h) draws from a row whose largest logit is
/// `largest`, more than -infinity.
[[nodiscard]] int32_t draw_token(const LogitRow& row, float largest, const DrawOptions& options,
                                 const DrawScratch& scratch);

}  // namespace heddle
