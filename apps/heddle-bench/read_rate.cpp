#include "read_rate.h"

#include <chrono>

#include <benchmark/benchmark.h>

#include "heddle/config.h"
#include "heddle/core/cuda_context.h"
#include "heddle/core/thread_pool.h"

namespace heddle::app {

std::vector<double> time_reads(Device device, int num_threads, int64_t num_bytes, int num_samples) {
  if constexpr (kWithCuda) {
    if (device.type == DeviceType::kCuda) {
      const ScopedDevice on_device(device);
      return time_cuda_reads(num_bytes, num_samples);
    }
  }
  constexpr int64_t kLanes = 8, kGrain = 8192;  // 64 KiB
  const std::vector<uint64_t> memory(static_cast<size_t>(num_bytes) / sizeof(uint64_t), 1);
  ThreadPool pool(num_threads);
  std::vector<double> samples;
  for (int sample = -1; sample < num_samples; ++sample) {
    const auto begin = std::chrono::steady_clock::now();
    pool.parallel_for(std::ssize(memory), kGrain, [&](int64_t first, int64_t last) {
      uint64_t sums[kLanes] = {};
      for (int64_t i = first; i + kLanes <= last; i += kLanes) {
        for (int64_t j = 0; j < kLanes; ++j) sums[j] += memory[static_cast<size_t>(i + j)];
      }
      benchmark::DoNotOptimize(sums);
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (sample >= 0) samples.push_back(seconds.count());
  }
  return samples;
}

}  // namespace heddle::app
