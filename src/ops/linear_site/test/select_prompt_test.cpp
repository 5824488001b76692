#include "ops/linear_site/prompt/select_prompt.h"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "ops/linear_site/test/site_call_of.h"

namespace heddle {
namespace {

using testing::site_call_of;

constexpr DeviceInfo kH100{90, 132}, kA100{80, 108};

std::string chosen(const SiteCall& call, const DeviceInfo& info = kH100) {
  std::ostringstream out;
  out << select_prompt_kernel(call, info);
  return out.str();
}

TEST(SelectPromptKernel, TakesTheSitesOfAnEightBillionLlama) {
  EXPECT_EQ(chosen(site_call_of(512, 4096, {4096})),
            "prompt_sm90 tile=128 cluster=2 group=8 blocks=128");
  EXPECT_EQ(chosen(site_call_of(2048, 4096, {4096, 1024, 1024})),
            "prompt_sm90 tile=256 cluster=2 group=8 blocks=132");
  EXPECT_EQ(chosen(site_call_of(8192, 4096, {14336, 14336})),
            "prompt_sm90 tile=256 cluster=2 group=8 blocks=132");
  EXPECT_EQ(chosen(site_call_of(8192, 14336, {4096})),
            "prompt_sm90 tile=256 cluster=2 group=8 blocks=132");
  EXPECT_EQ(chosen(site_call_of(1, 4096, {4096})),
            "prompt_sm90 tile=64 cluster=1 group=16 blocks=64");
  EXPECT_EQ(chosen(site_call_of(189, 14336, {4096})),
            "prompt_sm90 tile=64 cluster=2 group=8 blocks=128");
}

TEST(SelectPromptKernel, AllLaunchesFitTheChip) {
  for (const int64_t out : {1, 64, 576, 4096, 28672, 128256}) {
    for (const int64_t rows : {1, 64, 129, 2048, 65536}) {
      const PromptKernel kernel = select_prompt_kernel(site_call_of(rows, 4096, {out, 8}), kH100);
      EXPECT_FALSE(kernel.is_general);
      EXPECT_GE(kernel.num_blocks, 1);
      EXPECT_LE(kernel.num_blocks, 132);
      EXPECT_EQ(kernel.num_blocks % kernel.cluster_size, 0);
      EXPECT_GE(kernel.group_units, 1);
    }
  }
}

TEST(SelectPromptKernel, AChipOfOneMultiprocessorHasNoClusters) {
  EXPECT_EQ(chosen(site_call_of(600, 4096, {4096}), {90, 1}),
            "prompt_sm90 tile=256 cluster=1 group=16 blocks=1");
}

TEST(SelectPromptKernel, OtherChipsAndAddressesTakeTheGeneralKernel) {
  EXPECT_EQ(chosen(site_call_of(2048, 4096, {4096}), kA100), "general");
  SiteCall call = site_call_of(2048, 4096, {4096});
  call.fits_tensor_maps = false;
  EXPECT_EQ(chosen(call), "general");
}

}  // namespace
}  // namespace heddle
