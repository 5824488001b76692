#include "ops/speculation/call/speculative_step_kernels.h"

namespace heddle::cpu::speculation {
namespace {

constexpr int64_t kRequestsPerTask = 1024;  // some 10 us: less is not worth another thread

/// Request p of num_active, of which the first num_decode are decode requests; padding from
/// num_active on. Returns the place in the list of released blocks after its own.
int64_t step_request(const SpeculativeStepParams& params, int64_t p, int64_t num_decode,
                     int64_t num_active, int64_t place) {
  const VerifyParams& verify = params.verify;
  const TokenRange range = p < num_active ? verify.layout.tokens(p, num_decode) : TokenRange{0, 0};
  const int64_t last = verify_request(verify, range);
  const bool decode = p < num_decode;
  verify.last_one_indices.set(p, last);
  params.store_next(p, range.begin, last, decode);
  if (p >= num_active) {
    params.next_step.store_padding(p);
    return place;
  }
  const int64_t num_accepted = last < 0 ? 0 : last - range.begin;
  const KvRow row = params.kv.load(p);
  const KvRewind rewind = params.kv.plan(row, decode ? verify.layout.drafts(p) - num_accepted : 0);
  store_rewind(params.kv, params.releases, p, row, rewind, place);
  params.next_step.store(params.kv, p, rewind);
  return place + rewind.num_released;
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
