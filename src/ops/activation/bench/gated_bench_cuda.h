#pragma once

// Times an operation y = f(gate) * up on the first GPU. bf16; gate and up are two views of one
// fused product, as in a model. Calls of a graph follow each other: on rows of their own where all
// calls together do not fit into the L2 cache, else on the same rows. floor_us is the bytes that
// are read and written at 4.28 TB/s (a copy on an H200), and at least an empty kernel in a graph,
// 0.53 us.

#include <algorithm>
#include <vector>

#include "testing/bench_program_cuda.h"

namespace heddle {

struct GatedBench {
  const char *op, *form;
  void (*run)(const ExecContext&, TensorView y, ConstTensorView gate, ConstTensorView up);
};

inline void time_gated(testing::BenchProgram& bench, const GatedBench& op, int64_t rows,
                       int64_t width) {
  constexpr int64_t kRingBytes = int64_t{256} << 20;
  const int64_t bytes = rows * width * 3 * 2;
  const bool is_large = bytes >= int64_t{64} << 20;
  const int64_t ring = is_large ? std::max<int64_t>(1, kRingBytes / bytes) + 1 : 1;
  const testing::RandomValues fused(ring * rows * 2 * width, 4.0), y(ring * rows * width);
  const ExecContext& ctx = bench.context().exec();
  const auto call = [&](int i) {
    const int64_t first = i % ring * rows;
    const TensorView both = fused.view(rows, 2 * width, first * 2 * width);
    op.run(ctx, y.view(rows, width, first * width), both.narrow(1, 0, width),
           both.narrow(1, width, width));
  };
  const int calls = is_large ? static_cast<int>(2 * ring) : 200;
  const testing::Replays replays{.warm_up = 3, .timed = bench.is_quick() ? 5 : 31};
  bench.add({{"op", op.op},
             {"form", op.form},
             {"dtype", "bf16"},
             {"rows", rows},
             {"width", width},
             {"bytes", bytes},
             {"calls_in_graph", calls}},
            std::max(testing::kEmptyKernelUs, double(bytes) / testing::kCopyBytesPerUs),
            testing::time_in_graph(bench.stream(), calls, call, replays));
}

/// Decode and prefill of layers with 14336 inner features (Llama 3 8B, Gemma 2 9B), and a width
/// that is no multiple of a vector.
inline void time_gated_cases(testing::BenchProgram& bench, const GatedBench& op) {
  for (const int64_t rows : {1, 8, 64, 256, 8192}) time_gated(bench, op, rows, 14336);
  time_gated(bench, op, 8192, 14333);
}

}  // namespace heddle
