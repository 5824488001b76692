#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/lora.h"

namespace heddle {
namespace {

struct SiteShape {
  int64_t in;
  std::vector<int64_t> outs;
};

/// The linear sites of one block of SmolLM2-135M; the model has 30 blocks.
const std::vector<SiteShape>& model_sites() {
  static const std::vector<SiteShape> sites{
      {576, {576, 192, 192}}, {576, {576}}, {576, {1536, 1536}}, {1536, {576}}};
  return sites;
}
constexpr int kNumBlocks = 30;

/// The weights of all adapters for one site: A rank-minor and B rank-major, each matrix an allocation of its own inside
/// one block per adapter, as an adapter file is loaded.
struct Site {
  int64_t in;
  std::vector<int64_t> outs;
  std::vector<LoraWeight> a, b;
  LoraTable a_table, b_table;
};

/// f16 adapters of one rank on every site of `num_blocks` blocks.
class Adapters {
 public:
  Adapters(int num_adapters, int rank, int num_blocks) : num_adapters_(num_adapters), rank_(rank) {
    for (int block = 0; block < num_blocks; ++block) {
      for (const SiteShape& shape : model_sites())
        sites_.push_back({shape.in, shape.outs, {}, {}, {}, {}});
    }
    for (int i = 0; i < num_adapters; ++i) {
      memory_.emplace_back(size_t(adapter_elements()), from_float<half>(0.01f));
      half* at = memory_.back().data();
      for (Site& site : sites_) {
        for (const int64_t out : site.outs) {
          site.a.push_back({.data = at, .rank = rank, .row_stride = rank});
          at += site.in * rank;
          site.b.push_back({.data = at, .rank = rank, .row_stride = out});
          at += out * rank;
        }
      }
    }
    for (Site& site : sites_) {
      site.a_table = table(site, site.a, LoraLayout::kRankMinor);
      site.b_table = table(site, site.b, LoraLayout::kRankMajor);
    }
  }
  [[nodiscard]] const std::vector<Site>& sites() const { return sites_; }
  [[nodiscard]] int64_t adapter_elements() const {
    int64_t n = 0;
    for (const Site& site : sites_) {
      for (const int64_t out : site.outs) n += (site.in + out) * rank_;
    }
    return n;
  }
  [[nodiscard]] int64_t bytes() const { return num_adapters_ * adapter_elements() * 2; }
  [[nodiscard]] const std::vector<half>& memory(int adapter) const {
    return memory_[size_t(adapter)];
  }

 private:
  [[nodiscard]] LoraTable table(const Site& site, const std::vector<LoraWeight>& entries,
                                LoraLayout layout) const {
    return {.entries = entries.data(),
            .num_slots = num_adapters_,
            .num_slices = static_cast<int32_t>(site.outs.size()),
            .max_rank = rank_,
            .dtype = DType::kFloat16,
            .device = {},
            .layout = layout};
  }

  int num_adapters_, rank_;
  std::vector<Site> sites_;
  std::vector<std::vector<half>> memory_;
};

/// lora_apply on every site in turn.
class Step {
 public:
  Step(const Adapters& adapters, int64_t num_rows, std::vector<int32_t> ids, int threads)
      : adapters_(adapters), num_rows_(num_rows), ids_(std::move(ids)), pool_(threads) {
    x_.assign(size_t(num_rows * 1536), 0.5f);
    y_.assign(size_t(num_rows * 3072), 0.0f);
    memory_.resize(lora_apply_workspace_bytes(num_rows, 3, kMaxLoraRank));
  }
  void run() {
    Workspace workspace(memory_);
    ExecContext ctx;
    ctx.workspace = &workspace;
    ctx.threads = &pool_;
    const LoraBatch batch = LoraBatch::from_ids(host_view(std::as_const(ids_).data(), {num_rows_}));
    for (const Site& site : adapters_.sites()) {
      LoraSlice slices[3];
      int64_t width = 0, column = 0;
      for (const int64_t out : site.outs) width += out;
      const TensorView y = host_view(y_.data(), {num_rows_, width});
      for (size_t s = 0; s < site.outs.size(); column += site.outs[s++]) {
        slices[s].y = y.narrow(1, column, site.outs[s]);
      }
      lora_apply(ctx, {slices, site.outs.size()},
                 host_view(std::as_const(x_).data(), {num_rows_, site.in}), site.a_table,
                 site.b_table, batch);
    }
    benchmark::DoNotOptimize(y_.data());
  }

 private:
  const Adapters& adapters_;
  int64_t num_rows_;
  std::vector<int32_t> ids_;
  ThreadPool pool_;
  std::vector<float> x_, y_;
  std::vector<std::byte> memory_;
};

/// 8 rows with 8 adapters of their own, interleaved, on all sites of all blocks: the LoRA part of one decode step. At rank
/// 16 it reads 78 MB, more than the caches hold.
void decode_step(benchmark::State& state, int rank, int threads) {
  const Adapters adapters(8, rank, kNumBlocks);
  Step step(adapters, 8, {3, 1, 4, 0, 5, 2, 6, 7}, threads);
  for (auto _ : state) step.run();
  state.SetBytesProcessed(state.iterations() * adapters.bytes());
}

/// What the machine can read of the same bytes: the bound of decode_step.
void read_bandwidth(benchmark::State& state, int threads) {
  const Adapters adapters(8, 16, kNumBlocks);
  ThreadPool pool(threads);
  const int64_t words = adapters.adapter_elements() / 4, grain = 8192;  // 64 KB
  for (auto _ : state) {
    for (int adapter = 0; adapter < 8; ++adapter) {
      const auto* data = reinterpret_cast<const uint64_t*>(adapters.memory(adapter).data());
      pool.parallel_for(words, grain, [&](int64_t begin, int64_t end) {
        uint64_t sums[8] = {};
        int64_t i = begin;
        for (; i + 8 <= end; i += 8) {
          for (int j = 0; j < 8; ++j) sums[j] += data[i + j];
        }
        benchmark::DoNotOptimize(sums);
      });
    }
  }
  state.SetBytesProcessed(state.iterations() * adapters.bytes());
}

/// Rows of one adapter on all sites of one block, hot in cache: a prefill, bound by multiply-adds.
void prefill(benchmark::State& state, int rank, int threads) {
  const Adapters adapters(1, rank, 1);
  const int64_t num_rows = 500;
  Step step(adapters, num_rows, std::vector<int32_t>(size_t(num_rows), 0), threads);
  for (auto _ : state) step.run();
  state.counters["MAC/s"] = benchmark::Counter(double(num_rows * adapters.adapter_elements()),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

const bool registered = [] {
  for (const int threads : {1, 2}) {
    const std::string suffix = "/threads:" + std::to_string(threads);
    const auto add = [](const std::string& name, auto&&... arguments) {
      benchmark::RegisterBenchmark(name.c_str(), arguments...)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    };
    add("lora/read_bandwidth" + suffix, read_bandwidth, threads);
    for (const int rank : {8, 16, 64}) {
      add("lora/step/rank:" + std::to_string(rank) + suffix, decode_step, rank, threads);
    }
    for (const int rank : {8, 16, 64}) {
      add("lora/prefill/rank:" + std::to_string(rank) + suffix, prefill, rank, threads);
    }
  }
  return true;
}();

}  // namespace
}  // namespace heddle
