#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/attention.h"

#include "core/math.h"

namespace heddle {
namespace {

// The heads of SmolLM2-135M.
constexpr int kNumQHeads = 9, kNumKvHeads = 3, kHeadDim = 64, kPageSize = 16;

struct Case {
  int64_t num_seqs, q_len, kv_len;
  int num_threads;
  bool rope;
};

template <class T>
std::vector<T> wave(size_t n, float scale) {
  std::vector<T> values(n);
  uint32_t state = 1;
  for (T& value : values) {
    state = state * 1664525u + 1013904223u;
    value = from_float<T>(scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f));
  }
  return values;
}

/// Sequences of one length in a pool of head-major pages, one page after the other.
template <class T>
struct Cache {
  explicit Cache(const Case& c) : memory(size_t(2 * pages(c) * kPageElements)) {
    memory = wave<T>(memory.size(), 1.0f);
    for (int64_t i = 0; i <= c.num_seqs; ++i) indptr.push_back(int32_t(i * pages(c) / c.num_seqs));
    for (int64_t i = 0; i < pages(c); ++i) ids.push_back(int32_t(i));
    last_page_len.assign(size_t(c.num_seqs), int32_t((c.kv_len - 1) % kPageSize + 1));
  }
  static constexpr int64_t kPageElements = int64_t{kNumKvHeads} * kPageSize * kHeadDim;
  static int64_t pages(const Case& c) { return c.num_seqs * ceil_div(c.kv_len, kPageSize); }
  PagedKv kv() {
    const int64_t n = int64_t(ids.size());
    const TensorView all = host_view(memory.data(), {2 * n, kNumKvHeads, kPageSize, kHeadDim});
    const TensorView k = all.narrow(0, 0, n), v = all.narrow(0, n, n);
    if constexpr (std::is_same_v<T, float8_e4m3>) {
      scales.resize(size_t(2 * n * kNumKvHeads * kPageSize), 0.25f);
      const TensorView all_scales = host_view(scales.data(), {2 * n, kNumKvHeads, kPageSize});
      return PagedKv::from_pool(k, v, all_scales.narrow(0, 0, n), all_scales.narrow(0, n, n));
    } else {
      return PagedKv::from_pool(k, v);
    }
  }
  [[nodiscard]] PageTable table() const {
    return {host_view(indptr.data(), {int64_t(indptr.size())}),
            host_view(ids.data(), {int64_t(ids.size())}),
            host_view(last_page_len.data(), {int64_t(last_page_len.size())})};
  }
  std::vector<T> memory;
  std::vector<float> scales;  // of f8e4m3
  std::vector<int32_t> indptr, ids, last_page_len;
};

/// Reports FLOP/s (two products a visible key and element) and bytes of K and V per second, read
/// once a sequence.
template <class T>
void run(benchmark::State& state, Case c) {
  Cache<T> cache(c);
  const int64_t tokens = c.num_seqs * c.q_len;
  const auto q = wave<float>(size_t(tokens * kNumQHeads * kHeadDim), 2.0f);
  std::vector<float> o(q.size());
  std::vector<int32_t> q_indptr;
  for (int64_t i = 0; i <= c.num_seqs; ++i) q_indptr.push_back(int32_t(i * c.q_len));
  ThreadPool pool(c.num_threads);
  ExecContext ctx;
  ctx.threads = &pool;
  AttentionOptions options;
  if (c.rope) options.rope = RopeParams{};
  for (auto _ : state) {
    batch_prefill(ctx, host_view(o.data(), {tokens, kNumQHeads, kHeadDim}), {},
                  host_view(q.data(), {tokens, kNumQHeads, kHeadDim}),
                  host_view(std::as_const(q_indptr).data(), {c.num_seqs + 1}), cache.kv(),
                  std::as_const(cache).table(), options);
    benchmark::DoNotOptimize(o.data());
  }
  const int64_t visible = c.q_len * (c.kv_len - c.q_len) + c.q_len * (c.q_len + 1) / 2;
  const double flops = 4.0 * double(c.num_seqs * visible) * kNumQHeads * kHeadDim;
  const double bytes = 2.0 * double(c.num_seqs * c.kv_len) * kNumKvHeads * kHeadDim * sizeof(T);
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["FLOP/s"] = benchmark::Counter(flops, rate);
  state.counters["B/s"] = benchmark::Counter(bytes, rate);
}

template <class T>
void add(const char* op, const Case& c) {
  const std::string label = std::string("attention/") + op + "/" + name(kDType<T>) +
                            (c.rope ? "/rope" : "") + "/seqs:" + std::to_string(c.num_seqs) +
                            "/kv:" + std::to_string(c.kv_len) +
                            "/threads:" + std::to_string(c.num_threads);
  benchmark::RegisterBenchmark(label.c_str(), run<T>, c)->UseRealTime();
}

bool add_all() {
  for (const int64_t num_seqs : {1, 8, 32}) {
    for (const int64_t kv_len : {128, 512, 4096}) {
      add<float>("decode", {num_seqs, 1, kv_len, 1, false});
      add<float>("decode", {num_seqs, 1, kv_len, 2, false});
      add<half>("decode", {num_seqs, 1, kv_len, 1, false});
    }
    add<bfloat16>("decode", {num_seqs, 1, 4096, 1, false});
    add<float8_e4m3>("decode", {num_seqs, 1, 4096, 1, false});
  }
  add<float>("decode", {8, 1, 512, 1, true});
  for (const int num_threads : {1, 2}) {
    add<float>("prefill", {1, 512, 512, num_threads, false});
    add<half>("prefill", {1, 512, 512, num_threads, false});
  }
  add<float>("prefill", {1, 512, 512, 1, true});
  add<float8_e4m3>("prefill", {1, 512, 512, 1, false});
  return true;
}

const bool registered = add_all();

}  // namespace
}  // namespace heddle
