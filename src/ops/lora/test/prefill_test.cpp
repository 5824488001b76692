// How a long batch runs on a GPU, decided without one.
#include <gtest/gtest.h>

#include "ops/lora/run/run_grouped.h"

namespace heddle {
namespace {

using cuda::lora::GroupedConfig;
using cuda::lora::GroupedRanks;

constexpr DeviceInfo kLarge{90, 132}, kSmall{86, 46};

TEST(LoraPrefill, TakesAsManyRanksAtOnceAsThereAreAndFit) {
  const auto tiles = [](int slices, int chunks, int rank) {
    const LoraGroupedShape shape{2048, slices, chunks, rank, int64_t{chunks} * 512};
    const GroupedConfig c = select_prefill_config(shape, kLarge);
    return std::pair(c.shrink_tiles, c.max_passes);
  };
  EXPECT_EQ(tiles(3, 8, 16), std::pair(1, 1));
  EXPECT_EQ(tiles(3, 8, 32), std::pair(2, 1));
  EXPECT_EQ(tiles(3, 8, 64), std::pair(4, 1));
  EXPECT_EQ(tiles(3, 9, 64), std::pair(2, 2));
  EXPECT_EQ(tiles(1, 28, 16), std::pair(1, 1));
  EXPECT_EQ(tiles(4, 8, kMaxLoraRank), std::pair(4, 11));
}

/// A call of 2048 rows with three slices and 8 chunks.
LoraGroupedShape shape_of(int rank, int64_t num_outputs) {
  return {.num_tokens = 2048,
          .num_slices = 3,
          .num_chunks = 8,
          .max_rank = rank,
          .in_features = 4096,
          .num_outputs = num_outputs};
}

TEST(LoraPrefill, TakesTheKernelsFor90ThereAlone) {
  for (const int capability : {80, 86, 89, 90, 100, 103, 120}) {
    const bool is_90 = capability == 90;
    for (const int rank : {1, 16, 17, 64, 65, kMaxLoraRank}) {
      const LoraGroupedShape shape = shape_of(rank, 28672);
      const GroupedConfig c = select_prefill_config(shape, {capability, kLarge.num_sms});
      EXPECT_EQ(c.shrink_sm90, is_90) << capability;
      EXPECT_EQ(c.expand_sm90, is_90 && rank <= 64) << capability << ' ' << rank;
      // In all else the kernels are alike, so the choice does not depend on the chip's generation.
      GroupedConfig large = select_prefill_config(shape, kLarge);
      large.shrink_sm90 = c.shrink_sm90;
      if (c.expand_sm90 != large.expand_sm90) {
        EXPECT_EQ(large.tile_outputs, cuda::lora::kStreamForm.outputs());
        EXPECT_EQ(large.expand_blocks, cuda::lora::kStreamForm.blocks * kLarge.num_sms);
        large.expand_sm90 = c.expand_sm90;
        large.tile_outputs = c.tile_outputs, large.expand_blocks = c.expand_blocks;
      }
      EXPECT_EQ(c, large) << capability;
    }
  }
}

TEST(LoraPrefill, StreamsYWhereThereIsMuchOfIt) {
  const auto streams = [](int rank, int64_t num_outputs) {
    return select_prefill_config(shape_of(rank, num_outputs), kLarge).expand_sm90;
  };
  EXPECT_TRUE(streams(16, 28672) && streams(64, 28672) && streams(64, 6144));
  EXPECT_FALSE(streams(16, 6144) || streams(64, 3072) || streams(1, 0));
  // h that is a tensor is not joined, and what is not aligned has no vectors.
  LoraGroupedShape shape = shape_of(16, 28672);
  shape.in_features = 0;
  EXPECT_FALSE(select_prefill_config(shape, kLarge).expand_sm90);
  shape = shape_of(16, 28672);
  shape.is_aligned = false;
  EXPECT_FALSE(select_prefill_config(shape, kLarge).expand_sm90);
}

TEST(LoraPrefill, FitsTheSharedMemoryOfTheChip) {
  for (const DeviceInfo& info : {kLarge, kSmall}) {
    for (const int rank : {1, 16, 17, 64, 65, kMaxLoraRank}) {
      for (const int slices : {1, 4}) {
        const GroupedConfig c = select_prefill_config({5000, slices, 8, rank, 4096}, info);
        const int ring = c.ranks == GroupedRanks::kAny ? 0 : c.tile_outputs * 16 * 2 * 4;
        EXPECT_LT(c.h_values * 4 + ring + 1800, 99 * 1024);
        EXPECT_GE(c.h_values, 16 * rank) << "a tile of rows at least";
        // All rows of a row tile, where the kernel takes them at once.
        const int most = c.ranks == GroupedRanks::kNarrow ? 16 : 64;
        EXPECT_TRUE(c.ranks == GroupedRanks::kAny ||
                    c.h_values == most * cuda::lora::kGroupedTileRows);
      }
    }
  }
}

TEST(LoraPrefill, CutsStrandsOnlyWhereTheSumsHaveAPlace) {
  for (const int64_t tokens : {257, 512, 2048, 8192, 70'000}) {
    for (const int slices : {1, 3, 4}) {
      for (const int rank : {1, 16, 64, kMaxLoraRank}) {
        const GroupedConfig c = select_prefill_config({tokens, slices, 8, rank, 4096}, kLarge);
        const int64_t parts = std::max(cuda::lora::kMinParts, c.max_split);
        const int64_t needed =
            parts * tokens * lora_h_width(slices, rank) + joined_h_values(tokens, slices, rank);
        EXPECT_LE(needed, grouped_partials(tokens, slices, rank));
        // The workspace is made for the largest batch, rank and number of slices.
        EXPECT_LE(needed, grouped_partials(tokens + 1, slices, rank));
        EXPECT_LE(needed, grouped_partials(tokens, slices + 1, rank));
        EXPECT_LE(needed, grouped_partials(tokens, slices, rank + 1));
      }
    }
  }
  EXPECT_EQ(select_prefill_config({512, 3, 8, 64, 4096}, kLarge).max_split, 8);
  EXPECT_EQ(select_prefill_config({8192, 3, 8, 64, 4096}, kLarge).max_split, 4);
  EXPECT_EQ(select_prefill_config({512, 3, 1, 64, 512}, kLarge).max_split, 1);
  EXPECT_EQ(grouped_partials(cuda::lora::kShortBatchRows, 3, 64), 0);
}

/// A call whose tensors are numbers alone: nothing reads them.
struct Call {
  static constexpr Device kGpu{DeviceType::kCuda, 0};
  LoraTable a{.max_rank = 16}, b{.max_rank = 16};
  LoraSlice slice;
  LoraGpuCall call;

  Call(int64_t tokens, int64_t width, uintptr_t address = 4096)
      : slice{{reinterpret_cast<std::byte*>(address), DType::kFloat16, kGpu, {tokens, width}}} {
    call.slices = {&slice, 1};
    call.input = {
        reinterpret_cast<const std::byte*>(uintptr_t{4096}), DType::kFloat16, kGpu, {tokens, 16}};
    call.a = &a;
    call.b = &b;
  }
};

TEST(LoraPrefill, IsForLongBatches) {
  EXPECT_TRUE(is_prefill(Call(257, 64).call));
  EXPECT_FALSE(is_prefill(Call(256, 64).call));
  EXPECT_TRUE(is_prefill(Call(257, 3, 4095).call));
  Call shrink(257, 3), expand(257, 3);
  shrink.call.b = nullptr;
  expand.call.a = nullptr;
  EXPECT_TRUE(is_prefill(shrink.call));
  EXPECT_TRUE(is_prefill(expand.call));
}

TEST(LoraPrefill, TakesWholeVectorsWhereAllFits) {
  EXPECT_TRUE(is_aligned_prefill(Call(257, 64).call, true));
  EXPECT_FALSE(is_aligned_prefill(Call(257, 64).call, false));
  EXPECT_FALSE(is_aligned_prefill(Call(257, 60).call, true));
  EXPECT_FALSE(is_aligned_prefill(Call(257, 64, 4096 + 8).call, true));
  Call shrink(257, 60), expand(257, 64);
  shrink.call.b = nullptr;  // y is written one element at a time
  EXPECT_TRUE(is_aligned_prefill(shrink.call, true));
  EXPECT_FALSE(is_aligned_prefill(shrink.call, false));
  expand.call.a = nullptr;
  EXPECT_TRUE(is_aligned_prefill(expand.call, true));
  expand.b.max_rank = 17;  // more than h has columns
  EXPECT_FALSE(is_aligned_prefill(expand.call, true));
}

TEST(LoraPrefill, TakesTheKernelsForAnythingWhereNotAllIsAligned) {
  for (const int capability : {80, 86, 90, 100}) {
    for (const int rank : {1, 16, 17, 64, 65, kMaxLoraRank}) {
      for (const int slices : {1, 4}) {
        const GroupedConfig c =
            select_prefill_config({3000, slices, 2, rank, 1000, false}, {capability, 132});
        EXPECT_FALSE(c.is_aligned || c.shrink_sm90);
        EXPECT_LE(c.shrink_tiles, 2);
        EXPECT_EQ(c.ranks, GroupedRanks::kAny);
        EXPECT_LE(c.h_values, cuda::lora::kGeneralHValues);
        EXPECT_GE(c.h_values, 16 * rank) << "a tile of rows at least";
        const int64_t width = lora_h_width(slices, rank);
        EXPECT_GE(c.max_passes * 3 * c.shrink_tiles * cuda::lora::kTileRanks, width);
        EXPECT_LE(std::max(cuda::lora::kMinParts, c.max_split) * 3000 * width,
                  grouped_partials(3000, slices, rank));
      }
    }
  }
}

TEST(LoraPrefill, CountsItemsIn32Bits) {
  const int64_t most = int64_t{1} << 31;
  EXPECT_TRUE(is_prefill(Call(1 << 24, 64).call));
  EXPECT_FALSE(is_prefill(Call(most, 8).call));
  EXPECT_FALSE(is_prefill(Call(1 << 24, 64 * 128).call));
}

}  // namespace
}  // namespace heddle
