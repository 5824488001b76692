#include "heddle/ops/activation.h"

#include "capi/convert.h"
#include "capi/guard.h"

using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::out;

namespace {

heddle::GeluForm form_of(heddle_gelu_form form) {
  switch (form) {
    case HEDDLE_GELU_ERF: return heddle::GeluForm::kErf;
    case HEDDLE_GELU_TANH: return heddle::GeluForm::kTanh;
  }
  heddle::throw_error(heddle::ErrorCode::kInvalidArgument, "form is ", form,
                      ", expected HEDDLE_GELU_ERF or HEDDLE_GELU_TANH");
}

}  // namespace

heddle_status heddle_silu_and_mul(heddle_context* context, DLTensor* y, const DLTensor* gate,
                                  const DLTensor* up) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::silu_and_mul(ctx, out("y", y), in("gate", gate), in("up", up));
  });
}

heddle_status heddle_gelu_and_mul(heddle_context* context, DLTensor* y, const DLTensor* gate,
                                  const DLTensor* up, heddle_gelu_form form) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::gelu_and_mul(ctx, out("y", y), in("gate", gate), in("up", up), form_of(form));
  });
}
