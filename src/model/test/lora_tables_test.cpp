#include "model/adapters/lora_tables.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/test/lora_tables_test_body.h"
#include "second_cpu.h"

namespace {

/// The allocation of device memory that fails: 0 is the next one, below 0 none.
int failing_allocation = -1;

}  // namespace

/// In place of the system's, which device memory of the CPU comes from.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  void* memory = nullptr;
  if (failing_allocation >= 0 && failing_allocation-- == 0) return nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

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
  EXPECT_EQ(tables.site(0, llama::kQkvSite).size(), 3u) << "f16, f32 and bf16";
  EXPECT_EQ(tables.site(1, llama::kOSite).size(), 1u);
  case_.expect_the_sums_of_the_reference<float>(ctx_, tables, 1e-5);
}

TEST_F(LoraTablesTest, TheFormOfCudaIsAlignedAndOfOneDtype) {
  const LoraTables tables = case_.make(ctx_, LoraForm::of(DeviceType::kCuda, DType::kBFloat16));
  EXPECT_EQ(tables.max_rank(), 24) << "17, filled up to a multiple of 8";
  for (const int site : {llama::kQkvSite, llama::kDownSite}) {
    ASSERT_EQ(tables.site(0, site).size(), 1u);
    const LoraTable a = tables.site(0, site).front().a.view();
    const LoraTable b = tables.site(0, site).front().b.view();
    EXPECT_TRUE(a.is_aligned && b.is_aligned);
    EXPECT_EQ(a.layout, LoraLayout::kRankMajor);
    EXPECT_EQ(b.layout, LoraLayout::kRankMinor);
    EXPECT_EQ(b.dtype, DType::kBFloat16);
  }
  case_.expect_the_sums_of_the_reference<float>(ctx_, tables, 0.05);
  case_.expect_the_sums_of_the_reference<float>(
      ctx_, case_.make_staged(ctx_, LoraForm::of(DeviceType::kCuda, DType::kBFloat16)), 0.05);
}

TEST_F(LoraTablesTest, ManyEntriesChangeAtOnce) { case_.expect_that_changes_are_made(ctx_); }

TEST_F(LoraTablesTest, AnAdapterThatFindsNoMemoryLeavesTheTablesAsTheyWere) {
  const LoraForm form = LoraForm::of(DeviceType::kCpu, DType::kFloat32);
  std::array<std::vector<float>, llama::kNumSites> x;
  for (int site = 0; site < llama::kNumSites; ++site) {
    x[size_t(site)] = case_.random_inputs<float>(site);
  }
  // What all slots add to all sites, those without an adapter among them: nothing.
  const auto sums_of = [&](const LoraTables& tables) {
    std::vector<std::vector<std::vector<float>>> sums;
    for (int64_t layer = 0; layer < LoraTablesCase::kNumLayers; ++layer) {
      for (int site = 0; site < llama::kNumSites; ++site) {
        sums.push_back(case_.deltas(ctx_, tables, layer, site, x[size_t(site)]));
      }
    }
    return sums;
  };
  LoraTables tables = case_.make_empty(form);
  for (int i = 0; i < LoraTablesCase::kNumAdapters; ++i) {
    const auto before = sums_of(tables);
    const int max_rank = tables.max_rank();
    int failed = 0;
    for (int slot = -1; slot < 0; ++failed) {
      failing_allocation = failed;
      const std::string message =
          testing::message_of([&] { slot = tables.add(ctx_, case_.adapter(i)); });
      failing_allocation = -1;
      if (slot >= 0) {
        EXPECT_EQ(slot, i);
        break;
      }
      EXPECT_EQ(message.substr(0, 11), "cannot get ") << message;
      EXPECT_EQ(tables.max_rank(), max_rank);
      ASSERT_EQ(sums_of(tables), before) << "adapter " << i << ", allocation " << failed;
    }
    EXPECT_GE(failed, 1) << "an adapter takes memory of its own";
  }
  case_.expect_the_sums_of_the_reference<float>(ctx_, tables, 1e-5);
}

TEST_F(LoraTablesTest, AnAdapterThatFailsHalfwayLeavesTheTablesAsTheyWere) {
  const LoraForm form = LoraForm::of(DeviceType::kCpu, DType::kFloat32);
  LoraTables tables = case_.make(ctx_, form);
  const std::vector<float> x = case_.random_inputs<float>(0);
  const auto before = case_.deltas(ctx_, tables, 0, 0, x);
  // Slots are left for a sixth adapter, whose weights lie on another device than the tables.
  ExecContext elsewhere = ctx_;
  elsewhere.device.index += 1;
  EXPECT_NE(testing::message_of([&] { (void)tables.add(elsewhere, case_.adapter(0)); }),
            "no error");
  EXPECT_EQ(case_.deltas(ctx_, tables, 0, 0, x), before);
  EXPECT_EQ(tables.add(ctx_, case_.adapter(1)), LoraTablesCase::kNumAdapters);
  EXPECT_EQ(case_.deltas(ctx_, tables, 0, 0, x), before);
}

TEST_F(LoraTablesTest, TheFormDoesNotChangeTheSums) {
  const LoraTables cpu = case_.make(ctx_, LoraForm::of(DeviceType::kCpu, DType::kFloat32));
  const LoraTables cuda = case_.make(ctx_, LoraForm::of(DeviceType::kCuda, DType::kFloat32));
  for (int site = 0; site < llama::kNumSites; ++site) {
    const std::vector<float> x = case_.random_inputs<float>(site);
    EXPECT_EQ(case_.deltas(ctx_, cpu, 1, site, x), case_.deltas(ctx_, cuda, 1, site, x));
  }
}

/// Whatever was in a slot, it is what it is in tables that never had another.
TEST_F(LoraTablesTest, ASlotIsFreeAgainAndTouchesNothing) {
  const LoraForm form = LoraForm::of(DeviceType::kCpu, DType::kFloat32);
  LoraTables tables = case_.make(ctx_, form);
  for (const int slot : {3, 1}) tables.remove(ctx_, slot);
  for (int site = 0; site < llama::kNumSites; ++site) {
    const std::vector<float> x = case_.random_inputs<float>(site);
    for (const std::vector<float>& sums : case_.deltas(ctx_, tables, 0, site, x)) {
      const size_t width = sums.size() / LoraTablesCase::kNumRows;
      for (const size_t slot : {1, 3}) {
        for (size_t i = 0; i < width; ++i) ASSERT_EQ(sums[slot * width + i], 0.0f) << site;
      }
    }
  }
  EXPECT_EQ(tables.add(ctx_, case_.adapter(1)), 1);
  EXPECT_EQ(tables.add(ctx_, case_.adapter(3)), 3);
  case_.expect_the_sums_of_the_reference<float>(ctx_, tables, 1e-5);
  EXPECT_EQ(tables.add(ctx_, case_.adapter(0)), LoraTablesCase::kNumAdapters);
}

/// What DoRA and biases do goes with the adapter that had them.
TEST_F(LoraTablesTest, ASlotThatIsFreeAgainHasNoFactors) {
  LoraTables tables = case_.make_empty(LoraForm::of(DeviceType::kCpu, DType::kFloat32));
  const auto factor_of = [&](int32_t slot) {
    const AdapterTable* const table = tables.affines(0, llama::kQkvSite);
    return static_cast<const float*>(table == nullptr ? nullptr
                                                      : table->view().weight(slot, 0).data);
  };
  const std::vector<SliceAffine> affines{
      {.layer = 0, .slice = llama::kQ, .values = std::vector<float>(48, 2.0f)}};
  EXPECT_EQ(tables.affines(0, llama::kQkvSite), nullptr);
  EXPECT_EQ(tables.add(ctx_, case_.adapter(0), affines), 0);
  ASSERT_NE(factor_of(0), nullptr);
  EXPECT_TRUE(tables.has_affines(0));
  EXPECT_EQ(tables.affines(1, llama::kQkvSite), nullptr);
  tables.remove(ctx_, 0);
  EXPECT_EQ(factor_of(0), nullptr);
  EXPECT_EQ(tables.add(ctx_, case_.adapter(3)), 0);
  EXPECT_EQ(factor_of(0), nullptr);
  EXPECT_FALSE(tables.has_affines(0));
  EXPECT_EQ(tables.add(ctx_, case_.adapter(0), affines), 1);
  EXPECT_EQ(*factor_of(1), 2.0f);
}

}  // namespace
}  // namespace heddle::model
