#include <array>

#include "heddle/core/cuda_context.h"

#include "late_copy.h"
#include "ops/linear_site/site_kernels.h"
#include "ops/linear_site/test/cuda_test_body.h"
#include "ops/linear_site/test/packed_site_test_body.h"
#include "ops/lora/test/lora_cuda_cases.h"
#include "ops/lora/test/lora_cuda_test_body.h"

namespace heddle::testing {
namespace {

template <class T>
class PackedSiteCuda : public LoraCuda<T> {};
TYPED_TEST_SUITE(PackedSiteCuda, HalfTypes);

TYPED_TEST(PackedSiteCuda, IsTheProductOfEveryFormat) {
  for (const WeightType type : kBlockTypes) {
    for (const int64_t rows : {1, 2, 7, 8, 33, 64, 65, 130}) {
      if (small_sizes() && rows != 2 && rows != 65) continue;
      HostSite<TypeParam> site(random_packed_shape(type, rows));
      site.run(this->runs().any(), LinearPath::kDecode);
      site.expect_right();
      if (this->HasFatalFailure()) FAIL() << type;
    }
  }
}

TYPED_TEST(PackedSiteCuda, TakesTheShapesOfModels) {
  const int64_t in = small_or<int64_t>(1536, 3072), out = small_or<int64_t>(80, 576);
  for (const WeightType type : kBlockTypes) {  // of more stages than the ring has; clusters
    HostSite<TypeParam> site(
        {.rows = 9, .in = in, .outs = {out, 192}, .max_rank = 16, .formats = {type, type}});
    site.run(this->runs().run(TestFixture::Form::kGeneralBlocks, true), LinearPath::kDecode);
    site.expect_right();
    if (this->HasFatalFailure()) FAIL() << type;
  }
}

TYPED_TEST(PackedSiteCuda, ARowHasItsBitsInAnyBatch) {
  for (const WeightType type : kBlockTypes) {
    const int64_t in = small_or<int64_t>(256, 768), out = small_or<int64_t>(40, 300);
    HostSite<TypeParam> site({.rows = 131, .in = in, .outs = {out}, .formats = {type}});
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, false);
    site.run(run, LinearPath::kDecode);
    const HostSite<TypeParam> all = site;
    for (const int64_t rows : {1, 2, 7, 8, 33, 64, 65, 130}) {
      const int64_t first = random_int(0, 131 - rows);
      site.clear();
      site.run(run, LinearPath::kDecode, first, rows);
      for (int64_t row = first; row < first + rows; ++row) {
        ASSERT_EQ(site.bits(row), all.bits(row)) << rows << " rows, row " << row << ", " << type;
      }
    }
  }
}

TYPED_TEST(PackedSiteCuda, AdaptersHaveTheBitsOfLoraApply) {
  for (int i = 0; i < (small_sizes() ? 4 : 16); ++i) {
    SiteShape shape =
        random_packed_shape(kBlockTypes[random_int(0, 7)], random_int(1, pick({8, 64, 128})));
    shape.is_regular = true;
    shape.max_rank = pick({4, 16, 40, 128});
    HostSite<TypeParam> site(shape);
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
    expect_bits_of_lora_apply(site, run, shape.rows, LinearPath::kDecode);
    if (this->HasFatalFailure()) FAIL() << "rank " << shape.max_rank;
  }
}

TYPED_TEST(PackedSiteCuda, PromptsTakeWeightsThatAreRoundedOnce) {
  for (const WeightType type : kBlockTypes) {
    SiteShape shape = random_packed_shape(type, pick({3, 70, 300}));
    shape.has_rounded_weights = true;
    HostSite<TypeParam> site(shape);
    site.run(this->runs().any(), LinearPath::kPrompt);
    site.expect_right();
    if (this->HasFatalFailure()) FAIL() << type;
  }
}

TYPED_TEST(PackedSiteCuda, AdaptersOfPromptsHaveTheBitsOfLoraApply) {
  for (int i = 0; i < (small_sizes() ? 2 : 16); ++i) {
    SiteShape shape = random_packed_shape(kBlockTypes[random_int(0, 7)], pick({257, 300}));
    shape.is_regular = true;
    shape.max_rank = pick({4, 16, 40, 128});
    HostSite<TypeParam> site(shape);
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
    expect_bits_of_lora_apply(site, run, shape.rows, LinearPath::kPrompt);
    if (this->HasFatalFailure()) FAIL() << "rank " << shape.max_rank;
  }
}

TYPED_TEST(PackedSiteCuda, AdaptersOfPromptsFitWeightsThatAreDequantizedInParts) {
  for (const int64_t out : {600, 604}) {  // 512 at a time; rows of y that are vectors, or not
    HostSite<TypeParam> site({.rows = 300,
                              .in = 32768,
                              .outs = {40, out},
                              .max_rank = 16,
                              .has_float_y = out == 604 && random_int(0, 1) == 0,
                              .has_bias = random_int(0, 1) == 0,
                              .formats = {WeightType::kQ8_0, WeightType::kQ4_0}});
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, true);
    expect_bits_of_lora_apply(site, run, site.shape.rows, LinearPath::kPrompt);
    if (this->HasFatalFailure()) FAIL() << out << " outputs";
  }
}

/// x that a captured call finds at its replay, written last by the kernel in front of it, which
/// lets it start early; and a call behind it that takes its y as x.
TEST(PackedSiteReplay, AChainSeesWhatTheKernelInFrontWritesLast) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kRows = 20, kIn = 2048;
  const LoraStream stream(Device{DeviceType::kCuda, 0}, size_t{8} << 20, true);
  const DeviceBuffer<bfloat16> x(size_t(kRows * kIn)), y(size_t(kRows * kIn)),
      z(size_t(kRows * 64));
  DeviceBuffer<bfloat16> late_x(size_t(kRows * kIn));
  const auto stored = random_stored(WeightType::kQ4K, kIn * kIn, rng(), 1e-4f);
  const OwnedWeight host(ExecContext{}, WeightType::kQ4K, kIn, kIn, stored);
  const DeviceBuffer<std::byte> weights(std::span(host.bytes()));
  const DeviceSite<bfloat16> of_y(kRows, kIn, {kIn}, 16, true), of_z(kRows, kIn, {64}, 16, true);
  for (const bool has_adapters : {false, true}) {
    const auto multiply = [&](const DeviceBuffer<bfloat16>& to, int64_t out,
                              const DeviceBuffer<bfloat16>& from) {
      const LinearSlice slice{.y = to.view({kRows, out}),
                              .packed = {WeightType::kQ4K, out, kIn, weights.data()}};
      const DeviceSite<bfloat16>& adapters = out == kIn ? of_y : of_z;
      const LinearAdapters given{adapters.a(), adapters.b(), adapters.batch()};
      cuda::linear_site::run(stream.ctx(), {&slice, 1}, from.view({kRows, kIn}),
                             LinearPath::kDecode, has_adapters ? &given : nullptr);
    };
    const Graph graph(stream, [&] {
      const std::array late{LateCopy{x.data(), late_x.data(), kRows * kIn * sizeof(bfloat16)}};
      copy_late(late, stream.get());
      multiply(y, kIn, x);
      multiply(z, 64, y);
    });
    for (int replay = 0; replay < small_or(2, 10); ++replay) {
      late_x.upload(random_normal<bfloat16>(size_t(kRows * kIn)));
      graph.launch();
      stream.wait();
      const auto got = z.download();
      multiply(y, kIn, late_x);
      stream.wait();
      multiply(z, 64, y);
      stream.wait();
      for (const bfloat16 v : got) ASSERT_TRUE(std::isfinite(to_float(v)));
      EXPECT_TRUE(same_bits<bfloat16>(got, z.download())) << "replay " << replay;
    }
  }
}

}  // namespace
}  // namespace heddle::testing
