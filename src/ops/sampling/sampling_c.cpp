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

size_t heddle_sample_workspace_bytes(int64_t num_rows, int64_t vocab_size) {
  return guard_size([&] { return heddle::sample_workspace_bytes(num_rows, vocab_size); });
}
