#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/attention.h"
#include "heddle/ops/kv_cache.h"

#include "core/math.h"

namespace heddle {
namespace {

// The heads of SmolLM2-135M.
constexpr int64_t kNumQHeads = 9, kNumKvHeads = 3, kHeadDim = 64, kPageSize = 16;

/// One thread: num_seqs sequences of seq_len tokens each, all of them new, into head-major pages.
/// Bytes are those of k and v, read and written.
template <class T>
void store(benchmark::State& state, int64_t num_seqs, int64_t seq_len) {
  const int64_t pages_per_seq = ceil_div(seq_len, kPageSize);
  const int64_t num_pages = num_seqs * pages_per_seq, num_tokens = num_seqs * seq_len;
  std::vector<T> memory(size_t(2 * num_pages * kNumKvHeads * kPageSize * kHeadDim));
  const std::vector<T> kv(size_t(num_tokens * kNumKvHeads * kHeadDim), from_float<T>(0.5f));
  std::vector<int32_t> page_indptr, pages, last_page_len, seq_indptr;
  for (int64_t i = 0; i <= num_seqs; ++i) {
    page_indptr.push_back(int32_t(i * pages_per_seq));
    seq_indptr.push_back(int32_t(i * seq_len));
  }
  for (int64_t i = 0; i < num_pages; ++i) pages.push_back(int32_t(i));
  last_page_len.assign(size_t(num_seqs), int32_t((seq_len - 1) % kPageSize + 1));
  const auto vector_view = [](const std::vector<int32_t>& v) {
    return host_view(v.data(), {int64_t(v.size())});
  };
  const TensorView all =
      host_view(memory.data(), {2 * num_pages, kNumKvHeads, kPageSize, kHeadDim});
  const PagedKv cache =
      PagedKv::from_pool(all.narrow(0, 0, num_pages), all.narrow(0, num_pages, num_pages));
  const PageTable table{vector_view(page_indptr), vector_view(pages), vector_view(last_page_len)};
  const ConstTensorView x = host_view(kv.data(), {num_tokens, kNumKvHeads, kHeadDim});
  for (auto _ : state) {
    if (seq_len == 1) {
      kv_append({}, cache, table, x, x);
    } else {
      kv_init({}, cache, table, x, x, vector_view(seq_indptr));
    }
    benchmark::DoNotOptimize(memory.data());
  }
  state.SetBytesProcessed(state.iterations() * 4 * std::ssize(kv) * int64_t{sizeof(T)});
}

/// One thread: two states of num_tokens rows into one.
template <class T>
void merge(benchmark::State& state, int64_t num_tokens) {
  const std::vector<T> a(size_t(num_tokens * kNumQHeads * kHeadDim), from_float<T>(0.5f));
  const std::vector<float> lse_a(size_t(num_tokens * kNumQHeads), 1.0f);
  std::vector<T> o(a.size());
  std::vector<float> lse(lse_a.size());
  const ConstTensorView x = host_view(a.data(), {num_tokens, kNumQHeads, kHeadDim});
  const ConstTensorView l = host_view(lse_a.data(), {num_tokens, kNumQHeads});
  for (auto _ : state) {
    merge_states({}, host_view(o.data(), {num_tokens, kNumQHeads, kHeadDim}),
                 host_view(lse.data(), {num_tokens, kNumQHeads}), x, l, x, l);
    benchmark::DoNotOptimize(o.data());
  }
  state.SetBytesProcessed(state.iterations() * 3 * std::ssize(o) * int64_t{sizeof(T)});
}

template <class T>
void add() {
  const std::string dtype = std::string("/") + name(kDType<T>);
  for (const int64_t num_seqs : {8, 256}) {
    const std::string seqs = dtype + "/seqs:" + std::to_string(num_seqs);
    benchmark::RegisterBenchmark(("attention/kv_append" + seqs).c_str(), store<T>, num_seqs, 1);
    benchmark::RegisterBenchmark(("attention/merge_states" + seqs).c_str(), merge<T>, num_seqs);
  }
  benchmark::RegisterBenchmark(("attention/kv_init" + dtype + "/seqs:4/tokens:512").c_str(),
                               store<T>, 4, 512);
}

[[maybe_unused]] const bool registered = [] {
  add<float>();
  add<half>();
  return true;
}();

}  // namespace
}  // namespace heddle
