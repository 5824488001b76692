#pragma once

#include <algorithm>

#include "heddle/ops/activation.h"

#include "ops/activation/test/gated_test_body.h"
#include "ops/activation/test/gelu_and_mul_ref.h"

namespace heddle::testing {

inline GatedOp gelu_op(GeluForm form) {
  return {.run = [form](const ExecContext& ctx, TensorView y, ConstTensorView gate,
                        ConstTensorView up) { gelu_and_mul(ctx, y, gate, up, form); },
          .want = [form](double gate, double up) { return ref::gelu_and_mul(form, gate, up); },
          .exponent =
              [form](double gate) {
                if (gate >= 0) return 0.0;
                return form == GeluForm::kErf ? gate * gate / 2 : ref::gelu_tanh_exponent(gate);
              }};
}

}  // namespace heddle::testing
