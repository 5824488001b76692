#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/embedding.h"

namespace heddle {
namespace {

/// One thread; the rows of a prefill of 512 tokens, all over the table of a small model.
template <class T>
void run(benchmark::State& state) {
  constexpr int64_t kVocab = 49152, kWidth = 576, kTokens = 512;
  const std::vector<T> table(size_t{kVocab * kWidth}, from_float<T>(0.5f));
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < kTokens; ++t) ids.push_back(static_cast<int32_t>(t * 7919 % kVocab));
  std::vector<float> y(size_t{kTokens * kWidth});
  for (auto _ : state) {
    embedding({}, host_view(y.data(), {kTokens, kWidth}), host_view(ids.data(), {kTokens}),
              host_view(table.data(), {kVocab, kWidth}));
    benchmark::DoNotOptimize(y.data());
  }
  state.SetBytesProcessed(state.iterations() * kTokens * kWidth *
                          int64_t{sizeof(T) + sizeof(float)});
}

template <class T>
void add() {
  const std::string type = name(kDType<T>);
  benchmark::RegisterBenchmark(("embedding/embedding/" + type + "/tokens:512/width:576").c_str(),
                               run<T>);
}

const bool registered = (add<float>(), add<half>(), add<bfloat16>(), true);

}  // namespace
}  // namespace heddle
