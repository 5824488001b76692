#pragma once

#include <algorithm>

#include "heddle/ops/activation.h"

#include "ops/activation/test/gated_test_body.h"
#include "ops/activation/test/silu_and_mul_ref.h"

namespace heddle::testing {

inline GatedOp silu_op() {
  return {.run = [](const ExecContext& ctx, TensorView y, ConstTensorView gate,
                    ConstTensorView up) { silu_and_mul(ctx, y, gate, up); },
          .want = ref::silu_and_mul,
          .exponent = [](double gate) { return std::max(0.0, -gate); }};
}

}  // namespace heddle::testing
