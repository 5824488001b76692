#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/speculation.h"

#include "core/scoped_operation.h"
#include "ops/speculation/call/verify_speculative_tokens_kernels.h"
#include "ops/speculation/shared/check_speculation.h"

namespace heddle {

void verify_speculative_tokens(const ExecContext& ctx, TensorView last_one_indices,
                               TensorView accepted_tokens_mask, ConstTensorView input_tokens,
                               ConstTensorView output_tokens, const Count& num_decode_requests,
                               const Count& num_prefill_requests, const Drafts& drafts) {
  check_has_kernels(ctx, "verify_speculative_tokens");
  const ConstTensorView input = token_row("input_tokens", input_tokens);
  const ConstTensorView output = token_row("output_tokens", output_tokens);
  const TensorView mask = token_row("accepted_tokens_mask", accepted_tokens_mask);
  Dim tokens("num_tokens", input.size(0));
  check_index_rows(ctx, "input_tokens", input, tokens);
  check_index_rows(ctx, "output_tokens", output, tokens);
  check_mask_rows(ctx, "accepted_tokens_mask", mask, tokens);
  check_shape("accepted_tokens_mask", mask, {&tokens});
  check_index_rows(ctx, "last_one_indices", last_one_indices, Dim("num_rows", 0));
  const int64_t num_rows = last_one_indices.size(0);
  check_requests(ctx, num_decode_requests, num_prefill_requests, drafts, num_rows, input.size(0));

  const VerifyParams params{
      .last_one_indices = cpu::MutableIndexArray(last_one_indices),
      .accepted_tokens_mask = MutableMaskArray(mask),
      .input_tokens = cpu::IndexArray(input),
      .output_tokens = cpu::IndexArray(output),
      .layout = DraftLayout(drafts, input.size(0)),
      .num_decode = cpu::CountReader(num_decode_requests, num_rows),
      .num_prefill = cpu::CountReader(num_prefill_requests, num_rows),
      .num_rows = num_rows,
  };
  if (validating()) {
    struct Requests {
      Count num_decode, num_prefill;
      Drafts drafts;
    };
    check_on_host(
        ctx,
        [&](auto& host) {
          return Requests{host(num_decode_requests), host(num_prefill_requests),
                          drafts_on_host(host, drafts)};
        },
        [&](const Requests& r) {
          validate_requests(cpu::CountReader(r.num_decode, num_rows),
                            cpu::CountReader(r.num_prefill, num_rows), r.drafts, input.size(0));
        });
  }
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::speculation::verify_speculative_tokens(ctx, params);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("verify_speculative_tokens");
    cuda::speculation::verify_speculative_tokens(ctx, params);
  }
}

}  // namespace heddle
