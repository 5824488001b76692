#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/ops/activation.h"

#include "core/scoped_operation.h"
#include "ops/activation/silu_and_mul_kernels.h"

namespace heddle {

void silu_and_mul(const ExecContext& ctx, TensorView y, ConstTensorView gate, ConstTensorView up) {
  const GatedParams p = pack_gated(ctx, y, gate, up);
  if (ctx.device.type == DeviceType::kCpu) {
    for_gated_tasks(ctx, p, [&](int64_t row, int64_t begin, int64_t end) {
      cpu::activation::silu_and_mul(p, row, begin, end);
    });
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("silu_and_mul");
    cuda::activation::silu_and_mul(ctx, p);
  } else {
    throw_error(ErrorCode::kUnsupported, "silu_and_mul: built without CUDA");
  }
}

}  // namespace heddle
