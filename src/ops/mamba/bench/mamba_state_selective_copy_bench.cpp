#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/mamba.h"

namespace heddle {
namespace {

constexpr int64_t kLayers = 4, kDrafts = 3;

/// A convolution's and a scan's state for num_requests requests: bytes of each state.
struct Shape {
  int64_t num_requests, conv_bytes, scan_bytes;
};

/// Bytes are those of the states, read and written, for each call.
void copy(benchmark::State& bench, const Shape& shape, int num_threads) {
  const int64_t n = shape.num_requests;
  const auto tensors = [&](int64_t bytes, std::vector<uint8_t>& current,
                           std::vector<uint8_t>& intermediate) {
    current.assign(size_t(kLayers * n * bytes), 1);
    intermediate.assign(size_t(kLayers * n * (kDrafts + 1) * bytes), 2);
    return MambaState{
        host_view(current.data(), {kLayers, n, bytes}),
        ConstTensorView(host_view(intermediate.data(), {kLayers, n, kDrafts + 1, bytes}))};
  };
  std::vector<uint8_t> conv, conv_from, scan, scan_from;
  const MambaState states[] = {tensors(shape.conv_bytes, conv, conv_from),
                               tensors(shape.scan_bytes, scan, scan_from)};
  std::vector<int32_t> prefill(size_t(n), 0), slots(size_t(n), 0), accepted;
  std::iota(slots.begin(), slots.end(), 0);
  for (int64_t i = 0; i < n; ++i) accepted.push_back(int32_t(i % (kDrafts + 1)));
  ThreadPool pool(num_threads);
  ExecContext ctx;
  ctx.threads = &pool;
  for (auto _ : bench) {
    mamba_state_selective_copy(ctx, states, host_view(prefill.data(), {n}),
                               host_view(slots.data(), {n}), host_view(accepted.data(), {n}),
                               kLayers);
    benchmark::DoNotOptimize(scan.data());
  }
  bench.SetBytesProcessed(bench.iterations() * 2 * kLayers * n *
                          (shape.conv_bytes + shape.scan_bytes));
}

/// What memory gives: one memcpy of as many bytes.
void one_memcpy(benchmark::State& bench, const Shape& shape) {
  const size_t bytes = size_t(kLayers * shape.num_requests * (shape.conv_bytes + shape.scan_bytes));
  const std::vector<uint8_t> from(bytes, 1);
  std::vector<uint8_t> to(bytes, 2);
  for (auto _ : bench) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  bench.SetBytesProcessed(bench.iterations() * 2 * int64_t(bytes));
}

[[maybe_unused]] const bool registered = [] {
  // One request, whose states fit in a core's cache, and 64, whose states are 34 MB.
  for (const Shape shape : {Shape{1, 6 << 10, 128 << 10}, Shape{64, 6 << 10, 128 << 10}}) {
    const std::string requests = "/requests:" + std::to_string(shape.num_requests);
    for (const int threads : {1, 2}) {
      benchmark::RegisterBenchmark(
          ("mamba/selective_copy" + requests + "/threads:" + std::to_string(threads)).c_str(), copy,
          shape, threads);
    }
    benchmark::RegisterBenchmark(("mamba/memcpy" + requests).c_str(), one_memcpy, shape);
  }
  return true;
}();

}  // namespace
}  // namespace heddle
