#include "ops/linear_site/decode/select_kernel.h"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "ops/linear_site/test/site_call_of.h"

namespace heddle {
namespace {

using testing::site_call_of;

constexpr DeviceInfo kH200{90, 132}, kA100{80, 108};

std::string chosen(const SiteCall& call, const DeviceInfo& info = kH200) {
  std::ostringstream out;
  out << select_site_kernel(call, info);
  const std::string text = out.str();
  return text.substr(0, text.find(" shared="));
}

TEST(SelectSiteKernel, TakesTheSitesOfAnEightBillionLlama) {
  EXPECT_EQ(chosen(site_call_of(32, 4096, {4096, 1024, 1024})),
            "decode_sm90 tile=96 cluster=2 groups=1 blocks=130 boxes=2 weight_stages=7 x_stages=4 "
            "loading=2");
  EXPECT_EQ(chosen(site_call_of(32, 4096, {4096})),
            "decode_sm90 tile=64 cluster=2 groups=1 blocks=128 boxes=2 weight_stages=11 x_stages=4 "
            "loading=4");
  EXPECT_EQ(chosen(site_call_of(32, 4096, {14336, 14336})),
            "decode_sm90 tile=224 cluster=1 groups=1 blocks=128 boxes=1 weight_stages=6 x_stages=8 "
            "loading=2");
}

TEST(SelectSiteKernel, FewRowsLeaveRoomBesideAdapters) {
  EXPECT_EQ(chosen(site_call_of(8, 4096, {14336, 14336}, 16)),
            "decode_sm90 tile=224 cluster=1 groups=1 blocks=128 boxes=1 weight_stages=6 x_stages=8 "
            "loading=2");
  EXPECT_EQ(chosen(site_call_of(64, 4096, {14336, 14336}, 16)),
            "decode_sm90 tile=224 cluster=1 groups=1 blocks=128 boxes=1 weight_stages=3 x_stages=4 "
            "loading=2");
  // Two tiles a block.
  EXPECT_EQ(chosen(site_call_of(128, 4096, {14336, 14336}, 16)),
            "decode_sm90 tile=112 cluster=1 groups=2 blocks=132 boxes=1 weight_stages=4 x_stages=2 "
            "loading=4");
}

TEST(SelectSiteKernel, RowsAndAdaptersDoNotChangeHowFeaturesAreShared) {
  for (const int64_t out : {64, 576, 2048, 4096, 6144, 12288, 28672, 128256}) {
    for (const int64_t rows : {1, 8, 64, 65, 128}) {
      for (const int max_rank : {0, 16, 64, 128}) {
        const SiteKernel kernel =
            select_site_kernel(site_call_of(rows, 4096, {out}, max_rank), kH200);
        if (kernel.is_general) {
          EXPECT_GT(max_rank, 0) << out << " outputs, " << rows << " rows";
          continue;
        }
        EXPECT_EQ(kernel.cluster_size, site_cluster_size(out));
        EXPECT_LE(kernel.shared_bytes, 227u * 1024);
        EXPECT_GE(kernel.weight_stages, 2);
        EXPECT_GE(kernel.x_stages, 2);
        EXPECT_LE(kernel.max_loading, kernel.weight_stages);
        EXPECT_EQ(kernel.num_blocks % kernel.cluster_size, 0);
      }
    }
  }
}

TEST(SelectSiteKernel, OtherChipsAndAddressesTakeTheGeneralKernel) {
  EXPECT_EQ(chosen(site_call_of(32, 4096, {4096}), kA100), "general");
  SiteCall call = site_call_of(32, 4096, {4096});
  call.fits_tensor_maps = false;
  EXPECT_EQ(chosen(call), "general");
}

}  // namespace
}  // namespace heddle
