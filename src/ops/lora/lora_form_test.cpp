// How a call on a GPU is launched, decided without one.
#include <gtest/gtest.h>

#include "ops/lora/lora_cuda_params.h"
#include "ops/lora/lora_gpu.h"

namespace heddle {
namespace {

using cuda::LoraForm;

constexpr int64_t kResident = 264;  // blocks of an H200

TEST(LoraForm, TwoLaunchesWhereAllBlocksOfBothRunAtOnce) {
  EXPECT_EQ(select_lora_form(24, 24, 8, kResident), LoraForm::kFirst);
  EXPECT_EQ(select_lora_form(132, 132, 8, kResident), LoraForm::kFirst);
  EXPECT_EQ(select_lora_form(133, 132, 8, kResident), LoraForm::kFused);
}

TEST(LoraForm, TwoLaunchesWhereManyChunksAreSharedByFewRows) {
  EXPECT_EQ(select_lora_form(2 * kResident + 1, 100, 17, kResident), LoraForm::kFirst);
  EXPECT_EQ(select_lora_form(2 * kResident + 1, 100, 16, kResident), LoraForm::kFused);
  EXPECT_EQ(select_lora_form(2 * kResident, 100, 17, kResident), LoraForm::kFused);
}

TEST(LoraForm, OneUnitABlockWhereAllAreThereAtOnce) {
  using Launch = cuda::LoraDirectLaunch;
  EXPECT_EQ(select_direct_launch(24, 24, 16, true, 132), (Launch{true, false, true, 24}));
  EXPECT_EQ(select_direct_launch(96, 264, 17, false, 132), (Launch{false, true, true, 264}));
  EXPECT_EQ(select_direct_launch(265, 24, 64, true, 132), (Launch{true, true, false, 264}));
  EXPECT_EQ(select_direct_launch(0, 0, 16, true, 132), (Launch{true, false, true, 1}));
}

TEST(LoraWorkspace, GrowsWithWhatACallHas) {
  const auto bytes = [](DeviceType device, int64_t tokens, int64_t in, int slices, int rank) {
    return lora_apply_workspace_bytes({device, 0}, tokens, in, slices, rank);
  };
  using enum DeviceType;
  EXPECT_EQ(bytes(kCpu, 8, 64, 3, 16), bytes(kCpu, 8, 4096, 3, 16));
  EXPECT_LT(bytes(kCuda, 8, 64, 3, 16), bytes(kCuda, 8, 4096, 3, 16));
  EXPECT_LT(bytes(kCuda, 8, 64, 3, 16), bytes(kCuda, 9, 64, 3, 16));
  EXPECT_LT(bytes(kCuda, 8, 64, 1, 16), bytes(kCuda, 8, 64, 3, 16));
  EXPECT_LT(bytes(kCuda, 8, 64, 3, 16), bytes(kCuda, 8, 64, 3, 17));
  EXPECT_GE(bytes(kCuda, 300, 0, 1, 16), lora_plan_bytes(300, 16));
}

}  // namespace
}  // namespace heddle
