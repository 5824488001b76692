#include "ops/speculation/prepare_next_forward_pass/prepare_next_forward_pass_kernels.h"

namespace heddle::cpu::speculation {
namespace {

constexpr int64_t kRequestsPerTask = 2048;  // some 10 us: less is not worth another thread

void prepare_request(const PrepareParams& params, int64_t p, int64_t num_decode) {
  const int64_t last = params.last_one_indices[p], max_drafts = params.layout.max_drafts();
  const bool known = last >= 0 && last < params.layout.num_tokens();
  params.next.sampled_tokens.set(p, known ? params.output_tokens[last] : kNoToken);
  params.next.last_accepted_seq.set(p, known ? params.required_logit_indices[last] : -1);
  if (p >= params.num_accepted_rows) return;
  if (known && p < num_decode) {
    const TokenRange range = params.layout.tokens(p, num_decode);
    const int64_t first = range.begin + 1;
    params.next.store_accepted(p, max_drafts, params.input_tokens, first, [&](int64_t s) {
      return first + s < range.end && params.accepted_tokens_mask[first + s];
    });
  } else if (!known || params.write_prefill_rows) {
    params.next.store_none_accepted(p, max_drafts);
  }
}

}  // namespace

void prepare_next_forward_pass(const ExecContext& ctx, const PrepareParams& params) {
  const int64_t num_decode = params.num_decode.read();
  parallel_for(ctx, params.num_rows, kRequestsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) prepare_request(params, p, num_decode);
  });
}

}  // namespace heddle::cpu::speculation
