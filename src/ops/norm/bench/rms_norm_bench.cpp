#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/norm.h"

namespace heddle {
namespace {

/// One thread, rows in cache: what a decode step (8 rows) and a prefill (512 rows) of a small model
/// ask for.
template <class T>
void run(benchmark::State& state, int64_t rows, int64_t width, bool fused) {
  std::vector<T> residual(size_t(rows * width), from_float<T>(0.5f)), output = residual;
  // Zeros keep the residual finite, however often it is added to.
  const std::vector<T> input = fused ? std::vector<T>(output.size()) : output;
  const std::vector<float> weight(size_t(width), 1.0f);
  const ConstTensorView x = host_view(input.data(), {rows, width});
  const ConstTensorView w = host_view(weight.data(), {width});
  for (auto _ : state) {
    const TensorView y = host_view(output.data(), {rows, width});
    if (fused) {
      fused_add_rms_norm({}, y, host_view(residual.data(), {rows, width}), x, w);
    } else {
      rms_norm({}, y, x, w);
    }
    benchmark::DoNotOptimize(output.data());
  }
  const int64_t tensors = fused ? 4 : 2;  // input, output, and the residual twice
  state.SetBytesProcessed(state.iterations() * tensors * rows * width * int64_t{sizeof(T)});
}

template <class T>
void add() {
  for (const int64_t width : {64, 576, 4096}) {
    for (const int64_t rows : {8, 512}) {
      const std::string shape = std::string("/") + name(kDType<T>) +
                                "/rows:" + std::to_string(rows) + "/width:" + std::to_string(width);
      benchmark::RegisterBenchmark(("norm/rms_norm" + shape).c_str(), run<T>, rows, width, false);
      benchmark::RegisterBenchmark(("norm/fused_add_rms_norm" + shape).c_str(), run<T>, rows, width,
                                   true);
    }
  }
}

const bool registered = (add<float>(), add<half>(), add<bfloat16>(), true);

}  // namespace
}  // namespace heddle
