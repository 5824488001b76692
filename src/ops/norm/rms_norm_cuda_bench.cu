// Times rms_norm on the first GPU:
//   bench_rms_norm_cuda --json FILE [--quick]
// Rows of 64 and 512 MB, whose bytes come from memory: each call of a graph takes other rows, in a ring that is larger than the L2
// cache; and 1 to 256 rows of 4096, where calls of a graph follow each other on the same rows, as a layer's do.
// floor_us is the bytes that are read and written at 4.28 TB/s (a copy on an H200), and at least an empty kernel in a graph, 1.03 us.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "cuda/check.h"

#include "heddle/core/cuda_context.h"
#include "heddle/ops/norm.h"

#include "core/device_bytes.h"
#include "testing/graph_timing_cuda.h"

namespace heddle {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr double kCopyBytesPerUs = 4.28e6, kEmptyKernelUs = 1.03;
constexpr int64_t kRingBytes = int64_t{256} << 20;

enum class Form { kPlain, kFused, kFp8, kFusedFp8 };
constexpr const char* kFormNames[] = {"plain", "fused add", "fp8", "fused add, fp8"};

struct Case {
  Form form;
  int64_t rows, width;

  [[nodiscard]] bool is_fused() const { return form == Form::kFused || form == Form::kFusedFp8; }
  [[nodiscard]] bool is_fp8() const { return form == Form::kFp8 || form == Form::kFusedFp8; }
  [[nodiscard]] int64_t row_bytes() const {
    return width * ((is_fused() ? 3 * 2 : 2) + (is_fp8() ? 1 : 2));
  }
};

/// Sines of any phase in bf16: a bit pattern that no clock likes better than another.
__global__ void fill_kernel(uint16_t* values, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const float value = __sinf(static_cast<float>((i * 2654435761) % 1000003));
    values[i] = static_cast<uint16_t>(__float_as_uint(value) >> 16);
  }
}

class Rows {
 public:
  explicit Rows(int64_t count) : memory_(allocate_zeroed(kGpu, static_cast<size_t>(count * 2))) {
    fill_kernel<<<1024, 256>>>(reinterpret_cast<uint16_t*>(memory_.get()), count);
    HEDDLE_CUDA_CHECK(cudaGetLastError());
    HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
  }
  [[nodiscard]] TensorView view(const Case& c, int64_t copy, DType dtype = DType::kBFloat16) const {
    return {memory_.get() + copy * c.rows * c.width * 2, dtype, kGpu, {c.rows, c.width}};
  }

  [[nodiscard]] std::byte* raw() const { return memory_.get(); }

 private:
  DeviceBytes memory_;
};

struct Record {
  Case c;
  int calls;
  std::vector<double> samples;

  [[nodiscard]] double median() const {
    std::vector<double> sorted = samples;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

Record time_case(const CudaContext& context, cudaStream_t stream, const Case& c, bool is_quick) {
  const bool is_large = c.rows * c.width * 2 >= int64_t{64} << 20;
  const int64_t ring = is_large ? std::max<int64_t>(1, kRingBytes / (c.rows * c.width * 2)) : 1;
  const Rows x(ring * c.rows * c.width), y(ring * c.rows * c.width);
  const Rows residual(c.is_fused() ? ring * c.rows * c.width : 1), weight(c.width);
  const DeviceBytes scales = allocate_zeroed(kGpu, static_cast<size_t>(c.rows) * sizeof(float));
  const ConstTensorView w = TensorView(weight.raw(), DType::kBFloat16, kGpu, {c.width});
  RmsNormOptions options;
  if (c.is_fp8()) {
    options.output_scale.per_row = TensorView(scales.get(), DType::kFloat32, kGpu, {c.rows});
  }
  const int calls = is_large ? static_cast<int>(2 * ring) : 200;
  const auto call = [&](int i) {
    const int64_t copy = i % ring;
    const TensorView out = y.view(c, copy, c.is_fp8() ? DType::kFloat8E4M3 : DType::kBFloat16);
    if (c.is_fused()) {
      fused_add_rms_norm(context.exec(), out, residual.view(c, copy), x.view(c, copy), w, options);
    } else {
      rms_norm(context.exec(), out, x.view(c, copy), w, options);
    }
  };
  const testing::Replays replays{.warm_up = 3, .timed = is_quick ? 5 : 31};
  return {c, calls, testing::time_in_graph(stream, calls, call, replays)};
}

void write(std::ofstream& file, const Record& r, bool is_first) {
  const auto bytes = static_cast<double>(r.c.rows * r.c.row_bytes());
  const double floor_us = std::max(kEmptyKernelUs, bytes / kCopyBytesPerUs), us = r.median();
  std::printf("%-15s %7lld rows of %6lld  %9.2f us  floor %8.2f  %5.2f TB/s\n",
              kFormNames[static_cast<int>(r.c.form)], static_cast<long long>(r.c.rows),
              static_cast<long long>(r.c.width), us, floor_us, bytes / us * 1e-6);
  std::fflush(stdout);
  file << (is_first ? "[\n" : ",\n") << R"({"op": "rms_norm", "form": ")"
       << kFormNames[static_cast<int>(r.c.form)] << R"(", "dtype": "bf16", "rows": )" << r.c.rows
       << R"(, "width": )" << r.c.width << R"(, "bytes": )" << r.c.rows * r.c.row_bytes()
       << R"(, "calls_in_graph": )" << r.calls << R"(, "floor_us": )" << floor_us << R"(, "us": )"
       << us << R"(, "samples": )";
  for (size_t i = 0; i < r.samples.size(); ++i) file << (i == 0 ? "[" : ", ") << r.samples[i];
  file << "]}";
}

void run(const std::string& path, bool is_quick) {
  std::vector<Case> cases;
  for (const Form form : {Form::kPlain, Form::kFused, Form::kFp8, Form::kFusedFp8}) {
    cases.push_back({form, 8192, 4096});
    cases.push_back({form, 65536, 4096});
    for (const int64_t rows : {1, 8, 32, 64, 128, 256}) cases.push_back({form, rows, 4096});
  }
  cases.push_back({Form::kPlain, 2048, 4096});
  cases.push_back({Form::kPlain, 16384, 4096});
  cases.push_back({Form::kPlain, 16384, 8192});
  for (const int64_t width : {64, 128, 256, 1024, 8192, 16384, 32768, 65536, 262144}) {
    cases.push_back({Form::kPlain, (int64_t{256} << 20) / width, width});  // 512 MB
  }
  cudaStream_t stream = nullptr;
  HEDDLE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    const CudaContext context(kGpu, stream, 0);
    std::ofstream file(path);
    bool is_first = true;
    for (const Case& c : cases) {
      write(file, time_case(context, stream, c, is_quick), is_first);
      is_first = false;
    }
    file << "\n]\n";
    file.close();
    HEDDLE_CHECK(!file.fail(), "cannot write ", path);
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  std::string path;
  bool is_quick = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      is_quick = true;
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      path = argv[++i];
    }
  }
  if (path.empty()) {
    std::fprintf(stderr, "%s --json FILE [--quick]\n", argv[0]);
    return 2;
  }
  try {
    const heddle::ScopedDevice current({heddle::DeviceType::kCuda, 0});
    heddle::run(path, is_quick);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
