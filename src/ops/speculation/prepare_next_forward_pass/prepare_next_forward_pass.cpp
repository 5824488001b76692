#include <algorithm>

#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/speculation.h"

#include "core/scoped_operation.h"
#include "cpu/validate_indices.h"
#include "ops/speculation/call/prepare_next_forward_pass_kernels.h"
#include "ops/speculation/shared/check_speculation.h"

namespace heddle {
namespace {

/// What is to be validated, in host memory.
struct Rows {
  Count num_decode;
  Drafts drafts;
  ConstTensorView last_one_indices;
};

void validate(const Rows& rows, int64_t num_tokens) {
  const cpu::CountReader num_decode(rows.num_decode, rows.last_one_indices.size(0));
  cpu::validate_count("num_decode_requests", num_decode, "the rows for requests");
  validate_drafts(rows.drafts, num_decode.read());
  cpu::check_indices("last_one_indices", rows.last_one_indices, -1, num_tokens, "num_tokens");
}

}  // namespace

void prepare_next_forward_pass(const ExecContext& ctx, TensorView sampled_tokens,
                               TensorView last_accepted_seq, TensorView accepted_tokens,
                               TensorView accepted_counts, ConstTensorView output_tokens,
                               ConstTensorView required_logit_indices,
                               ConstTensorView last_one_indices,
                               ConstTensorView accepted_tokens_mask, ConstTensorView input_tokens,
                               const Count& num_decode_requests, const Drafts& drafts,
                               const PrepareOptions& options) {
  check_has_kernels(ctx, "prepare_next_forward_pass");
  const ConstTensorView input = token_row("input_tokens", input_tokens);
  const ConstTensorView output = token_row("output_tokens", output_tokens);
  const ConstTensorView mask = token_row("accepted_tokens_mask", accepted_tokens_mask);
  Dim tokens("num_tokens", input.size(0));
  check_index_rows(ctx, "input_tokens", input, tokens);
  check_index_rows(ctx, "output_tokens", output, tokens);
  check_index_rows(ctx, "required_logit_indices", required_logit_indices, tokens);
  check_mask_rows(ctx, "accepted_tokens_mask", mask, tokens);
  check_shape("accepted_tokens_mask", mask, {&tokens});

  check_index_rows(ctx, "last_one_indices", last_one_indices, Dim("num_rows", 0));
  const Dim rows("num_rows", last_one_indices.size(0));
  check_count("num_decode_requests", ctx, num_decode_requests, rows.value());
  check_drafts(ctx, drafts, num_decode_requests);
  check_index_rows(ctx, "sampled_tokens", sampled_tokens, rows);
  check_index_rows(ctx, "last_accepted_seq", last_accepted_seq, rows);
  const bool drafted_alone = !num_decode_requests.on_device() && !options.write_prefill_rows;
  const Dim accepted_rows =
      drafted_alone ? Dim("num_decode_requests", num_decode_requests.value()) : rows;
  check_index_rows(ctx, "accepted_counts", accepted_counts, accepted_rows);
  check_index_table(ctx, "accepted_tokens", accepted_tokens, accepted_rows,
                    Dim("num_speculative_tokens", drafts.num_speculative_tokens));

  const PrepareParams params{
      .next = {cpu::MutableIndexArray(sampled_tokens), cpu::MutableIndexArray(last_accepted_seq),
               cpu::MutableIndexMatrix(accepted_tokens), cpu::MutableIndexArray(accepted_counts)},
      .output_tokens = cpu::IndexArray(output),
      .required_logit_indices = cpu::IndexArray(required_logit_indices),
      .last_one_indices = cpu::IndexArray(last_one_indices),
      .accepted_tokens_mask = MaskArray(mask),
      .input_tokens = cpu::IndexArray(input),
      .layout = DraftLayout(drafts, input.size(0)),
      .num_decode = cpu::CountReader(num_decode_requests, rows.value()),
      .num_rows = rows.value(),
      .num_accepted_rows =
          std::min({rows.value(), accepted_tokens.size(0), accepted_counts.size(0)}),
      .write_prefill_rows = options.write_prefill_rows,
  };
  if (validating()) {
    check_on_host(
        ctx,
        [&](auto& host) {
          return Rows{host(num_decode_requests), drafts_on_host(host, drafts),
                      host(last_one_indices)};
        },
        [&](const Rows& on_host) { validate(on_host, params.layout.num_tokens()); });
  }
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::speculation::prepare_next_forward_pass(ctx, params);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("prepare_next_forward_pass");
    cuda::speculation::prepare_next_forward_pass(ctx, params);
  }
}

}  // namespace heddle
