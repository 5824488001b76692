// How a long batch runs on a GPU, decided without one.
#include <gtest/gtest.h>

#include "ops/lora_device/call/lora_call.h"
#include "ops/lora_device/grouped/select_grouped.h"

namespace heddle {
namespace {

using cuda::lora::GroupedConfig;
using cuda::lora::GroupedRanks;

constexpr DeviceInfo kLarge{90, 132}, kSmall{86, 46};

/// A call whose features are so many chunks.
LoraCall grouped_call(int64_t tokens, int slices, int chunks, int rank) {
  return {.num_slices = slices,
          .max_rank = rank,
          .used_rank = rank,
          .tokens = tokens,
          .input_features = int64_t{chunks} * 512,
          .vectors = true,
          .y_vectors = true};
}

TEST(LoraPrefill, TakesAsManyRanksAtOnceAsThereAreAndFit) {
  const auto tiles = [](int slices, int chunks, int rank) {
    const GroupedConfig c = select_grouped(grouped_call(2048, slices, chunks, rank), kLarge);
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
LoraCall call_of(int rank, int64_t num_outputs) {
  LoraCall call = grouped_call(2048, 3, 8, rank);
  call.num_outputs = num_outputs;
  return call;
}

TEST(LoraPrefill, TakesTheKernelsFor90ThereAlone) {
  for (const int capability : {80, 86, 89, 90, 100, 103, 120}) {
    const bool is_90 = capability == 90;
    for (const int rank : {1, 16, 17, 64, 65, kMaxLoraRank}) {
      const LoraCall shape = call_of(rank, 28672);
      const GroupedConfig c = select_grouped(shape, {capability, kLarge.num_sms});
      EXPECT_EQ(c.shrink_sm90, is_90) << capability;
      EXPECT_EQ(c.expand_sm90, is_90 && rank <= 64) << capability << ' ' << rank;
      // In all else the kernels are alike, so the choice does not depend on the chip's generation.
      GroupedConfig large = select_grouped(shape, kLarge);
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
    return select_grouped(call_of(rank, num_outputs), kLarge).expand_sm90;
  };
  EXPECT_TRUE(streams(16, 28672) && streams(64, 28672) && streams(64, 6144));
  EXPECT_FALSE(streams(16, 6144) || streams(64, 1024) || streams(1, 0));
  // h that is a tensor is not joined, and what is not aligned has no vectors.
  LoraCall shape = call_of(16, 28672);
  shape.halves = LoraHalves::kExpand;
  EXPECT_FALSE(select_grouped(shape, kLarge).expand_sm90);
  shape = call_of(16, 28672);
  shape.y_vectors = false;
  EXPECT_FALSE(select_grouped(shape, kLarge).expand_sm90);
}

TEST(LoraPrefill, FitsTheSharedMemoryOfTheChip) {
  for (const DeviceInfo& info : {kLarge, kSmall}) {
    for (const int rank : {1, 16, 17, 64, 65, kMaxLoraRank}) {
      for (const int slices : {1, 4}) {
        const GroupedConfig c = select_grouped(grouped_call(5000, slices, 8, rank), info);
        const int ring = c.ranks == GroupedRanks::kUpTo512 ? 0 : c.tile_outputs * 16 * 2 * 4;
        EXPECT_LT(c.h_values * 4 + ring + 1800, 99 * 1024);
        EXPECT_GE(c.h_values, 16 * rank) << "a tile of rows at least";
        // All rows of a row tile, where the kernel takes them at once.
        const int most = c.ranks == GroupedRanks::kUpTo16 ? 16 : 64;
        EXPECT_TRUE(c.ranks == GroupedRanks::kUpTo512 ||
                    c.h_values == most * cuda::lora::kGroupedTileRows);
      }
    }
  }
}

TEST(LoraPrefill, CutsChainsOnlyWhereTheSumsHaveAPlace) {
  for (const int64_t tokens : {257, 512, 2048, 8192, 70'000}) {
    for (const int slices : {1, 3, 4}) {
      for (const int rank : {1, 16, 64, kMaxLoraRank}) {
        const GroupedConfig c = select_grouped(grouped_call(tokens, slices, 8, rank), kLarge);
        const int64_t parts = std::max(cuda::lora::kMinSplit, c.max_split);
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
  EXPECT_EQ(select_grouped(grouped_call(512, 3, 8, 64), kLarge).max_split, 8);
  EXPECT_EQ(select_grouped(grouped_call(8192, 3, 8, 64), kLarge).max_split, 4);
  EXPECT_EQ(select_grouped(grouped_call(512, 3, 1, 64), kLarge).max_split, 1);
  EXPECT_EQ(grouped_partials(127, 3, 64), 0);
}

/// A site whose tensors are numbers alone: nothing reads them.
struct Site {
  static constexpr Device kGpu{DeviceType::kCuda, 0};
  LoraTable a{.max_rank = 16}, b{.max_rank = 16};
  LoraSlice slice;
  LoraSite site;

  Site(int64_t tokens, int64_t width, uintptr_t address = 4096)
      : slice{{reinterpret_cast<std::byte*>(address), DType::kFloat16, kGpu, {tokens, width}}} {
    a.dtype = b.dtype = DType::kFloat16;
    site.slices = {&slice, 1};
    site.input = {
        reinterpret_cast<const std::byte*>(uintptr_t{4096}), DType::kFloat16, kGpu, {tokens, 16}};
    site.a = &a;
    site.b = &b;
  }
  [[nodiscard]] LoraCall call() const { return describe({}, site); }
};

TEST(LoraPrefill, IsForLongBatches) {
  EXPECT_TRUE(can_be_grouped(Site(257, 64).call()));
  EXPECT_FALSE(can_be_grouped(Site(256, 64).call()));
  EXPECT_TRUE(can_be_grouped(Site(257, 3, 4095).call()));
  Site shrink(257, 3), expand(257, 3);
  shrink.site.b = nullptr;
  expand.site.a = nullptr;
  EXPECT_TRUE(can_be_grouped(shrink.call()));
  EXPECT_TRUE(can_be_grouped(expand.call()));
}

TEST(LoraPrefill, TakesWholeVectorsWhereAllFits) {
  EXPECT_TRUE(Site(257, 64).call().y_vectors);
  EXPECT_FALSE(Site(257, 60).call().y_vectors);
  EXPECT_FALSE(Site(257, 64, 4096 + 8).call().y_vectors);
  Site shrink(257, 60), expand(257, 64);
  shrink.site.b = nullptr;  // y is written one element at a time
  EXPECT_TRUE(shrink.call().y_vectors);
  expand.site.a = nullptr;
  EXPECT_TRUE(expand.call().y_vectors);
  expand.b.max_rank = 17;  // more than h has columns
  EXPECT_FALSE(expand.call().y_vectors);
}

TEST(LoraPrefill, TakesTheKernelsForAnythingWhereNotAllIsAligned) {
  for (const int capability : {80, 86, 90, 100}) {
    for (const int rank : {1, 16, 17, 64, 65, kMaxLoraRank}) {
      for (const int slices : {1, 4}) {
        LoraCall general = grouped_call(3000, slices, 2, rank);
        general.vectors = false;
        const GroupedConfig c = select_grouped(general, {capability, 132});
        EXPECT_FALSE(c.is_aligned || c.shrink_sm90);
        EXPECT_LE(c.shrink_tiles, 2);
        EXPECT_EQ(c.ranks, GroupedRanks::kUpTo512);
        EXPECT_LE(c.h_values, cuda::lora::kGeneralHValues);
        EXPECT_GE(c.h_values, 16 * rank) << "a tile of rows at least";
        const int64_t width = lora_h_width(slices, rank);
        EXPECT_GE(c.max_passes * 3 * c.shrink_tiles * cuda::lora::kTileRanks, width);
        EXPECT_LE(std::max(cuda::lora::kMinSplit, c.max_split) * 3000 * width,
                  grouped_partials(3000, slices, rank));
      }
    }
  }
}

TEST(LoraPrefill, CountsItemsIn32Bits) {
  const int64_t most = int64_t{1} << 31;
  EXPECT_TRUE(can_be_grouped(Site(1 << 24, 64).call()));
  EXPECT_FALSE(can_be_grouped(Site(most, 8).call()));
  EXPECT_FALSE(can_be_grouped(Site(1 << 24, 64 * 128).call()));
}

}  // namespace
}  // namespace heddle
