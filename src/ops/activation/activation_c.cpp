#include "heddle/ops/activation.h"

#include "capi/convert.h"
#include "capi/guard.h"

using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::out;

heddle_status heddle_silu_and_mul(heddle_context* context, DLTensor* y, const DLTensor* gate,
                                  const DLTensor* up) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::silu_and_mul(ctx, out("y", y), in("gate", gate), in("up", up));
  });
}
