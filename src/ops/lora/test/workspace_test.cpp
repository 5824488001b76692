// What a call on a GPU needs of the workspace, decided without one.
#include <gtest/gtest.h>

#include "heddle/ops/lora.h"

namespace heddle {
namespace {

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
