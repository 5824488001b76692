#include "heddle/ops/sampling.h"

#include "capi/convert.h"
#include "capi/guard.h"

using heddle::capi::guard;
using heddle::capi::guard_size;
using heddle::capi::in;
using heddle::capi::out;
using heddle::capi::out_or_absent;
using heddle::capi::required;

heddle_status heddle_sample(heddle_context* context, DLTensor* token_ids, DLTensor* logprobs,
                            const DLTensor* logits, const heddle_sampling_table* table) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    const heddle_sampling_table& t = required("table", table);
    heddle::sample(ctx, out("token_ids", token_ids), out_or_absent("logprobs", logprobs),
                   in("logits", logits),
                   {.temperature = in("temperature", t.temperature),
                    .top_k = in("top_k", t.top_k),
                    .top_p = in("top_p", t.top_p),
                    .min_p = in("min_p", t.min_p),
                    .seed = in("seed", t.seed),
                    .step = in("step", t.step)});
  });
}

heddle_status heddle_greedy(heddle_context* context, DLTensor* token_ids, DLTensor* logprobs,
                            const DLTensor* logits) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::greedy(ctx, out("token_ids", token_ids), out_or_absent("logprobs", logprobs),
                   in("logits", logits));
  });
}

heddle_status heddle_token_logprobs(heddle_context* context, DLTensor* logprobs, DLTensor* top_ids,
                                    DLTensor* top_logprobs, const DLTensor* logits,
                                    const DLTensor* token_ids) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::token_logprobs(ctx, out("logprobs", logprobs), out_or_absent("top_ids", top_ids),
                           out_or_absent("top_logprobs", top_logprobs), in("logits", logits),
                           in("token_ids", token_ids));
  });
}

heddle_status heddle_adjust_logits(heddle_context* context, DLTensor* logits, DLTensor* saved,
                                   const heddle_logit_adjustments* adjustments) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    const heddle_logit_adjustments& a = required("adjustments", adjustments);
    heddle::adjust_logits(ctx, out("logits", logits), out_or_absent("saved", saved),
                          {.indptr = in("indptr", a.indptr),
                           .token_ids = in("token_ids", a.token_ids),
                           .prompt_counts = in("prompt_counts", a.prompt_counts),
                           .output_counts = in("output_counts", a.output_counts),
                           .bias = in("bias", a.bias),
                           .repetition = in("repetition", a.repetition),
                           .presence = in("presence", a.presence),
                           .frequency = in("frequency", a.frequency)});
  });
}

heddle_status heddle_restore_logits(heddle_context* context, DLTensor* logits,
                                    const DLTensor* saved,
                                    const heddle_logit_adjustments* adjustments) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    const heddle_logit_adjustments& a = required("adjustments", adjustments);
    heddle::restore_logits(
        ctx, out("logits", logits), in("saved", saved),
        {.indptr = in("indptr", a.indptr), .token_ids = in("token_ids", a.token_ids)});
  });
}

size_t heddle_sample_workspace_bytes(int64_t num_rows, int64_t vocab_size) {
  return guard_size([&] { return heddle::sample_workspace_bytes(num_rows, vocab_size); });
}
