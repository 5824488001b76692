#include "model/adapters/lora_tables.h"

#include <gtest/gtest.h>

#include "model/test/lora_tables_test_body.h"
#include "second_cpu.h"

namespace heddle::model {
namespace {

class LoraTablesTest : public ::testing::Test {
 protected:
  LoraTablesCase case_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(case_.workspace_bytes({}));
  Workspace workspace_{buffer_};
  const ExecContext ctx_{.device = testing::kSecondCpu, .workspace = &workspace_};
};

TEST_F(LoraTablesTest, TheFormOfTheCpuKeepsTheDtypeOfTheFile) {
  const LoraTables tables = case_.make(ctx_, LoraForm::of(DeviceType::kCpu, DType::kFloat32));
  EXPECT_EQ(tables.max_rank(), 17);
  EXPECT_EQ(tables.site(0, LoraSite::kQkv).size(), 3u) << "f16, f32 and bf16";
  EXPECT_EQ(tables.site(1, LoraSite::kO).size(), 1u);
  case_.expect_the_sums_of_the_reference<float>(ctx_, tables, 1e-5);
}

TEST_F(LoraTablesTest, TheFormOfCudaIsAlignedAndOfOneDtype) {
  const LoraTables tables = case_.make(ctx_, LoraForm::of(DeviceType::kCuda, DType::kBFloat16));
  EXPECT_EQ(tables.max_rank(), 24) << "17, filled up to a multiple of 8";
  for (const LoraSite site : {LoraSite::kQkv, LoraSite::kDown}) {
    ASSERT_EQ(tables.site(0, site).size(), 1u);
    const LoraTable a = tables.site(0, site).front().a.view();
    const LoraTable b = tables.site(0, site).front().b.view();
    EXPECT_TRUE(a.is_aligned && b.is_aligned);
    EXPECT_EQ(a.layout, LoraLayout::kRankMajor);
    EXPECT_EQ(b.layout, LoraLayout::kRankMinor);
    EXPECT_EQ(b.dtype, DType::kBFloat16);
  }
  case_.expect_the_sums_of_the_reference<float>(ctx_, tables, 0.05);
}

TEST_F(LoraTablesTest, TheFormDoesNotChangeTheSums) {
  const LoraTables cpu = case_.make(ctx_, LoraForm::of(DeviceType::kCpu, DType::kFloat32));
  const LoraTables cuda = case_.make(ctx_, LoraForm::of(DeviceType::kCuda, DType::kFloat32));
  for (int site = 0; site < kNumLoraSites; ++site) {
    const std::vector<float> x = case_.random_inputs<float>(site);
    EXPECT_EQ(case_.deltas(ctx_, cpu, 1, site, x), case_.deltas(ctx_, cuda, 1, site, x));
  }
}

}  // namespace
}  // namespace heddle::model
