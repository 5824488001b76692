#include "ops/sampling/take/take_drawn_tokens.h"

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/ops/sampling.h"

#include "core/scoped_operation.h"

namespace heddle {

void take_drawn_tokens(const ExecContext& ctx, TensorView token_ids, ConstTensorView drawn,
                       ConstTensorView sources) {
  Dim tokens("num_tokens"), all("num_drawn");
  check_shape("token_ids", token_ids, {&tokens});
  check_shape("sources", sources, {&tokens});
  check_shape("drawn", drawn, {&all});
  check_dtype("token_ids", token_ids, {DType::kInt32});
  check_dtype("sources", sources, {DType::kInt32});
  check_dtype("drawn", drawn, {DType::kInt32});
  check_unit_stride("token_ids", token_ids);
  check_unit_stride("sources", sources);
  check_unit_stride("drawn", drawn);
  check_device(ctx, {{"token_ids", token_ids}, {"drawn", drawn}, {"sources", sources}});
  const DrawnTokenParams p{.token_ids = token_ids.data<int32_t>(),
                           .drawn = drawn.data<int32_t>(),
                           .sources = sources.data<int32_t>(),
                           .num_tokens = tokens.value(),
                           .num_drawn = all.value()};
  if (ctx.device.type == DeviceType::kCpu) {
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      const int32_t source = p.sources[t];
      if (source >= 0 && source < p.num_drawn) p.token_ids[t] = p.drawn[source];
    }
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("take_drawn_tokens");
    cuda::sampling::take_drawn_tokens(ctx, p);
  } else {
    throw_error(ErrorCode::kUnsupported, "take_drawn_tokens: built without CUDA");
  }
}

}  // namespace heddle
