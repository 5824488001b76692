// Times what calls cost the thread that makes them: checks, parameters and the launch, on the first
// GPU. Run at a decode step's usual site, qkv of an 8B Llama with 32 rows of 8 adapters of rank 16,
// on weights in the L2 cache.
//   bench_lora_host_cuda --json FILE [--quick]
// A sample is the mean of calls made one after the other into a stream that is empty at first and
// far from full at last. Beside them: an empty kernel with as many bytes of parameters, which is
// what the runtime takes of each call.

#include <deque>
#include <vector>

#include "ops/lora/bench/lora_bench_cuda.h"
#include "ops/lora/bench/lora_sites_bench_cuda.h"
#include "ops/lora_device/window_plan.h"

namespace heddle::lora_bench {
namespace {

constexpr int kCalls =
    200;  // of a sample; a stream takes a thousand launches before it makes the host wait
constexpr int kRank = 16;

// Does nothing, with the parameters of LoRA.
__global__ void empty_kernel(const __grid_constant__ cuda::lora::SiteParams) {}

class HostTimes {
 public:
  explicit HostTimes(Bench& bench)
      : bench_(bench),
        weights_(bench.context().exec(), cell_),
        batch_(bench.context().exec(), cell_),
        x_(cell_.tokens * cell_.site->in_features, 1) {
    bench.context().reserve_workspace(lora_apply_workspace_bytes(
        kGpu, cell_.tokens, cell_.site->in_features, cell_.site->num_slices(), cell_.rank));
    for (const int64_t out : cell_.site->out_features) {
      slices_.push_back({y_.emplace_back(cell_.tokens * out, 1).view(cell_.tokens, out)});
    }
  }

  void time_all() {
    const ExecContext& ctx = bench_.context().exec();
    ExecContext without_exchange = ctx;
    without_exchange.exchange = {};
    LoraBatch unplanned = batch_.planned();
    unplanned.plan = {};
    time("lora_apply", "host", [&] { apply(ctx, batch_.planned()); });
    time("lora_apply", "host, two launches", [&] { apply(without_exchange, batch_.planned()); });
    time("lora_apply", "host, without a plan", [&] { apply(ctx, unplanned); });
    time("lora_plan", "host", [&] { batch_.plan(ctx); });
    time("launch", "host, empty kernel", [&] {
      empty_kernel<<<1, 32, 0, bench_.stream()>>>(cuda::lora::SiteParams{});
      HEDDLE_CUDA_CHECK(cudaGetLastError());
    });
  }

 private:
  void apply(const ExecContext& ctx, const LoraBatch& rows) const {
    lora_apply(ctx, slices_, x_.view(cell_.tokens, cell_.site->in_features), weights_.a(),
               weights_.b(), rows);
  }
  template <class Call>
  void time(const char* op, const char* form, const Call& call) {
    const testing::Replays rounds{.warm_up = 3, .timed = bench_.is_quick() ? 9 : 31};
    const std::vector<double> samples =
        testing::time_on_host(bench_.stream(), kCalls, call, rounds);
    add(bench_, {.op = op,
                 .site = cell_.site->name,
                 .rank = cell_.rank,
                 .tokens = cell_.tokens,
                 .adapters = cell_.adapters,
                 .form = form,
                 .num_calls = 0,
                 .floor_us = 0,
                 .samples = samples,
                 .facts = {{"host_us", median(samples)}, {"calls_in_sample", kCalls}}});
  }

  Bench& bench_;
  const Cell cell_{.site = &kQkv, .rank = kRank, .tokens = 32, .adapters = 8};
  SiteWeights weights_;
  Batch batch_;
  RandomValues x_;
  std::deque<RandomValues> y_;
  std::vector<LoraSlice> slices_;
};

}  // namespace
}  // namespace heddle::lora_bench

int main(int argc, char** argv) {
  using namespace heddle::lora_bench;
  return heddle::testing::run_bench(argc, argv, [](Bench& bench) { HostTimes(bench).time_all(); });
}
