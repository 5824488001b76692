#pragma once

#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/core/tensor_view.h"

// Times y = f(gate) * up on one thread; gate and up are two views of one fused product, as in a
// model.

namespace heddle {

using GatedCall = void (*)(TensorView y, ConstTensorView gate, ConstTensorView up);

template <class T>
void time_gated(benchmark::State& state, GatedCall call, int64_t rows, int64_t width) {
  std::vector<T> fused(size_t(2 * rows * width)), output(size_t(rows * width));
  for (size_t i = 0; i < fused.size(); ++i) fused[i] = from_float<T>(0.01f * float(i % 997) - 5.0f);
  const ConstTensorView both = host_view(std::as_const(fused).data(), {rows, 2 * width});
  for (auto _ : state) {
    call(host_view(output.data(), {rows, width}), both.narrow(1, 0, width),
         both.narrow(1, width, width));
    benchmark::DoNotOptimize(output.data());
  }
  state.SetBytesProcessed(state.iterations() * 3 * rows * width * int64_t{sizeof(T)});
  state.SetItemsProcessed(state.iterations() * rows * width);
}

template <class T>
void add_gated_bench_of(const std::string& op, GatedCall call) {
  for (const int64_t rows : {8, 512}) {
    const std::string shape = std::string("/") + name(kDType<T>) + "/rows:" + std::to_string(rows);
    benchmark::RegisterBenchmark(("activation/" + op + shape + "/width:1536").c_str(),
                                 time_gated<T>, call, rows, 1536);
  }
}

inline void add_gated_bench(const std::string& op, GatedCall call) {
  add_gated_bench_of<float>(op, call);
  add_gated_bench_of<half>(op, call);
  add_gated_bench_of<bfloat16>(op, call);
}

}  // namespace heddle
