// Plain scalar code: a request is a few dependent integer loads, which vectors of strided i32 or
// i64 would not speed up.
#include "ops/speculation/call/verify_speculative_tokens_kernels.h"

namespace heddle::cpu::speculation {
namespace {

constexpr int64_t kRequestsPerTask = 2048;  // some 10 us: less is not worth another thread

}  // namespace

void verify_speculative_tokens(const ExecContext& ctx, const VerifyParams& params) {
  params.accepted_tokens_mask.clear(0, params.layout.num_tokens());
  const int64_t num_decode = params.num_decode.read(), num_active = params.num_active(num_decode);
  parallel_for(ctx, params.num_rows, kRequestsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const TokenRange range =
          p < num_active ? params.layout.tokens(p, num_decode) : TokenRange{0, 0};
      params.last_one_indices.set(p, verify_request(params, range));
    }
  });
}

}  // namespace heddle::cpu::speculation
