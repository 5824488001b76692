#include "ops/speculation/call/rewind_kv_cache_kernels.h"

namespace heddle::cpu::speculation {
namespace {

constexpr int64_t kRequestsPerTask = 2048;  // some 10 us: less is not worth another thread

}  // namespace

void rewind_kv_cache(const ExecContext& ctx, const RewindParams& params) {
  const int64_t num_active = params.num_active.read();
  // The place in the list follows from the requests before, so one thread then does all of them.
  const int64_t grain = params.releases.listed ? num_active : kRequestsPerTask;
  int64_t num_released = 0;
  parallel_for(ctx, num_active, grain, [&](int64_t begin, int64_t end) {
    int64_t place = 0;
    for (int64_t i = begin; i < end; ++i) {
      const KvRow row = params.kv.load(i);
      const KvRewind rewind = params.kv.plan(row, params.rejected(i));
      store_rewind(params.kv, params.releases, i, row, rewind, place);
      place += rewind.num_released;
    }
    if (params.releases.listed) num_released = place;
  });
  params.releases.list_size.set(0, num_released);
  params.releases.clear_from(num_active);
}

}  // namespace heddle::cpu::speculation
