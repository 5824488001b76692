#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/rope.h"

namespace heddle {
namespace {

constexpr int64_t kHeads = 9, kHeadDim = 64;

/// One thread, angles from a table or made on the way.
template <class T>
void run(benchmark::State& state, int64_t tokens, bool from_table) {
  std::vector<T> x(size_t(tokens * kHeads * kHeadDim), from_float<T>(0.5f));
  std::vector<int32_t> positions(static_cast<size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t) positions[size_t(t)] = int32_t(t);
  std::vector<float> cos(size_t(tokens * kHeadDim / 2)), sin(cos.size());
  const TensorView x_view = host_view(x.data(), {tokens, kHeads, kHeadDim});
  const TensorView cos_view = host_view(cos.data(), {tokens, kHeadDim / 2});
  const TensorView sin_view = host_view(sin.data(), {tokens, kHeadDim / 2});
  const ConstTensorView at = host_view(positions.data(), {tokens});
  rope_table({}, cos_view, sin_view, at, RopeParams{});
  for (auto _ : state) {
    if (from_table) {
      rope({}, x_view, cos_view, sin_view);
    } else {
      rope({}, x_view, at, RopeParams{});
    }
    benchmark::DoNotOptimize(x.data());
  }
  state.SetItemsProcessed(state.iterations() * tokens * kHeads * kHeadDim);
}

template <class T>
void add() {
  for (const int64_t tokens : {8, 512}) {
    const std::string shape =
        std::string("/") + name(kDType<T>) + "/tokens:" + std::to_string(tokens);
    benchmark::RegisterBenchmark(("rope/table" + shape).c_str(), run<T>, tokens, true);
    benchmark::RegisterBenchmark(("rope/positions" + shape).c_str(), run<T>, tokens, false);
  }
}

const bool registered = (add<float>(), add<half>(), add<bfloat16>(), true);

}  // namespace
}  // namespace heddle
