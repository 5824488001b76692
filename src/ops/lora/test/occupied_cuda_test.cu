// LoRA while another kernel holds most of the chip.
#include <optional>
#include <vector>

#include "cuda/test/occupier_cuda.h"
#include <gtest/gtest.h>

#include "ops/lora/test/lora_cuda_cases.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

class LoraOccupied : public CudaTest {};

TEST_F(LoraOccupied, TwoStreamsFinishBesideAKernelThatHoldsMostOfTheChip) {
  const Device device = cuda_context().device;
  // Few enough blocks that ten thousand rounds take minutes, and more than fit next to the
  // occupier: 8 of each stream.
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
    for (size_t s = 0; s < 2; ++s) wait_or_end(streams[s].get(), "LoRA", round);
    if (occupier) {
      ASSERT_TRUE(occupier->release()) << "LoRA waited for the chip, round " << round;
    }
    for (size_t s = 0; s < 2; ++s) ASSERT_EQ(sites[s].bits(), want[s]) << "round " << round;
  }
}

}  // namespace
}  // namespace heddle::testing
