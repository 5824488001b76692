// The kernels of dense products for every chip, chosen without a GPU.
#include "ops/linear_site/portable/select_portable.h"

#include <gtest/gtest.h>

#include "ops/linear_site/test/site_call_of.h"

namespace heddle {
namespace {

using testing::site_call_of;

constexpr DeviceInfo kA100{80, 108}, kL40S{89, 142}, kB200{100, 148}, kH100{90, 132};

TEST(SelectPortable, EveryChipButOneTakesIt) {
  for (const DeviceInfo& info : {kA100, kL40S, kB200}) {
    EXPECT_FALSE(select_portable_decode(site_call_of(8, 4096, {4096}), info).is_general);
    EXPECT_FALSE(select_portable_prompt(site_call_of(512, 4096, {4096}), info).is_general);
    SiteCall odd = site_call_of(8, 4096, {4096});
    odd.fits_tensor_maps = false;
    EXPECT_TRUE(select_portable_decode(odd, info).is_general);
    EXPECT_TRUE(select_portable_prompt(odd, info).is_general);
  }
  EXPECT_TRUE(select_portable_decode(site_call_of(8, 4096, {4096}), kH100).is_general);
  EXPECT_TRUE(select_portable_prompt(site_call_of(512, 4096, {4096}), kH100).is_general);
}

TEST(SelectPortable, AllLaunchesFitTheChip) {
  for (const DeviceInfo& info : {kA100, kL40S, kB200, DeviceInfo{80, 1}}) {
    const uint32_t limit = shared_bytes_of_block(info);
    EXPECT_EQ(limit > 99 * 1024, info.compute_capability != 89);
    for (const int64_t out : {1, 64, 576, 4096, 12287, 28672, 128256}) {
      for (const int64_t rows : {1, 64, 65, 128}) {
        const SiteCall call = site_call_of(rows, 4096, {out, 8});
        const PortableKernel kernel = select_portable_decode(call, info);
        ASSERT_FALSE(kernel.is_general) << out << ' ' << rows;
        EXPECT_LE(kernel.shared_bytes, limit);
        EXPECT_GE(kernel.stage_boxes, 1);
        EXPECT_EQ(kernel.tile_outputs % 16, 0);
        const int64_t tiles = (out + kernel.tile_outputs - 1) / kernel.tile_outputs + 1;
        EXPECT_LE(kernel.num_blocks, tiles * kernel.num_splits);
        EXPECT_LE(kernel.num_splits > 1 ? tiles : 0, kPortableCounters);
        EXPECT_LE(tiles * kernel.num_splits * kernel.tile_outputs * ((rows + 7) / 8 * 8) / 4,
                  kernel.num_splits > 1 ? portable_parts(rows, call.num_outputs) : INT64_MAX);
        const PortableKernel prompt = select_portable_prompt(call, info);
        ASSERT_FALSE(prompt.is_general);
        EXPECT_LE(prompt.shared_bytes, limit);
      }
    }
  }
}

TEST(SelectPortable, TheOrderOfASumIsTheSitesAlone) {
  for (const int64_t out : {1000, 4096, 28672}) {
    const int splits = portable_splits(out, 4096);
    for (const DeviceInfo& info : {kA100, kL40S, kB200}) {
      for (const int64_t rows : {1, 9, 64, 128}) {
        EXPECT_EQ(select_portable_decode(site_call_of(rows, 4096, {out}), info).num_splits, splits);
      }
    }
  }
  EXPECT_EQ(portable_splits(1000, 8), 1);
  EXPECT_EQ(portable_splits(1000, 130), 3);
}

}  // namespace
}  // namespace heddle
