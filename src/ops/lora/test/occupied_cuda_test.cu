// LoRA while another kernel holds most of the chip.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "cuda/check.h"
#include <gtest/gtest.h>

#include "ops/lora/test/lora_cuda_cases.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

/// What the host and the occupying kernel tell each other, in memory of the host.
struct Signals {
  static constexpr int kMaxBlocks = 1024;
  int stop, gave_up;
  int started[kMaxBlocks];
};

__device__ uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// Every block holds an SM until the host says stop. After limit_ns it leaves and says so: a test
// that fails, not one that hangs. Grid: the SMs to hold; block: one thread; dynamic shared memory:
// all that a block can have, so that no other block fits beside.
__global__ void occupy_kernel(volatile Signals* signals, uint64_t limit_ns) {
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
    HEDDLE_CUDA_CHECK(cudaHostAlloc(reinterpret_cast<void**>(const_cast<Signals**>(&signals_)),
                                    sizeof(Signals), cudaHostAllocDefault));
  }
  ~Occupier() {
    signals_->stop = 1;
    cudaStreamSynchronize(stream_.get());
    cudaFreeHost(const_cast<Signals*>(signals_));
  }
  Occupier(const Occupier&) = delete;
  Occupier& operator=(const Occupier&) = delete;

  /// Leaves `free_sms` to others; returns when all the rest is held.
  void hold(int free_sms) {
    const int blocks = std::clamp(num_sms_ - free_sms, 1, Signals::kMaxBlocks);
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
  volatile Signals* signals_ = nullptr;
  DeviceStream stream_;
};

/// Waits for the stream, but ends the process when that takes longer than the occupier holds on: a
/// kernel that hangs cannot be stopped, and the end of the test would wait for it, too.
void wait_or_end(const LoraStream& stream, int round) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience(60);
  const auto begin = Clock::now();
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream.get());
    if (state != cudaErrorNotReady) {
      HEDDLE_CUDA_CHECK(state);
      return;
    }
    (void)cudaGetLastError();  // not ready is no error
    if (Clock::now() - begin > kPatience) {
      std::fprintf(stderr, "LoRA hangs, round %d\n", round);
      std::fflush(stderr);
      std::_Exit(1);
    }
    std::this_thread::yield();
  }
}

/// HEDDLE_TEST_ROUNDS, or what is usual.
int num_rounds(int usual) {
  const char* given = std::getenv("HEDDLE_TEST_ROUNDS");
  return given != nullptr ? std::max(1, std::atoi(given)) : usual;
}

class LoraOccupied : public CudaTest {};

TEST_F(LoraOccupied, TwoStreamsFinishBesideAKernelThatHoldsMostOfTheChip) {
  const Device device = cuda_context().device;
  // Few enough blocks that ten thousand rounds take minutes, and more than fit beside the occupier:
  // 8 of each stream.
  constexpr int kSms = 4;
  DeviceSite<bfloat16> sites[] = {{3, 1104, {512}, 16, true}, {3, 520, {64, 72}, 24, false}};
  const LoraStream in_one[] = {{device, sites[0].workspace_bytes(), true},
                               {device, sites[1].workspace_bytes(), true}};
  const LoraStream in_two[] = {{device, sites[0].workspace_bytes(), false},
                               {device, sites[1].workspace_bytes(), false}};
  std::vector<std::vector<uint16_t>> want;
  for (size_t s = 0; s < 2; ++s) {
    want.push_back(sites[s].expected_bits(device));
    sites[s].apply(in_one[s].ctx_of_chip(kSms),
                   true);  // loads the kernels: that waits for the device
  }
  // compute-sanitizer runs one kernel at a time.
  std::optional<Occupier> occupier;
  if (!small_sizes()) occupier.emplace(device.index);
  const int rounds = num_rounds(small_or(3, 60));
  for (int round = 0; round < rounds; ++round) {
    for (auto& site : sites) site.restart();
    if (occupier) occupier->hold(1 << round % 4);
    const LoraStream* streams = round % 5 == 4 ? in_two : in_one;
    for (size_t s = 0; s < 2; ++s) {
      sites[s].apply(streams[s].ctx_of_chip(kSms), round % 3 == 0);
    }
    for (size_t s = 0; s < 2; ++s) wait_or_end(streams[s], round);
    if (occupier) ASSERT_TRUE(occupier->release()) << "LoRA waited for the chip, round " << round;
    for (size_t s = 0; s < 2; ++s) ASSERT_EQ(sites[s].bits(), want[s]) << "round " << round;
  }
}

}  // namespace
}  // namespace heddle::testing
