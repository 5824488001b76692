// Attention over a cache of f8e4m3 on a GPU: the bodies of the CPU's tests.
#include <array>
#include <vector>

#include "heddle/ops/attention.h"

#include "device_buffer.h"
#include "expect_error.h"
#include "ops/attention/test/attention_cuda_test_body.h"
#include "ops/attention/test/bits_test_body.h"

namespace heddle::testing {
namespace {

using Code = float8_e4m3;

template <class T>
class AttentionCodesCuda : public AttentionCuda<T> {};
TYPED_TEST_SUITE(AttentionCodesCuda, HalfTypes);

TYPED_TEST(AttentionCodesCuda, DecodeAgreesWithTheDefinition) {
  for (const bool any : {false, true}) {
    this->template expect_agreement<Code>(
        {.prefill = false, .decode = true, .any_head_dim = any, .longest = 300}, 250);
  }
}

TYPED_TEST(AttentionCodesCuda, PrefillAgreesWithTheDefinition) {
  for (const bool any : {false, true}) {
    this->template expect_agreement<Code>({.prefill = true, .decode = false, .any_head_dim = any},
                                          150);
  }
}

TYPED_TEST(AttentionCodesCuda, ARowAloneIsTheRowInABatch) {
  const AttentionRun run = this->run();
  for (const bool decode : {false, true}) {
    const Setting setting{.decode = decode, .run = &run};
    expect_a_row_alone_is_the_row_in_a_batch<TypeParam, Code>(setting, {setting, setting});
  }
}

TYPED_TEST(AttentionCodesCuda, PagesDoNotShow) {
  const AttentionRun run = this->run();
  expect_pages_do_not_show<TypeParam, Code>({.decode = false, .run = &run});
  expect_pages_do_not_show<TypeParam, Code>({.decode = true, .run = &run});
}

TYPED_TEST(AttentionCodesCuda, ChunksGiveTheWholePrompt) {
  const AttentionRun run = this->run();
  expect_chunks_give_the_whole_prompt<TypeParam, Code>({.run = &run}, {.run = &run});
}

TYPED_TEST(AttentionCodesCuda, NaNReachesTheRowsThatSeeItOnly) {
  const AttentionRun run = this->run();
  expect_nan_reaches_the_rows_that_see_it_only<TypeParam, Code>({.run = &run});
}

/// Blocks share units through the workspace and through clusters, as they do without codes; a long
/// sequence among short ones has the bits that it has alone.
TYPED_TEST(AttentionCodesCuda, SharedUnitsDoNotShow) {
  const AttentionRun run = this->run();
  AttentionRun without = run;
  without.ctx.info.compute_capability = 80;
  for (int round = 0; round < small_or(4, 30); ++round) {
    HeadShape heads = random_heads();
    heads.head_dim = static_cast<int>(pick<int64_t>({64, 80, 128, 256}));
    heads.group_size = static_cast<int>(pick<int64_t>({1, 4, 9, 16}));
    const int64_t longest = small_or<int64_t>(300, 8192);
    std::vector<Sequence<TypeParam, Code>> batch;
    for (int64_t i = random_int(1, small_or(2, 9)); i > 0; --i) {
      batch.push_back(random_sequence<TypeParam, Code>(heads, 1, random_int(1, longest)));
    }
    const AttentionOptions options = random_options(heads.head_dim, false);
    const auto want = attend(heads, batch, {.decode = true, .run = &without}, options);
    EXPECT_TRUE(attend(heads, batch, {.decode = true, .run = &run}, options).same_bits_as(want));
    const auto alone =
        attend<TypeParam, Code>(heads, {batch[0]}, {.decode = true, .run = &run}, options);
    EXPECT_TRUE(want.tokens(heads, 0, 1).same_bits_as(alone));
  }
}

/// Queries of any size become f16 exactly enough, and so do weights of values of any scale.
TYPED_TEST(AttentionCodesCuda, DecodeTakesQueriesAndScalesOfAnySize) {
  constexpr int64_t kKeys = 40, kDim = 128;
  const auto q = random_normal<TypeParam>(kDim);
  const auto codes = random_normal<Code>(2 * kKeys * kDim);
  const DeviceBuffer<Code> pages(codes);
  const DeviceBuffer<int32_t> indptr(std::vector<int32_t>{0, 1}), page(std::vector<int32_t>{0}),
      last(std::vector<int32_t>{int32_t{kKeys}});
  const float largest = std::is_same_v<TypeParam, half> ? 2000.0f : 1e20f;
  for (const float size : {1.0f, largest, std::is_same_v<TypeParam, half> ? 1e-2f : 1e-20f}) {
    std::vector<TypeParam> scaled;
    for (const TypeParam x : q) scaled.push_back(from_float<TypeParam>(to_float(x) * size));
    for (const float of_values : {1e-9f, 1.0f, 50.0f}) {
      std::vector<float> scales(2 * kKeys, 1.0f);
      for (int64_t i = 0; i < kKeys; ++i) {
        scales[size_t(kKeys + i)] = of_values * static_cast<float>(i % 7 + 1);
      }
      const DeviceBuffer<TypeParam> q_there(scaled);
      const DeviceBuffer<float> scales_there(scales);
      const DeviceBuffer<TypeParam> o(kDim);
      const TensorView all = pages.view({2, 1, kKeys, kDim}),
                       its_scales = scales_there.view({2, 1, kKeys});
      const AttentionOptions options{.sm_scale = 0.08f / size};
      batch_decode(this->cuda_context(), o.view({1, 1, kDim}), {}, q_there.view({1, 1, kDim}),
                   PagedKv::from_pool(all.narrow(0, 0, 1), all.narrow(0, 1, 1),
                                      its_scales.narrow(0, 0, 1), its_scales.narrow(0, 1, 1)),
                   {indptr.view({2}), page.view({1}), last.view({1})}, options);
      auto k = to_double(codes), v = k;
      k.resize(kKeys * kDim);
      v.erase(v.begin(), v.begin() + kKeys * kDim);
      for (size_t i = 0; i < v.size(); ++i) v[i] *= scales[size_t(kKeys) + i / kDim];
      const auto want = ref::attention(to_double(scaled).data(), kKeys - 1, k, v, kKeys, 1, 0,
                                       int{kDim}, options);
      const auto got = o.download();
      for (size_t d = 0; d < kDim; ++d) {
        // Of a half of 1e-9 next to nothing is left.
        const double rounding = std::is_same_v<TypeParam, half> ? 3.1e-8 : 0.0;
        EXPECT_LE(std::abs(to_float(got[d]) - want.o[d]), 6e-3 * 7 * of_values + rounding)
            << "element " << d << ", q by " << size << ", values by " << of_values;
      }
    }
  }
}

TYPED_TEST(AttentionCodesCuda, KeysThatRotateInsideAreRefused) {
  const DeviceBuffer<int32_t> indptr(std::vector<int32_t>{0, 1}), page(std::vector<int32_t>{0}),
      last(std::vector<int32_t>{1});
  const DeviceBuffer<Code> pages(128);
  const DeviceBuffer<TypeParam> q(64), o(64);
  const TensorView all = pages.view({2, 1, 1, 64});
  AttentionOptions options;
  options.rope = RopeParams{};
  expect_unsupported(
      {"batch_decode: options.rope with a cache of f8e4m3, supported on cuda:"}, [&] {
        batch_decode(this->cuda_context(), o.view({1, 1, 64}), {}, q.view({1, 1, 64}),
                     PagedKv::from_pool(all.narrow(0, 0, 1), all.narrow(0, 1, 1), 1.0f, 1.0f),
                     {indptr.view({2}), page.view({1}), last.view({1})}, options);
      });
  EXPECT_TRUE(o.untouched(0, 64));
}

}  // namespace
}  // namespace heddle::testing
