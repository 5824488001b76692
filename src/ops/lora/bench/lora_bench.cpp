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
constexpr size_t kCacheLine = 64;

/// How the weights of a bench lie in memory.
enum class Stored : uint8_t {
  kStreamed,  // A [in, rank], B [rank, out]: what the CPU reads fastest
  kAsPeft,    // A [rank, in], B [out, rank]: what PEFT and its adapter files hold
};

/// The weights of all adapters for one site, each matrix at a place of its own inside one block per
/// adapter, as an adapter file is loaded.
struct Site {
  int64_t in;
  std::vector<int64_t> outs;
  std::vector<LoraWeight> a, b;
  LoraTable a_table, b_table;
};

/// Adapters of one rank on every site of `num_blocks` blocks, of elements T (half or float).
template <class T>
class Adapters {
 public:
  Adapters(int num_adapters, int rank, int num_blocks, Stored stored)
      : num_adapters_(num_adapters), rank_(rank) {
    const bool as_peft = stored == Stored::kAsPeft;
    for (int block = 0; block < num_blocks; ++block) {
      for (const SiteShape& shape : model_sites())
        sites_.push_back({shape.in, shape.outs, {}, {}, {}, {}});
    }
    for (int i = 0; i < num_adapters; ++i) {
      memory_.emplace_back(size_t(adapter_elements()) + kCacheLine / sizeof(T),
                           from_float<T>(0.01f));
      void* begin = memory_.back().data();  // on a cache line, as torch and the engine allocate
      size_t space = memory_.back().size() * sizeof(T);
      T* at = static_cast<T*>(std::align(kCacheLine, 1, begin, space));
      for (Site& site : sites_) {
        for (const int64_t out : site.outs) {
          site.a.push_back({.data = at, .rank = rank, .row_stride = as_peft ? site.in : rank});
          at += site.in * rank;
          site.b.push_back({.data = at, .rank = rank, .row_stride = as_peft ? rank : out});
          at += out * rank;
        }
      }
    }
    for (Site& site : sites_) {
      site.a_table = table(site, site.a, as_peft ? LoraLayout::kRankMajor : LoraLayout::kRankMinor);
      site.b_table = table(site, site.b, as_peft ? LoraLayout::kRankMinor : LoraLayout::kRankMajor);
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
  [[nodiscard]] int64_t bytes() const {
    return num_adapters_ * adapter_elements() * int64_t(sizeof(T));
  }
  [[nodiscard]] const std::vector<T>& memory(int adapter) const { return memory_[size_t(adapter)]; }

 private:
  [[nodiscard]] LoraTable table(const Site& site, const std::vector<LoraWeight>& entries,
                                LoraLayout layout) const {
    return {.entries = entries.data(),
            .num_slots = num_adapters_,
            .num_slices = static_cast<int32_t>(site.outs.size()),
            .max_rank = rank_,
            .dtype = kDType<T>,
            .device = {},
            .layout = layout};
  }

  int num_adapters_, rank_;
  std::vector<Site> sites_;
  std::vector<std::vector<T>> memory_;
};

/// lora_apply on every site in turn. Y: dtype of y.
template <class T, class Y = float>
class Step {
 public:
  Step(const Adapters<T>& adapters, int64_t num_rows, std::vector<int32_t> ids, int threads)
      : adapters_(adapters), num_rows_(num_rows), ids_(std::move(ids)), pool_(threads) {
    x_.assign(size_t(num_rows * 1536), 0.5f);
    y_.assign(size_t(num_rows * 3072), Y{});
    memory_.resize(lora_pairs_workspace_bytes({}, num_rows, 1536, 3072, 3, kMaxLoraRank));
  }
  /// From now on row t has the adapters of the rows t, t + 1, ..., of its own ids, num_pairs of
  /// them.
  void use_pairs(int64_t num_pairs) {
    for (int64_t t = 0; t < num_rows_; ++t) {
      for (int64_t i = 0; i < num_pairs; ++i) {
        pair_slots_.push_back(ids_[size_t((t + i) % num_rows_)]);
      }
      pair_starts_.push_back(int32_t(pair_slots_.size()));
    }
  }
  void run() {
    Workspace workspace(memory_);
    ExecContext ctx;
    ctx.workspace = &workspace;
    ctx.threads = &pool_;
    const auto view = [](const std::vector<int32_t>& v) {
      return host_view(v.data(), {int64_t(v.size())});
    };
    const LoraBatch batch = pair_slots_.empty()
                                ? LoraBatch::from_ids(view(ids_))
                                : LoraBatch::from_pairs(view(pair_starts_), view(pair_slots_));
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
  const Adapters<T>& adapters_;
  int64_t num_rows_;
  std::vector<int32_t> ids_, pair_starts_{0}, pair_slots_;
  ThreadPool pool_;
  std::vector<float> x_;
  std::vector<Y> y_;
  std::vector<std::byte> memory_;
};

/// 8 rows with 8 adapters of their own, interleaved, on all sites of all blocks: the LoRA part of
/// one decode step. At rank 16 it reads 78 MB of f16, more than the caches hold.
template <class T>
void decode_step(benchmark::State& state, int rank, int threads, Stored stored) {
  const Adapters<T> adapters(8, rank, kNumBlocks, stored);
  Step<T> step(adapters, 8, {3, 1, 4, 0, 5, 2, 6, 7}, threads);
  for (auto _ : state) step.run();
  state.SetBytesProcessed(state.iterations() * adapters.bytes());
}

/// The same step with several adapters for each row; they are the same 8, so that as many bytes
/// come from memory.
template <class T, class Y>
void step_of_pairs(benchmark::State& state, int64_t num_pairs, int threads) {
  const Adapters<T> adapters(8, 16, kNumBlocks, Stored::kStreamed);
  Step<T, Y> step(adapters, 8, {3, 1, 4, 0, 5, 2, 6, 7}, threads);
  step.use_pairs(num_pairs);
  for (auto _ : state) step.run();
  state.SetBytesProcessed(state.iterations() * adapters.bytes());
}

/// What the machine can read of the same bytes: the bound of decode_step.
void read_bandwidth(benchmark::State& state, int threads) {
  const Adapters<half> adapters(8, 16, kNumBlocks, Stored::kStreamed);
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

/// Rows of one adapter on all sites of one block, hot in cache: a few rows of a decode step, or a
/// prefill.
template <class T>
void one_adapter(benchmark::State& state, int64_t num_rows, int rank, int threads, Stored stored) {
  const Adapters<T> adapters(1, rank, 1, stored);
  Step<T> step(adapters, num_rows, std::vector<int32_t>(size_t(num_rows), 0), threads);
  for (auto _ : state) step.run();
  state.counters["MAC/s"] = benchmark::Counter(double(num_rows * adapters.adapter_elements()),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

template <class... Arguments>
void add(const std::string& name, benchmark::TimeUnit unit, Arguments&&... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), arguments...)->UseRealTime()->Unit(unit);
}

/// f16 as heddle stores adapters; f32 and PEFT's layout as PEFT holds them.
template <class T>
void add_layout(const std::string& dtype, Stored stored, int threads) {
  const std::string layout = stored == Stored::kAsPeft ? "/layout:peft" : "/layout:streamed";
  const std::string suffix = dtype + layout + "/threads:" + std::to_string(threads);
  for (const int rank : {4, 8, 16, 64}) {
    const std::string rank_suffix = "/rank:" + std::to_string(rank) + suffix;
    add("lora/step" + rank_suffix, benchmark::kMillisecond, decode_step<T>, rank, threads, stored);
    for (const int64_t num_rows : {1, 4, 8}) {
      add("lora/rows:" + std::to_string(num_rows) + rank_suffix, benchmark::kMicrosecond,
          one_adapter<T>, num_rows, rank, threads, stored);
    }
    add("lora/prefill" + rank_suffix, benchmark::kMillisecond, one_adapter<T>, int64_t{500}, rank,
        threads, stored);
  }
}

const bool registered = [] {
  for (const int threads : {1, 2}) {
    add("lora/read_bandwidth/threads:" + std::to_string(threads), benchmark::kMillisecond,
        read_bandwidth, threads);
    for (const int64_t num_pairs : {1, 2, 4}) {
      const std::string suffix =
          std::to_string(num_pairs) + "/rank:16/f16/threads:" + std::to_string(threads);
      add("lora/pairs:" + suffix + "/y:f32", benchmark::kMillisecond, step_of_pairs<half, float>,
          num_pairs, threads);
      add("lora/pairs:" + suffix + "/y:bf16", benchmark::kMillisecond,
          step_of_pairs<half, bfloat16>, num_pairs, threads);
    }
    for (const Stored stored : {Stored::kStreamed, Stored::kAsPeft}) {
      add_layout<half>("/f16", stored, threads);
      add_layout<float>("/f32", stored, threads);
    }
  }
  return true;
}();

}  // namespace
}  // namespace heddle
