#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/speculation.h"

#include "core/scoped_operation.h"
#include "ops/speculation/call/speculative_step_kernels.h"
#include "ops/speculation/shared/check_speculation.h"
#include "ops/speculation/shared/validate_blocks.h"

namespace heddle {
namespace {

/// The outputs of prepare_next_forward_pass and of the next step.
void check_next(const ExecContext& ctx, const SpeculativeStepOutputs& outputs, const Dim& rows,
                const Drafts& drafts, int64_t num_next_tokens) {
  HEDDLE_CHECK(num_next_tokens >= 1, "num_next_tokens is ", num_next_tokens,
               ", expected at least 1");
  const auto check_rows = [&](const char* tensor, const TensorView& t) {
    if (t) check_index_rows(ctx, tensor, t, rows);
  };
  const auto check_table = [&](const char* tensor, const TensorView& t, const Dim& columns) {
    if (t) check_index_table(ctx, tensor, t, rows, columns);
  };
  check_rows("last_one_indices", outputs.last_one_indices);
  check_rows("sampled_tokens", outputs.sampled_tokens);
  check_rows("last_accepted_seq", outputs.last_accepted_seq);
  check_rows("accepted_counts", outputs.accepted_counts);
  check_table("accepted_tokens", outputs.accepted_tokens,
              Dim("num_speculative_tokens", drafts.num_speculative_tokens));
  const Dim next_tokens("num_next_tokens", num_next_tokens);
  check_table("next_positions", outputs.next_positions, next_tokens);
  check_table("next_slots", outputs.next_slots, next_tokens);
  check_rows("next_kv_lens", outputs.next_kv_lens);
  check_rows("next_last_page_len", outputs.next_last_page_len);
}

/// What the requests verify; the outputs are the caller's to add.
VerifyParams make_verify(const ConstTensorView& input, const ConstTensorView& output,
                         const Count& num_decode, const Count& num_prefill, const Drafts& drafts,
                         int64_t num_requests) {
  return {.last_one_indices = {},
          .accepted_tokens_mask = {},
          .input_tokens = cpu::IndexArray(input),
          .output_tokens = cpu::IndexArray(output),
          .layout = DraftLayout(drafts, input.size(0)),
          .num_decode = cpu::CountReader(num_decode, num_requests),
          .num_prefill = cpu::CountReader(num_prefill, num_requests),
          .num_rows = num_requests};
}

/// What is to be validated, in host memory. The verification stores nothing: it says what would be
/// accepted.
struct Requests {
  VerifyParams verify;
  KvBlocks kv;
  Drafts drafts;
};

void validate(const Requests& requests) {
  const auto& [verify, kv, drafts] = requests;
  validate_requests(verify.num_decode, verify.num_prefill, drafts, verify.layout.num_tokens());
  const int64_t num_decode = verify.num_decode.read();
  for (int64_t p = 0; p < verify.num_active(num_decode); ++p) {
    const TokenRange range = verify.layout.tokens(p, num_decode);
    const int64_t num_accepted = verify_request(verify, range) - range.begin;
    validate_blocks(kv, p, p < num_decode ? verify.layout.drafts(p) - num_accepted : 0);
  }
}

}  // namespace

void speculative_step(const ExecContext& ctx, const SpeculativeStepOutputs& outputs,
                      const KvBlockState& state, ConstTensorView input_tokens,
                      ConstTensorView output_tokens, ConstTensorView required_logit_indices,
                      const Count& num_decode_requests, const Count& num_prefill_requests,
                      const Drafts& drafts, int64_t block_size_tokens,
                      const SpeculativeStepOptions& options) {
  check_has_kernels(ctx, "speculative_step");
  const ConstTensorView input = token_row("input_tokens", input_tokens);
  const ConstTensorView output = token_row("output_tokens", output_tokens);
  Dim tokens("num_tokens", input.size(0));
  check_index_rows(ctx, "input_tokens", input, tokens);
  check_index_rows(ctx, "output_tokens", output, tokens);
  MutableMaskArray mask_array;
  if (outputs.accepted_tokens_mask) {
    const TensorView mask = token_row("accepted_tokens_mask", outputs.accepted_tokens_mask);
    check_mask_rows(ctx, "accepted_tokens_mask", mask, tokens);
    check_shape("accepted_tokens_mask", mask, {&tokens});
    mask_array = MutableMaskArray(mask);
  }
  if (outputs.last_accepted_seq || required_logit_indices) {
    check_index_rows(ctx, "required_logit_indices", required_logit_indices, tokens);
  }
  HEDDLE_CHECK(state.kv_block_ids.rank() == 2, "kv_block_ids has rank ", state.kv_block_ids.rank(),
               ", expected 2");
  const Dim rows("num_requests", state.kv_block_ids.size(0));
  check_requests(ctx, num_decode_requests, num_prefill_requests, drafts, rows.value(),
                 input.size(0));
  check_rewind(ctx, outputs.released, state, block_size_tokens, rows);
  check_next(ctx, outputs, rows, drafts, options.num_next_tokens);

  if (validating()) {
    check_on_host(
        ctx,
        [&](auto& host) {
          const Drafts host_drafts = drafts_on_host(host, drafts);
          return Requests{make_verify(host(input), host(output), host(num_decode_requests),
                                      host(num_prefill_requests), host_drafts, rows.value()),
                          KvBlocks(state_on_host(host, state), block_size_tokens), host_drafts};
        },
        validate);
  }
  SpeculativeStepParams params{
      .verify = make_verify(input, output, num_decode_requests, num_prefill_requests, drafts,
                            rows.value()),
      .next = {cpu::MutableIndexArray(outputs.sampled_tokens),
               cpu::MutableIndexArray(outputs.last_accepted_seq),
               cpu::MutableIndexMatrix(outputs.accepted_tokens),
               cpu::MutableIndexArray(outputs.accepted_counts)},
      .required_logit_indices = cpu::IndexArray(required_logit_indices),
      .has_required_logit_indices = static_cast<bool>(required_logit_indices),
      .kv = KvBlocks(state, block_size_tokens),
      .releases = Releases(outputs.released),
      .next_step = {cpu::MutableIndexMatrix(outputs.next_positions),
                    cpu::MutableIndexMatrix(outputs.next_slots),
                    cpu::MutableIndexArray(outputs.next_kv_lens),
                    cpu::MutableIndexArray(outputs.next_last_page_len), options.num_next_tokens},
      .num_requests = rows.value(),
      .num_last_ones = outputs.last_one_indices ? outputs.last_one_indices.size(0) : 0,
      .write_prefill_rows = options.write_prefill_rows,
  };
  params.verify.last_one_indices = cpu::MutableIndexArray(outputs.last_one_indices);
  params.verify.accepted_tokens_mask = mask_array;
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::speculation::speculative_step(ctx, params);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("speculative_step");
    cuda::speculation::speculative_step(ctx, params);
  }
}

}  // namespace heddle
