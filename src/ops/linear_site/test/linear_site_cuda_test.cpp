#include <algorithm>

#include "heddle/core/cuda_context.h"

#include "ops/linear_site/site_kernels.h"
#include "ops/linear_site/test/linear_site_test_body.h"
#include "ops/lora/test/lora_cuda_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

template <class T>
class LinearSiteCuda : public LoraCuda<T> {
 protected:
  using Options = cuda::linear_site::Options;
  /// A call as linear_site makes it, with what tests set.
  [[nodiscard]] static auto with(const Options& options) {
    return [options](const ExecContext& ctx, const auto& slices, const ConstTensorView& x,
                     const LinearAdapters* adapters) {
      cuda::linear_site::run(ctx, slices, x, adapters, options);
    };
  }
};
TYPED_TEST_SUITE(LinearSiteCuda, HalfTypes);

TYPED_TEST(LinearSiteCuda, IsTheProductWithTheAdaptersOfEachRow) {
  const int rounds = small_sizes() ? 6 : 60;
  for (int i = 0; i < rounds; ++i) {
    HostSite<TypeParam> site(random_site_shape(pick({3, 40, 64, 140})));
    site.run(this->runs().any());
    site.expect_right();
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(LinearSiteCuda, TakesTheShapesOfModels) {
  if (small_sizes()) GTEST_SKIP() << "large";
  for (const auto& outs : {std::vector<int64_t>{576, 192, 192}, {4096}, {6144}, {8192, 8192}}) {
    HostSite<TypeParam> site({.rows = 9, .in = 1536, .outs = outs, .max_rank = 16});
    site.run(this->runs().run(TestFixture::Form::kGeneralBlocks, true));
    site.expect_right();
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(LinearSiteCuda, ARowHasItsBitsInAnyBatch) {
  // Clusters of 4, 2 and 1 block.
  for (const int64_t out : {300, 5200, 12400}) {
    if (small_sizes() && out > 1000) continue;
    for (const int max_rank : {0, 40}) {
      HostSite<TypeParam> site({.rows = 257, .in = 712, .outs = {out}, .max_rank = max_rank});
      const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, true);
      site.run(run);
      const HostSite<TypeParam> all = site;
      for (const int64_t rows : {1, 2, 7, 64, 65, 128, 129, 255, 256}) {
        const int64_t first = random_int(0, 257 - rows);
        site.clear();
        site.run(run, first, rows, this->with({}));
        for (int64_t row = first; row < first + rows; ++row) {
          ASSERT_EQ(site.bits(row), all.bits(row)) << rows << " rows, row " << row << ", " << out;
        }
      }
    }
  }
}

TYPED_TEST(LinearSiteCuda, AdaptersInsideHaveTheBitsOfLoraApply) {
  for (int i = 0; i < (small_sizes() ? 4 : 30); ++i) {
    SiteShape shape = random_site_shape(64);
    shape.is_regular = true;
    shape.in = 8 * random_int(1, 250);
    shape.max_rank = pick({4, 16, 40, 128});
    HostSite<TypeParam> site(shape);
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
    site.run(run, 0, shape.rows, this->with({.allows_inside = false}));
    const HostSite<TypeParam> apart = site;
    // 0: a block never waits for the others, and does all of A x itself.
    for (const uint32_t spin_limit : {1u << 14, 0u}) {
      site.clear();
      site.run(run, 0, shape.rows, this->with({.spin_limit = spin_limit}));
      for (int64_t row = 0; row < shape.rows; ++row) {
        ASSERT_EQ(site.bits(row), apart.bits(row)) << "row " << row << ", limit " << spin_limit;
      }
    }
  }
}

TYPED_TEST(LinearSiteCuda, OtherAdaptersChangeNoBit) {
  HostSite<TypeParam> site({.rows = 33, .in = 1024, .outs = {512, 256}, .max_rank = 64});
  for (int& slot : site.batch.slots) slot = slot < 0 ? slot : slot % 3;
  const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, false);
  const auto run_ids = [&] { site.run(run, 0, 32, this->with({})); };
  run_ids();
  const HostSite<TypeParam> before = site;
  for (size_t s = 0; s < 2; ++s) {  // other ranks and weights in the slots 3 to 5
    const LoraHalf<TypeParam> a(LoraLayout::kRankMajor, 1024, {0, 0, 0, 64, 4, 24}, true);
    const LoraHalf<TypeParam> b(LoraLayout::kRankMinor, site.shape.outs[s], a.ranks, true);
    for (size_t slot = 3; slot < 6; ++slot) {
      site.a[s].entries[slot] = a.entries[slot];
      site.b[s].entries[slot] = b.entries[slot];
      site.a[s].ranks[slot] = site.b[s].ranks[slot] = a.ranks[slot];
      site.a[s].memory[slot] = a.memory[slot];
      site.b[s].memory[slot] = b.memory[slot];
      site.a[s].entries[slot].data = site.a[s].memory[slot].data();
      site.b[s].entries[slot].data = site.b[s].memory[slot].data();
    }
  }
  site.clear();
  run_ids();
  for (int64_t row = 0; row < 32; ++row) ASSERT_EQ(site.bits(row), before.bits(row));
}

TYPED_TEST(LinearSiteCuda, AForeignPlanMakesNaNAndTells) {
  HostSite<TypeParam> site({.rows = 5, .in = 256, .outs = {96}, .max_rank = 16});
  DeviceStream stream;
  CudaContext context(Device{DeviceType::kCuda, 0}, stream.get(), size_t{1} << 20);
  DeviceMirror mirror;
  const LoraRun run{.ctx = context.exec(), .mirror = mirror};
  const auto plan_bytes = static_cast<int64_t>(lora_plan_bytes(5, 16));
  site.run(run, 0, 5,
           [&](const ExecContext& ctx, const auto& slices, const ConstTensorView& x,
               const LinearAdapters* adapters) {
             LinearAdapters foreign = *adapters;
             foreign.a.is_aligned = foreign.b.is_aligned = true;
             const auto plan = mirror.scratch(size_t(plan_bytes), 0);
             foreign.batch.plan = TensorView(plan.data(), DType::kUInt8, ctx.device, {plan_bytes});
             linear_site(ctx, slices, x, LinearPath::kDecode, &foreign);
           });
  for (const TypeParam v : site.y) EXPECT_TRUE(std::isnan(to_float(v)));
  EXPECT_THROW(context.check(), Error);
}

TEST(LinearSiteReplay, AGraphFollowsIdsAndTables) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kRows = 20, kIn = 512;
  const LoraStream stream(Device{DeviceType::kCuda, 0}, size_t{8} << 20, true);
  DeviceSite<bfloat16> adapters(kRows, kIn, {256, 128}, 16, true);
  const DeviceBuffer<bfloat16> weights(random_normal<bfloat16>(384 * kIn, 0.05f));
  std::vector<DeviceBuffer<bfloat16>> y;
  for (const int64_t out : {256, 128}) y.emplace_back(std::vector<bfloat16>(size_t(kRows * out)));
  const auto call = [&](const ExecContext& ctx, bool allows_inside) {
    std::vector<LinearSlice> slices;
    int64_t row = 0;
    for (size_t s = 0; s < 2; ++s) {
      const int64_t out = s == 0 ? 256 : 128;
      slices.push_back(
          {.y = y[s].view({kRows, out}), .weight = weights.view({384, kIn}).narrow(0, row, out)});
      row += out;
    }
    const LinearAdapters given{adapters.a(), adapters.b(), adapters.batch()};
    cuda::linear_site::run(ctx, slices, adapters.x(), &given, {.allows_inside = allows_inside});
  };
  const Graph graph(stream, [&] { call(stream.ctx(), true); });
  for (int round = 0; round < 5; ++round) {
    adapters.change();
    graph.launch();
    stream.wait();
    const std::vector<std::vector<bfloat16>> got{y[0].download(), y[1].download()};
    call(stream.ctx(), false);
    stream.wait();
    for (size_t s = 0; s < 2; ++s) {
      EXPECT_TRUE(same_bits<bfloat16>(got[s], y[s].download())) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace heddle::testing
