// Times rms_norm on the first GPU:
//   bench_rms_norm_cuda --json FILE [--quick]
// Rows of 64 and 512 MB, whose bytes come from memory: each call of a graph takes other rows, in a
// ring that is larger than the L2 cache; and 1 to 256 rows of 4096, where calls of a graph follow
// each other on the same rows, as a layer's do. floor_us is the bytes that are read and written at
// 4.28 TB/s (a copy on an H200), and at least an empty kernel in a graph, 0.53 us.

#include <algorithm>
#include <vector>

#include "heddle/ops/norm.h"

#include "core/device_bytes.h"
#include "testing/bench_program_cuda.h"

namespace heddle {
namespace {

using testing::kGpu;
using testing::RandomValues;

constexpr int64_t kRingBytes = int64_t{256} << 20;

/// kFusedF32: as a decoder has it, whose residual, addend and weight are f32 and whose output bf16.
enum class Form { kNorm, kFused, kFp8, kFusedFp8, kFusedF32 };
constexpr const char* kFormNames[] = {"plain", "fused add", "fp8", "fused add, fp8",
                                      "fused add, f32"};

struct Case {
  Form form;
  int64_t rows, width;

  [[nodiscard]] bool is_fused() const { return form != Form::kNorm && form != Form::kFp8; }
  [[nodiscard]] DType dtype() const {
    return form == Form::kFusedF32 ? DType::kFloat32 : DType::kBFloat16;
  }
  [[nodiscard]] bool is_fp8() const { return form == Form::kFp8 || form == Form::kFusedFp8; }
  [[nodiscard]] int64_t row_bytes() const {
    return width * ((is_fused() ? 3 : 1) * int64_t(size_of(dtype())) + (is_fp8() ? 1 : 2));
  }
};

/// A copy of the rows of x or y. `values` has room for f32 where these are.
TensorView rows_of(const RandomValues& values, const Case& c, int64_t copy, DType dtype) {
  const int64_t bytes = c.rows * c.width * std::max<int64_t>(2, int64_t(size_of(dtype)));
  return {values.data() + copy * bytes, dtype, kGpu, {c.rows, c.width}};
}

void time_case(testing::BenchProgram& bench, const Case& c) {
  const bool is_large = c.rows * c.width * 2 >= int64_t{64} << 20;
  const int64_t ring = is_large ? std::max<int64_t>(1, kRingBytes / (c.rows * c.width * 2)) : 1;
  const int64_t values = int64_t(size_of(c.dtype())) / 2;  // of RandomValues in an element
  const int64_t count = ring * c.rows * c.width;
  const RandomValues x(values * count), y(count);
  const RandomValues residual(c.is_fused() ? values * count : 1), weight(values * c.width);
  const DeviceBytes scales = allocate_zeroed(kGpu, static_cast<size_t>(c.rows) * sizeof(float));
  const ConstTensorView w = TensorView(weight.data(), c.dtype(), kGpu, {c.width});
  RmsNormOptions options;
  if (c.is_fp8()) {
    options.output_scale.per_row = TensorView(scales.get(), DType::kFloat32, kGpu, {c.rows});
  }
  const ExecContext& ctx = bench.context().exec();
  const int calls = is_large ? static_cast<int>(2 * ring) : 200;
  const auto call = [&](int i) {
    const int64_t copy = i % ring;
    const TensorView out = rows_of(y, c, copy, c.is_fp8() ? DType::kFloat8E4M3 : DType::kBFloat16);
    if (c.is_fused()) {
      fused_add_rms_norm(ctx, out, rows_of(residual, c, copy, c.dtype()),
                         rows_of(x, c, copy, c.dtype()), w, options);
    } else {
      rms_norm(ctx, out, rows_of(x, c, copy, c.dtype()), w, options);
    }
  };
  const testing::Replays replays{.warm_up = 3, .timed = bench.is_quick() ? 5 : 31};
  const int64_t bytes = c.rows * c.row_bytes();
  bench.add({{"op", "rms_norm"},
             {"form", kFormNames[static_cast<int>(c.form)]},
             {"dtype", c.dtype() == DType::kFloat32 ? "f32" : "bf16"},
             {"rows", c.rows},
             {"width", c.width},
             {"bytes", bytes},
             {"calls_in_graph", calls}},
            std::max(testing::kEmptyKernelUs, double(bytes) / testing::kCopyBytesPerUs),
            testing::time_in_graph(bench.stream(), calls, call, replays));
}

void run(testing::BenchProgram& bench) {
  std::vector<Case> cases;
  for (const Form form :
       {Form::kNorm, Form::kFused, Form::kFp8, Form::kFusedFp8, Form::kFusedF32}) {
    cases.push_back({form, 8192, 4096});
    cases.push_back({form, 65536, 4096});
    for (const int64_t rows : {1, 8, 32, 64, 128, 256}) cases.push_back({form, rows, 4096});
  }
  cases.push_back({Form::kNorm, 2048, 4096});
  cases.push_back({Form::kNorm, 16384, 4096});
  cases.push_back({Form::kNorm, 16384, 8192});
  for (const int64_t width : {64, 128, 256, 1024, 8192, 16384, 32768, 65536, 262144}) {
    cases.push_back({Form::kNorm, (int64_t{256} << 20) / width, width});  // 512 MB
  }
  for (const Case& c : cases) time_case(bench, c);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
