#include "ops/speculation/call/prepare_next_forward_pass_kernels.h"

namespace heddle::cpu::speculation {
namespace {

constexpr int64_t kRequestsPerTask = 2048;  // some 10 us: less is not worth another thread

}  // namespace

void prepare_next_forward_pass(const ExecContext& ctx, const PrepareParams& params) {
  parallel_for(ctx, params.num_rows, kRequestsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) params.prepare(p);
  });
}

}  // namespace heddle::cpu::speculation
