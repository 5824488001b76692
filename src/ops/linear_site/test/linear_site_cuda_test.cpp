#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <utility>

#include "cuda/check.h"

#include "heddle/core/cuda_context.h"

#include "ops/linear_site/decode/exchange.h"
#include "ops/linear_site/site_kernels.h"
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

TYPED_TEST(LinearSiteCuda, ARowHasItsBitsInAnyBatch) {
  // Clusters of 4, 2 and 1 block.
  for (const int64_t out : {300, 5200, 12400}) {
    if (small_sizes() && out > 1000) continue;
    for (const int max_rank : {0, 40}) {
      HostSite<TypeParam> site({.rows = 257, .in = 712, .outs = {out}, .max_rank = max_rank});
      const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, true);
      site.run(run, LinearPath::kDecode);
      const HostSite<TypeParam> all = site;
      for (const int64_t rows : {1, 2, 7, 64, 65, 128, 129, 255, 256}) {
        const int64_t first = random_int(0, 257 - rows);
        site.clear();
        site.run(run, LinearPath::kDecode, first, rows);
        for (int64_t row = first; row < first + rows; ++row) {
          ASSERT_EQ(site.bits(row), all.bits(row)) << rows << " rows, row " << row << ", " << out;
        }
      }
    }
  }
}

TYPED_TEST(LinearSiteCuda, ARowOfAPromptHasItsBitsInAnyBatch) {
  // All shapes of a launch: tiles of 128 and 256 outputs, one block and two of a cluster, several
  // tiles of a block. Adapters are inside from 257 rows on.
  for (const auto& [rows_of_all, out] : {std::pair<int64_t, int64_t>{8192, 300}, {1030, 5200}}) {
    if (small_sizes() && out > 1000) continue;
    const int64_t all_rows = small_sizes() ? 600 : rows_of_all;
    for (const int max_rank : {0, 16, 40}) {
      HostSite<TypeParam> site({.rows = all_rows,
                                .in = 200,
                                .outs = {out, 136},
                                .max_rank = max_rank,
                                .has_float_y = random_int(0, 1) == 0});
      const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, true);
      site.run(run, 0, all_rows, with_vectors(LinearPath::kPrompt, {}));
      const HostSite<TypeParam> all = site;
      for (const int64_t rows : {1, 2, 7, 64, 255, 256, 257, 512}) {
        const int64_t first = random_int(0, all_rows - rows);
        site.clear();
        site.run(run, first, rows, with_vectors(LinearPath::kPrompt, {}));
        for (int64_t row = first; row < first + rows; ++row) {
          ASSERT_EQ(site.bits(row), all.bits(row)) << rows << " rows, row " << row << ", " << out;
        }
      }
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
    expect_bits_of_lora_apply(site, run, shape.rows, LinearPath::kDecode);
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
    expect_bits_of_lora_apply(site, run, shape.rows, LinearPath::kPrompt);
    if (this->HasFatalFailure()) FAIL() << "rank " << shape.max_rank;
  }
}

TYPED_TEST(LinearSiteCuda, OtherAdaptersChangeNoBit) {
  for (const auto& [path, rows] :
       {std::pair{LinearPath::kDecode, 32}, {LinearPath::kPrompt, 300}}) {
    HostSite<TypeParam> site({.rows = rows + 1, .in = 1024, .outs = {512, 256}, .max_rank = 64});
    for (int& slot : site.batch.slots) slot = slot < 0 ? slot : slot % 3;
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, false);
    const auto run_ids = [&] { site.run(run, path, 0, rows); };
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
    for (int64_t row = 0; row < rows; ++row) ASSERT_EQ(site.bits(row), before.bits(row));
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

TYPED_TEST(LinearSiteCuda, AForeignPlanMakesNaNAndTells) {
  for (const auto& [path, rows] : {std::pair{LinearPath::kDecode, 5}, {LinearPath::kPrompt, 300}}) {
    HostSite<TypeParam> site({.rows = rows, .in = 256, .outs = {96}, .max_rank = 16});
    DeviceStream stream;
    CudaContext context(Device{DeviceType::kCuda, 0}, stream.get(), size_t{1} << 20);
    DeviceMirror mirror;
    const LoraRun run{.ctx = context.exec(), .mirror = mirror};
    const auto plan_bytes = static_cast<int64_t>(lora_plan_bytes(rows, 16));
    site.run(run, 0, rows,
             [&, path = path](const ExecContext& ctx, const auto& slices, const ConstTensorView& x,
                              const LinearAdapters* adapters) {
               LinearAdapters foreign = *adapters;
               foreign.a.is_aligned = foreign.b.is_aligned = true;
               const auto plan = mirror.scratch(size_t(plan_bytes), 0);
               foreign.batch.plan =
                   TensorView(plan.data(), DType::kUInt8, ctx.device, {plan_bytes});
               linear_site(ctx, slices, x, path, &foreign);
             });
    for (const TypeParam v : site.y) ASSERT_TRUE(std::isnan(to_float(v)));
    EXPECT_THROW(context.check(), Error);
  }
}

/// A site on the device, with weights and y of its own.
struct ReplaySite {
  /// kF32: dense weights.
  ReplaySite(int64_t rows, int64_t in, std::vector<int64_t> outs, WeightType type)
      : rows(rows), in(in), outs(std::move(outs)), type(type) {
    for (const int64_t out : this->outs) {
      y.emplace_back(std::vector<bfloat16>(size_t(rows * out)));
      if (type == WeightType::kF32) {
        weights.emplace_back(random_normal<bfloat16>(size_t(out * in), 0.05f));
        continue;
      }
      const auto stored = random_stored(type, out * in, rng(), 0.01f);
      packed.emplace_back(std::span(OwnedWeight(ExecContext{}, type, out, in, stored).bytes()));
    }
  }
  void call(const ExecContext& ctx, const ConstTensorView& x, LinearPath path,
            const LinearAdapters* adapters, bool allows_inside) const {
    std::vector<LinearSlice> slices;
    for (size_t s = 0; s < outs.size(); ++s) {
      LinearSlice& slice = slices.emplace_back(LinearSlice{.y = y[s].view({rows, outs[s]})});
      if (type == WeightType::kF32) {
        slice.weight = weights[s].view({outs[s], in});
      } else {
        slice.packed = {type, outs[s], in, packed[s].data()};
      }
    }
    cuda::linear_site::run(ctx, slices, x, path, adapters, {.allows_inside = allows_inside});
  }
  [[nodiscard]] std::vector<std::vector<bfloat16>> download() const {
    std::vector<std::vector<bfloat16>> result;
    for (const auto& of_slice : y) result.push_back(of_slice.download());
    return result;
  }

  int64_t rows, in;
  std::vector<int64_t> outs;
  WeightType type;
  std::vector<DeviceBuffer<bfloat16>> weights, y;
  std::vector<DeviceBuffer<std::byte>> packed;
};

struct ReplayCase {
  LinearPath path;
  int64_t rows;  // of a prompt more than 256, so that adapters are inside
  WeightType type;
};
const ReplayCase kReplayCases[] = {
    {LinearPath::kDecode, 20, WeightType::kF32},
    {LinearPath::kDecode, 20, WeightType::kQ4_0},
    {LinearPath::kPrompt, small_or(260, 700), WeightType::kF32},
    {LinearPath::kPrompt, small_or(260, 700), WeightType::kQ4_0},
};

TEST(LinearSiteReplay, AGraphFollowsIdsAndTables) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  for (const ReplayCase& c : kReplayCases) {
    const LoraStream stream(Device{DeviceType::kCuda, 0}, size_t{16} << 20, true);
    DeviceSite<bfloat16> adapters(c.rows, 512, {256, 128}, 16, true);
    const ReplaySite site(c.rows, 512, {256, 128}, c.type);
    const auto call = [&](bool allows_inside) {
      const LinearAdapters given{adapters.a(), adapters.b(), adapters.batch()};
      site.call(stream.ctx(), adapters.x(), c.path, &given, allows_inside);
    };
    const Graph graph(stream, [&] { call(true); });
    for (int round = 0; round < small_or(3, 5); ++round) {
      adapters.change();
      graph.launch();
      stream.wait();
      const auto got = site.download();
      call(false);
      stream.wait();
      const auto want = site.download();
      for (size_t s = 0; s < 2; ++s) {
        EXPECT_TRUE(same_bits<bfloat16>(got[s], want[s])) << c.type << ", round " << round;
      }
    }
  }
}

TEST(LinearSiteReplay, AChainReadsWhatTheLaunchInFrontWrote) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  constexpr int kSites = 6;
  for (const ReplayCase& c : kReplayCases) {
    const LoraStream stream(Device{DeviceType::kCuda, 0}, size_t{16} << 20, true);
    DeviceSite<bfloat16> adapters(c.rows, 256, {256}, 16, true);
    std::deque<ReplaySite> sites;
    for (int i = 0; i < kSites; ++i) {
      sites.emplace_back(c.rows, 256, std::vector<int64_t>{256}, c.type);
    }
    // x of a site is y of the site before; every other site has adapters.
    const auto run = [&](bool waits) {
      const LinearAdapters given{adapters.a(), adapters.b(), adapters.batch()};
      for (int i = 0; i < kSites; ++i) {
        const ConstTensorView x =
            i == 0 ? adapters.x() : sites[size_t(i - 1)].y[0].view({c.rows, 256});
        sites[size_t(i)].call(stream.ctx(), x, c.path, i % 2 == 1 ? &given : nullptr, true);
        if (waits) stream.wait();
      }
    };
    run(true);
    const auto want = sites.back().download();
    for (const bfloat16 v : want[0]) ASSERT_TRUE(std::isfinite(to_float(v)));
    const Graph graph(stream, [&] { run(false); });
    for (int round = 0; round < small_or(4, 20); ++round) {
      graph.launch();
      stream.wait();
      EXPECT_TRUE(same_bits<bfloat16>(sites.back().download()[0], want[0]))
          << c.type << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace heddle::testing
