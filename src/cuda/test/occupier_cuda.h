#pragma once

// A kernel that holds most of a chip, for tests of kernels whose blocks wait for one another.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "cuda/check.h"

#include "device_memory.h"

namespace heddle::testing {

/// What the host and the occupying kernel tell each other, in memory of the host.
struct OccupierSignals {
  static constexpr int kMaxBlocks = 1024;
  int stop, gave_up;
  int started[kMaxBlocks];
};

__device__ inline uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// Every block holds an SM until the host says stop. After limit_ns it leaves and says so: a test
// that fails, not one that hangs. Grid: the SMs to hold; block: one thread; dynamic shared memory:
// all that a block can have, so that no other block fits on the SM.
static __global__ void occupy_kernel(volatile OccupierSignals* signals, uint64_t limit_ns) {
  signals->started[blockIdx.x] = 1;
  const uint64_t begin = nanoseconds();
  while (signals->stop == 0) {
    if (nanoseconds() - begin > limit_ns) {
      signals->gave_up = 1;
      return;
    }
    __nanosleep(200);
  }
}

/// Holds SMs from its construction to release().
class Occupier {
 public:
  explicit Occupier(int device) {
    HEDDLE_CUDA_CHECK(cudaDeviceGetAttribute(&num_sms_, cudaDevAttrMultiProcessorCount, device));
    HEDDLE_CUDA_CHECK(
        cudaDeviceGetAttribute(&shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    HEDDLE_CUDA_CHECK(cudaFuncSetAttribute(
        occupy_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes_));
    HEDDLE_CUDA_CHECK(
        cudaHostAlloc(reinterpret_cast<void**>(const_cast<OccupierSignals**>(&signals_)),
                      sizeof(OccupierSignals), cudaHostAllocDefault));
  }
  ~Occupier() {
    signals_->stop = 1;
    cudaStreamSynchronize(stream_.get());
    cudaFreeHost(const_cast<OccupierSignals*>(signals_));
  }
  Occupier(const Occupier&) = delete;
  Occupier& operator=(const Occupier&) = delete;

  /// Leaves `free_sms` to others; returns when all the rest is held.
  void hold(int free_sms) {
    const int blocks = std::clamp(num_sms_ - free_sms, 1, OccupierSignals::kMaxBlocks);
    signals_->stop = 0;
    signals_->gave_up = 0;
    for (int i = 0; i < blocks; ++i) signals_->started[i] = 0;
    constexpr uint64_t kLimit = 20'000'000'000;
    occupy_kernel<<<static_cast<unsigned>(blocks), 1, static_cast<size_t>(shared_bytes_),
                    stream_.get()>>>(signals_, kLimit);
    HEDDLE_CUDA_CHECK(cudaGetLastError());
    for (int i = 0; i < blocks; ++i) {
      while (signals_->started[i] == 0 && signals_->gave_up == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(5));
      }
    }
  }
  /// Whether the kernel held on until now.
  [[nodiscard]] bool release() {
    const bool held = signals_->gave_up == 0;
    signals_->stop = 1;
    stream_.wait();
    return held;
  }

 private:
  int num_sms_ = 0, shared_bytes_ = 0;
  volatile OccupierSignals* signals_ = nullptr;
  DeviceStream stream_;
};

/// Waits for the stream, but ends the process when that takes longer than the occupier holds on: a
/// kernel that hangs cannot be stopped, and the end of the test would wait for it, too.
inline void wait_or_end(cudaStream_t stream, const char* what, int round) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience(60);
  const auto begin = Clock::now();
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady) {
      HEDDLE_CUDA_CHECK(state);
      return;
    }
    (void)cudaGetLastError();  // not ready is no error
    if (Clock::now() - begin > kPatience) {
      std::fprintf(stderr, "%s hangs, round %d\n", what, round);
      std::fflush(stderr);
      std::_Exit(1);
    }
    std::this_thread::yield();
  }
}

/// HEDDLE_TEST_ROUNDS, or what is usual.
inline int num_rounds(int usual) {
  const char* given = std::getenv("HEDDLE_TEST_ROUNDS");
  return given != nullptr ? std::max(1, std::atoi(given)) : usual;
}

}  // namespace heddle::testing
