#include "ops/speculation/speculative_step/speculative_step_kernels.h"

namespace heddle::cpu::speculation {
namespace {

constexpr int64_t kRequestsPerTask = 1024;  // some 10 us: less is not worth another thread

/// Request p of num_active, of which the first num_decode are decode requests; padding from
/// num_active on. Returns the place in the list of released blocks behind its own.
int64_t step_request(const SpeculativeStepParams& params, int64_t p, int64_t num_decode,
                     int64_t num_active, int64_t place) {
  const VerifyParams& verify = params.verify;
  const int64_t max_drafts = verify.layout.max_drafts();
  const TokenRange range = p < num_active ? verify.layout.tokens(p, num_decode) : TokenRange{0, 0};
  const int64_t last = verify_request(verify, range);
  const bool known = last >= 0, decode = p < num_decode;
  const int64_t num_accepted = known ? last - range.begin : 0;
  verify.last_one_indices.set(p, last);

  params.next.sampled_tokens.set(p, known ? verify.output_tokens[last] : kNoToken);
  if (params.has_required_logit_indices) {
    params.next.last_accepted_seq.set(p, known ? params.required_logit_indices[last] : -1);
  }
  if (known && decode) {
    params.next.store_accepted(p, max_drafts, verify.input_tokens, range.begin + 1,
                               [&](int64_t s) { return s < num_accepted; });
  } else if (!known || params.write_prefill_rows) {
    params.next.store_none_accepted(p, max_drafts);
  }

  if (p >= num_active) {
    params.next_step.store_padding(p);
    return place;
  }
  const int64_t rejected = decode ? verify.layout.drafts(p) - num_accepted : 0;
  const int64_t behind = rewind_request(params.kv, params.releases, p, rejected, place);
  params.next_step.store(params.kv, p);
  return behind;
}

}  // namespace

void speculative_step(const ExecContext& ctx, const SpeculativeStepParams& params) {
  const int64_t num_decode = params.verify.num_decode.read();
  const int64_t num_active = params.verify.num_active(num_decode);
  params.verify.accepted_tokens_mask.clear(0, params.verify.layout.num_tokens());
  // The place in the list follows from the requests before, so one thread then does all of them.
  const int64_t grain = params.releases.listed ? params.num_requests : kRequestsPerTask;
  int64_t num_released = 0;
  parallel_for(ctx, params.num_requests, grain, [&](int64_t begin, int64_t end) {
    int64_t place = 0;
    for (int64_t p = begin; p < end; ++p) {
      place = step_request(params, p, num_decode, num_active, place);
    }
    if (params.releases.listed) num_released = place;
  });
  params.releases.list_size.set(0, num_released);
  params.releases.clear_from(num_active);
  for (int64_t p = params.num_requests; p < params.num_last_ones; ++p) {
    params.verify.last_one_indices.set(p, -1);
  }
}

}  // namespace heddle::cpu::speculation
