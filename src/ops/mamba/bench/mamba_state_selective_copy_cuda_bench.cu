// Times mamba_state_selective_copy on the first GPU, states of the convolution and of the scan in
// one launch:
//   bench_mamba_state_selective_copy_cuda --json FILE [--quick]
// 3 drafts. Each call of a graph copies other counts of the same states, which from 64 requests on
// are larger than the L2 cache. floor_us is the bytes that are read and written at 4.28 TB/s (a
// plain copy on an H200), and at least an empty kernel in a graph, 0.53 us.

#include <algorithm>
#include <numeric>
#include <vector>

#include "heddle/ops/mamba.h"

#include "core/device_bytes.h"
#include "testing/bench_program_cuda.h"

namespace heddle {
namespace {

using testing::DeviceIndices;
using testing::kGpu;

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

std::vector<double> time_copies(testing::BenchProgram& bench, const Case& c) {
  const int64_t n = c.requests;
  // A state of no elements is one that is left out.
  const State conv(c.layers, n, c.conv_bytes), scan(c.layers, n, c.scan_bytes);
  const MambaState states[] = {conv.view(), scan.view()};
  std::vector<int32_t> slots(static_cast<size_t>(n));
  std::iota(slots.begin(), slots.end(), 0);
  std::reverse(slots.begin(), slots.end());
  const DeviceIndices prefill(std::vector<int32_t>(static_cast<size_t>(n))), state_idx(slots);
  std::vector<DeviceIndices> accepted;
  for (int64_t first = 0; first <= kDrafts; ++first) {
    std::vector<int32_t> counts;
    for (int64_t i = 0; i < n; ++i) {
      counts.push_back(static_cast<int32_t>((first + i) % (kDrafts + 1)));
    }
    accepted.emplace_back(counts);
  }
  const testing::Replays replays{.warm_up = 3, .timed = bench.is_quick() ? 5 : 31};
  return testing::time_in_graph(
      bench.stream(), c.bytes() < (10 << 20) ? 200 : 20,
      [&](int i) {
        mamba_state_selective_copy(bench.context().exec(), states, prefill.view(), state_idx.view(),
                                   accepted[static_cast<size_t>(i) % accepted.size()].view(),
                                   c.layers);
      },
      replays);
}

void run(testing::BenchProgram& bench) {
  for (const Case& c : kCases) {
    const double floor_us =
        std::max(testing::kEmptyKernelUs, double(c.bytes()) / testing::kCopyBytesPerUs);
    bench.add({{"op", "mamba_state_selective_copy"},
               {"layers", c.layers},
               {"requests", c.requests},
               {"conv_bytes", c.conv_bytes},
               {"scan_bytes", c.scan_bytes},
               {"bytes", c.bytes()}},
              floor_us, time_copies(bench, c));
  }
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
