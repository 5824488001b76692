#include <algorithm>

#include "ops/linear_site/test/cuda_test_body.h"
#include "ops/linear_site/test/packed_site_test_body.h"
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
    for (const int max_rank : {0, 16}) {
      HostSite<TypeParam> site({.rows = small_or(70, 131),
                                .in = in,
                                .outs = {out},
                                .max_rank = max_rank,
                                .formats = {type}});
      const LoraRun run =
          this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
      expect_bits_in_any_batch(site, run, LinearPath::kDecode, true,
                               {1, 2, 7, 8, 33, 64, 65, 128, 130});
      if (this->HasFatalFailure()) FAIL() << type << ", max_rank " << max_rank;
    }
  }
}

TYPED_TEST(PackedSiteCuda, ARowOfAPromptHasItsBitsInAnyBatch) {
  for (const WeightType type : kBlockTypes) {
    if (small_sizes() && type != WeightType::kQ4_0 && type != WeightType::kQ6K) continue;
    const int64_t in = small_or<int64_t>(256, 768), out = small_or<int64_t>(40, 300);
    for (const int max_rank : {0, 16}) {
      HostSite<TypeParam> site({.rows = small_or(270, 530),
                                .in = in,
                                .outs = {out, 24},
                                .max_rank = max_rank,
                                .formats = {type, type}});
      const LoraRun run =
          this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
      expect_bits_in_any_batch(site, run, LinearPath::kPrompt, true, {1, 2, 7, 64, 257, 300, 512});
      if (this->HasFatalFailure()) FAIL() << type << ", max_rank " << max_rank;
    }
  }
}

TYPED_TEST(PackedSiteCuda, AdaptersHaveTheBitsOfLoraApply) {
  for (int i = 0; i < (small_sizes() ? 4 : 16); ++i) {
    SiteShape shape =
        random_packed_shape(kBlockTypes[random_int(0, 7)], random_int(1, pick({8, 64, 128})));
    shape.outs.resize(std::min<size_t>(shape.outs.size(), 4));  // so that they are inside
    shape.is_regular = true;
    shape.max_rank = pick({4, 16, 40, 128});
    HostSite<TypeParam> site(shape);
    const LoraRun run = this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
    expect_bits_of_lora_apply(site, run, LinearPath::kDecode);
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
    expect_bits_of_lora_apply(site, run, LinearPath::kPrompt);
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
    expect_bits_of_lora_apply(site, run, LinearPath::kPrompt);
    if (this->HasFatalFailure()) FAIL() << out << " outputs";
  }
}

}  // namespace
}  // namespace heddle::testing
