#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "cuda/check.h"

#include "heddle/core/cuda_context.h"

#include "ops/linear_site/call/site_kernels.h"
#include "ops/linear_site/decode/exchange.h"
#include "ops/linear_site/test/cuda_test_body.h"
#include "ops/linear_site/test/linear_site_test_body.h"
#include "ops/lora/test/lora_cuda_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

template <class T>
class LinearSiteCuda : public LoraCuda<T> {};
TYPED_TEST_SUITE(LinearSiteCuda, HalfTypes);

TYPED_TEST(LinearSiteCuda, IsTheProductWithTheAdaptersOfEachRow) {
  const int rounds = small_sizes() ? 6 : 60;
  for (int i = 0; i < rounds; ++i) {
    const bool is_prompt = i % 4 == 3;
    const LinearPath path = is_prompt ? LinearPath::kPrompt : LinearPath::kDecode;
    HostSite<TypeParam> site(random_site_shape(pick({3, 40, 64, is_prompt ? 270 : 140})));
    site.run(this->runs().any(), path);
    site.expect_right();
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(LinearSiteCuda, TakesTheShapesOfModels) {
  for (const auto& outs : {std::vector<int64_t>{576, 192, 192}, {4096}, {6144}, {8192, 8192}}) {
    if (small_sizes() && outs[0] > 1000) continue;
    for (const LinearPath path : kLinearPaths) {
      HostSite<TypeParam> site({.rows = path == LinearPath::kPrompt ? 131 : 9,
                                .in = path == LinearPath::kPrompt ? 72 : 1536,
                                .outs = outs,
                                .max_rank = 16});
      site.run(this->runs().run(TestFixture::Form::kGeneralBlocks, true), path);
      site.expect_right();
      if (this->HasFatalFailure()) return;
    }
  }
}

struct TablesCase {
  int max_rank;
  bool is_aligned;  // and so inside
};

TYPED_TEST(LinearSiteCuda, ARowHasItsBitsInAnyBatch) {
  // Clusters of 4, 2 and 1 block.
  for (const int64_t out : {300, 5200, 12400}) {
    if (small_sizes() && out > 1000) continue;
    for (const auto& [max_rank, is_aligned] :
         {TablesCase{0, false}, TablesCase{40, false}, TablesCase{40, true}}) {
      HostSite<TypeParam> site(
          {.rows = small_or(140, 600), .in = 712, .outs = {out}, .max_rank = max_rank});
      const LoraRun run =
          this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
      expect_bits_in_any_batch(site, run, LinearPath::kDecode, is_aligned,
                               {1, 2, 7, 64, 65, 128, 129, 255, 256, 257, 512});
      if (this->HasFatalFailure()) FAIL() << out << " outputs, max_rank " << max_rank;
    }
  }
}

TYPED_TEST(LinearSiteCuda, ARowOfAPromptHasItsBitsInAnyBatch) {
  // All shapes of a launch: tiles of 128 and 256 outputs, one block and two of a cluster, several
  // tiles of a block. Adapters are inside from 257 rows on.
  for (const auto& [rows, out] : {std::pair<int64_t, int64_t>{8192, 300}, {1030, 5200}}) {
    if (small_sizes() && out > 1000) continue;
    for (const auto& [max_rank, is_aligned] : {TablesCase{0, false}, TablesCase{16, false},
                                               TablesCase{16, true}, TablesCase{40, true}}) {
      HostSite<TypeParam> site({.rows = small_or<int64_t>(600, rows),
                                .in = 200,
                                .outs = {out, 136},
                                .max_rank = max_rank,
                                .has_float_y = random_int(0, 1) == 0});
      const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, true);
      expect_bits_in_any_batch(site, run, LinearPath::kPrompt, is_aligned,
                               {1, 2, 7, 64, 255, 256, 257, 512});
      if (this->HasFatalFailure()) FAIL() << out << " outputs, max_rank " << max_rank;
    }
  }
}

TYPED_TEST(LinearSiteCuda, AdaptersInsideHaveTheBitsOfLoraApply) {
  std::vector<SiteShape> shapes;
  for (int i = 0; i < (small_sizes() ? 4 : 16); ++i) {
    SiteShape& shape = shapes.emplace_back(random_site_shape(pick({8, 64, 128})));
    shape.is_regular = true;
    // A chunk of 512 features in each chain of sums of h, and sometimes more.
    shape.in = 8 * random_int(1, i % 4 == 3 ? 1300 : 250);
    shape.max_rank = pick({4, 16, 40, 128});
  }
  // Blocks that have several tiles, also of two slices.
  if (!small_sizes()) {
    shapes.push_back({.rows = 9, .in = 104, .outs = {30000, 15000}, .max_rank = 16});
    shapes.push_back({.rows = 100, .in = 104, .outs = {20000, 8672}, .max_rank = 40});
  }
  for (const SiteShape& shape : shapes) {
    HostSite<TypeParam> site(shape);
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
    expect_bits_of_lora_apply(site, run, LinearPath::kDecode);
    if (this->HasFatalFailure()) FAIL() << "rank " << shape.max_rank;
  }
}

TYPED_TEST(LinearSiteCuda, AdaptersInsideAPromptHaveTheBitsOfLoraApply) {
  for (int i = 0; i < (small_sizes() ? 4 : 12); ++i) {
    SiteShape shape = random_site_shape(1);
    shape.max_rank = pick({4, 16, 40, 72, 128});
    shape.rows = random_int(shape.max_rank > 64 ? 128 : 257, small_sizes() ? 300 : 700);
    shape.is_regular = true;
    shape.in = 8 * random_int(1, small_sizes() ? 40 : 120);
    HostSite<TypeParam> site(shape);
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
    expect_bits_of_lora_apply(site, run, LinearPath::kPrompt);
    if (this->HasFatalFailure()) FAIL() << "rank " << shape.max_rank;
  }
}

TYPED_TEST(LinearSiteCuda, AdaptersOfMoreSlicesThanALaunchTakes) {
  for (const LinearPath path : kLinearPaths) {
    const bool is_prompt = path == LinearPath::kPrompt;
    HostSite<TypeParam> site({.rows = is_prompt ? 260 : 20,
                              .in = is_prompt ? 72 : 264,
                              .outs = {40, 33, 64, 8, 100, 48, 65, 24, 16},
                              .max_rank = 40});
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
    expect_bits_of_lora_apply(site, run, path);
    if (this->HasFatalFailure()) return;
    site.expect_right();
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(LinearSiteCuda, CountsOfLaunchesBeginAgainAtZero) {
  constexpr int64_t kRows = 5;
  for (const WeightType type : {WeightType::kF32, WeightType::kQ4_0}) {
    HostSite<TypeParam> site(
        {.rows = kRows, .in = 544, .outs = {300}, .max_rank = 16, .formats = {type}});
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, false);
    const auto call = [&] { site.run(run, 0, kRows, with_vectors(LinearPath::kDecode, {})); };
    call();
    const HostSite<TypeParam> before = site;
    std::array<uint32_t, 2> counts{UINT32_MAX, UINT32_MAX};
    auto* const words = cuda::linear_site::kXSignal.words_in<uint32_t>(run.ctx.exchange);
    HEDDLE_CUDA_CHECK(cudaMemcpy(words, counts.data(), sizeof(counts), cudaMemcpyHostToDevice));
    for (int i = 0; i < 3; ++i) {
      site.clear();
      call();
      for (int64_t row = 0; row < kRows; ++row) ASSERT_EQ(site.bits(row), before.bits(row));
    }
    HEDDLE_CUDA_CHECK(cudaMemcpy(counts.data(), words, sizeof(counts), cudaMemcpyDeviceToHost));
    EXPECT_EQ(counts[0], 2u) << type;  // begun
    EXPECT_EQ(counts[1], 2u) << type;  // ready
  }
}

struct ForeignCase {
  LinearPath path;
  int64_t rows;
  WeightType type;
};

TYPED_TEST(LinearSiteCuda, AForeignPlanMakesNaNAndTells) {
  for (const auto& [path, rows, type] :
       {ForeignCase{LinearPath::kDecode, 5, WeightType::kF32},
        ForeignCase{LinearPath::kDecode, 5, WeightType::kQ4_0},
        ForeignCase{LinearPath::kPrompt, 300, WeightType::kF32},
        ForeignCase{LinearPath::kPrompt, 300, WeightType::kQ4_0}}) {
    for (const bool is_apart : {true, false}) {
      HostSite<TypeParam> site(
          {.rows = rows, .in = 256, .outs = {96, 40}, .max_rank = 16, .formats = {type, type}});
      std::ranges::fill(site.y, from_float<TypeParam>(1.0f));
      DeviceStream stream;
      CudaContext context(Device{DeviceType::kCuda, 0}, stream.get(), size_t{1} << 20);
      DeviceMirror mirror;
      const LoraRun run{.ctx = as_tested(context.exec()), .mirror = mirror};
      const auto plan = mirror.scratch(lora_plan_bytes(rows, 16), 0);
      SiteRoute taken = SiteRoute::kApart;
      const auto selected = is_apart ? std::optional(SiteRoute::kApart) : std::nullopt;
      const auto call = with_vectors(path, {.route = selected, .taken = &taken});
      site.run(run, 0, rows,
               [&](const ExecContext& ctx, const auto& slices, const ConstTensorView& x,
                   const LinearAdapters* adapters) {
                 LinearAdapters foreign = *adapters;
                 foreign.batch.plan =
                     TensorView(plan.data(), DType::kUInt8, ctx.device, {std::ssize(plan)});
                 call(ctx, slices, x, &foreign);
               });
      EXPECT_EQ(taken == SiteRoute::kApart, is_apart);
      for (const TypeParam v : site.y) ASSERT_TRUE(std::isnan(to_float(v))) << rows << type;
      EXPECT_THROW(context.check(), Error);
    }
  }
}

}  // namespace
}  // namespace heddle::testing
