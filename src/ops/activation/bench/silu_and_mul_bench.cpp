#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/activation.h"

namespace heddle {
namespace {

/// One thread; gate and up are two views of one fused product, as in a model.
template <class T>
void run(benchmark::State& state, int64_t rows, int64_t width) {
  std::vector<T> fused(size_t(2 * rows * width)), output(size_t(rows * width));
  for (size_t i = 0; i < fused.size(); ++i) fused[i] = from_float<T>(0.01f * float(i % 997) - 5.0f);
  const ConstTensorView both = host_view(std::as_const(fused).data(), {rows, 2 * width});
  for (auto _ : state) {
    silu_and_mul({}, host_view(output.data(), {rows, width}), both.narrow(1, 0, width),
                 both.narrow(1, width, width));
    benchmark::DoNotOptimize(output.data());
  }
  state.SetBytesProcessed(state.iterations() * 3 * rows * width * int64_t{sizeof(T)});
  state.SetItemsProcessed(state.iterations() * rows * width);
}

template <class T>
void add() {
  for (const int64_t rows : {8, 512}) {
    const std::string shape = std::string("/") + name(kDType<T>) + "/rows:" + std::to_string(rows);
    benchmark::RegisterBenchmark(("activation/silu_and_mul" + shape + "/width:1536").c_str(),
                                 run<T>, rows, 1536);
  }
}

const bool registered = (add<float>(), add<half>(), add<bfloat16>(), true);

}  // namespace
}  // namespace heddle
