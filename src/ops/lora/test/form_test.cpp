// How a call on a GPU is launched, decided without one.
#include <gtest/gtest.h>

#include "ops/lora/device/params.h"
#include "ops/lora/run/run_gpu.h"

namespace heddle {
namespace {

TEST(LoraForm, OneUnitABlockWhereAllAreThereAtOnce) {
  using Launch = cuda::lora::FusedLaunch;
  EXPECT_EQ(select_fused_launch(24, 24, 16, 132), (Launch{false, true, 24}));
  EXPECT_EQ(select_fused_launch(96, 264, 17, 132), (Launch{true, true, 264}));
  EXPECT_EQ(select_fused_launch(265, 24, 64, 132), (Launch{true, false, 264}));
  EXPECT_EQ(select_fused_launch(0, 0, 16, 132), (Launch{false, true, 1}));
}

TEST(LoraForm, WindowsOfOneLaunchShareTheChip) {
  EXPECT_EQ(select_fused_launch(100, 50, 8, 132, 2).num_blocks, 100);
  EXPECT_EQ(select_fused_launch(100, 50, 8, 132, 4).num_blocks, 66);
  EXPECT_EQ(select_fused_launch(100, 50, 8, 132, 1000).num_blocks, 1);
}

/// One slice of 4096 outputs, 8 adapters.
LoraWork work(int64_t tokens, int64_t in_features, int max_rank) {
  return {.tokens = tokens,
          .in_features = in_features,
          .output_tiles = 16,
          .num_slices = 1,
          .max_rank = max_rank,
          .num_slots = 8,
          .fits_exchange = true,
          .fits_at_once = true,
          .is_aligned = false,
          .num_sms = 132};
}

TEST(LoraWay, ShortBatchesAreAWindowUnlessHighRanksTakeTooLong) {
  EXPECT_EQ(select_route(work(128, 64, 65)), LoraRoute::kWindows);
  LoraWork wide = work(141, 153, 494);
  wide.output_tiles = 122, wide.num_slices = 4, wide.num_slots = 3;
  EXPECT_EQ(select_route(wide), LoraRoute::kGrouped);
  LoraWork aligned = work(200, 4096, 128);
  aligned.is_aligned = true;
  EXPECT_EQ(select_route(aligned), LoraRoute::kWindows);
  aligned.fits_exchange = false;
  EXPECT_EQ(select_route(aligned), LoraRoute::kGrouped);
}

TEST(LoraWay, LongBatchesOfLittleWorkAreOneLaunch) {
  EXPECT_EQ(select_route(work(375, 41, 8)), LoraRoute::kFusedWindows);
  EXPECT_EQ(select_route(work(4096, 41, 8)), LoraRoute::kGrouped);
  EXPECT_EQ(select_route(work(375, 16384, 100)), LoraRoute::kGrouped);
  LoraWork changed = work(375, 41, 8);
  changed.is_aligned = true;
  EXPECT_EQ(select_route(changed), LoraRoute::kGrouped);
  changed = work(375, 41, 8);
  changed.fits_at_once = false;
  EXPECT_EQ(select_route(changed), LoraRoute::kGrouped);
}

TEST(LoraWay, WhatAPlanHasGrowsWithTheBatch) {
  EXPECT_TRUE(may_prefill(257, 1) && may_prefill(128, 65));
  EXPECT_FALSE(may_prefill(256, 64) || may_prefill(127, kMaxLoraRank));
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
