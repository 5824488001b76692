// Times mamba_state_selective_copy on the first GPU, states of the convolution and of the scan in one launch:
//   bench_mamba_state_selective_copy_cuda --json FILE [--quick]
// 3 drafts. Each call of a graph copies other counts of the same states, which from 64 requests on are larger than the L2 cache. floor_us is the bytes that are read and written at 4.28 TB/s (a plain copy on an H200), and at
// least an empty kernel in a graph, 1.03 us.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/check.h"

#include "heddle/core/cuda_context.h"
#include "heddle/ops/mamba.h"

#include "core/device_bytes.h"
#include "testing/graph_timing_cuda.h"

namespace heddle {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr double kCopyBytesPerUs = 4.28e6, kEmptyKernelUs = 1.03;
constexpr int64_t kDrafts = 3;

struct Case {
  int64_t layers, requests, conv_bytes, scan_bytes;
  [[nodiscard]] int64_t bytes() const { return 2 * layers * requests * (conv_bytes + scan_bytes); }
};

/// A small model's states; and larger ones in 24 and 48 layers, together and each alone.
constexpr Case kCases[] = {
    {4, 1, 6 << 10, 128 << 10},    {4, 8, 6 << 10, 128 << 10},    {4, 64, 6 << 10, 128 << 10},
    {4, 256, 6 << 10, 128 << 10},  {4, 1024, 6 << 10, 128 << 10}, {24, 32, 64 << 10, 2 << 20},
    {48, 64, 64 << 10, 256 << 10}, {24, 8, 0, 2 << 20},           {24, 32, 0, 2 << 20},
    {48, 64, 0, 256 << 10},        {24, 64, 64 << 10, 0},
};

/// Memory of the states of n requests.
class State {
 public:
  State(int64_t layers, int64_t n, int64_t bytes)
      : layers_(layers),
        n_(n),
        bytes_(bytes),
        current_(allocate_zeroed(kGpu, static_cast<size_t>(layers * n * bytes))),
        intermediate_(
            allocate_zeroed(kGpu, static_cast<size_t>(layers * n * (kDrafts + 1) * bytes))) {}
  [[nodiscard]] MambaState view() const {
    return {
        TensorView(current_.get(), DType::kUInt8, kGpu, {layers_, n_, bytes_}),
        TensorView(intermediate_.get(), DType::kUInt8, kGpu, {layers_, n_, kDrafts + 1, bytes_})};
  }

 private:
  int64_t layers_, n_, bytes_;
  DeviceBytes current_, intermediate_;
};

class Indices {
 public:
  explicit Indices(const std::vector<int32_t>& values)
      : size_(static_cast<int64_t>(values.size())),
        memory_(allocate_zeroed(kGpu, values.size() * sizeof(int32_t))) {
    HEDDLE_CUDA_CHECK(cudaMemcpy(memory_.get(), values.data(), values.size() * sizeof(int32_t),
                                 cudaMemcpyHostToDevice));
    HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
  }
  [[nodiscard]] ConstTensorView view() const {
    return TensorView(memory_.get(), DType::kInt32, kGpu, {size_});
  }

 private:
  int64_t size_;
  DeviceBytes memory_;
};

std::vector<double> time_copies(const CudaContext& context, cudaStream_t stream, const Case& c,
                                bool is_quick) {
  const int64_t n = c.requests;
  // A state of no elements is one that is left out.
  const State conv(c.layers, n, c.conv_bytes), scan(c.layers, n, c.scan_bytes);
  const MambaState states[] = {conv.view(), scan.view()};
  std::vector<int32_t> slots(static_cast<size_t>(n));
  std::iota(slots.begin(), slots.end(), 0);
  std::reverse(slots.begin(), slots.end());
  const Indices prefill(std::vector<int32_t>(static_cast<size_t>(n))), state_idx(slots);
  std::vector<Indices> accepted;
  for (int64_t first = 0; first <= kDrafts; ++first) {
    std::vector<int32_t> counts;
    for (int64_t i = 0; i < n; ++i) {
      counts.push_back(static_cast<int32_t>((first + i) % (kDrafts + 1)));
    }
    accepted.emplace_back(counts);
  }
  const testing::Replays replays{.warm_up = 3, .timed = is_quick ? 5 : 31};
  return testing::time_in_graph(
      stream, c.bytes() < (10 << 20) ? 200 : 20,
      [&](int i) {
        mamba_state_selective_copy(context.exec(), states, prefill.view(), state_idx.view(),
                                   accepted[static_cast<size_t>(i) % accepted.size()].view(),
                                   c.layers);
      },
      replays);
}

void run(const std::string& path, bool is_quick) {
  cudaStream_t stream = nullptr;
  HEDDLE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    const CudaContext context(kGpu, stream, 0);
    std::ofstream file(path);
    const char* separator = "[\n";
    for (const Case& c : kCases) {
      const std::vector<double> samples = time_copies(context, stream, c, is_quick);
      std::vector<double> sorted = samples;
      std::sort(sorted.begin(), sorted.end());
      const double us = sorted[sorted.size() / 2];
      const int64_t bytes = c.bytes();
      const double floor_us =
          std::max(kEmptyKernelUs, static_cast<double>(bytes) / kCopyBytesPerUs);
      std::printf(
          "%2lld layers, %4lld requests, %6lld and %7lld bytes  %9.2f us  floor %8.2f  %5.2f "
          "TB/s\n",
          static_cast<long long>(c.layers), static_cast<long long>(c.requests),
          static_cast<long long>(c.conv_bytes), static_cast<long long>(c.scan_bytes), us, floor_us,
          static_cast<double>(bytes) / us * 1e-6);
      std::fflush(stdout);
      file << separator << R"({"op": "mamba_state_selective_copy", "layers": )" << c.layers
           << R"(, "requests": )" << c.requests << R"(, "conv_bytes": )" << c.conv_bytes
           << R"(, "scan_bytes": )" << c.scan_bytes << R"(, "bytes": )" << bytes
           << R"(, "floor_us": )" << floor_us << R"(, "us": )" << us << R"(, "samples": )";
      for (size_t i = 0; i < samples.size(); ++i) file << (i == 0 ? "[" : ", ") << samples[i];
      file << "]}";
      separator = ",\n";
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
