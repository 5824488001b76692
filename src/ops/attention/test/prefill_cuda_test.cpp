// batch_prefill on a GPU: the bodies of the CPU's tests, and borders of the kernel.
#include <array>
#include <limits>
#include <vector>

#include "heddle/ops/attention.h"

#include "device_buffer.h"
#include "expect_error.h"
#include "ops/attention/test/attention_cuda_test_body.h"
#include "ops/attention/test/bits_test_body.h"

namespace heddle::testing {
namespace {

template <class T>
class AttentionPrefillCuda : public AttentionCuda<T> {};
TYPED_TEST_SUITE(AttentionPrefillCuda, HalfTypes);

TYPED_TEST(AttentionPrefillCuda, AgreesWithTheDefinition) {
  for (const bool any : {false, true}) {
    this->expect_agreement({.prefill = true, .decode = false, .any_head_dim = any}, 150);
  }
}

TYPED_TEST(AttentionPrefillCuda, ARowAloneIsTheRowInABatch) {
  const AttentionRun run = this->run();
  const Setting setting{.decode = false, .run = &run};
  expect_a_row_alone_is_the_row_in_a_batch<TypeParam>(setting, {setting, setting});
}

TYPED_TEST(AttentionPrefillCuda, PagesDoNotShow) {
  const AttentionRun run = this->run();
  expect_pages_do_not_show<TypeParam>({.decode = false, .run = &run});
}

TYPED_TEST(AttentionPrefillCuda, ChunksGiveTheWholePrompt) {
  const AttentionRun run = this->run();
  expect_chunks_give_the_whole_prompt<TypeParam>({.run = &run}, {.run = &run});
}

TYPED_TEST(AttentionPrefillCuda, NaNReachesTheRowsThatSeeItOnly) {
  const AttentionRun run = this->run();
  expect_nan_reaches_the_rows_that_see_it_only<TypeParam>({.run = &run});
}

TYPED_TEST(AttentionPrefillCuda, OneLongSequenceAmongShortOnes) {
  const AttentionRun run = this->run();
  const Setting setting{.run = &run};
  const HeadShape heads{.group_size = 4, .num_kv_heads = 2, .head_dim = 64};
  const int64_t length = small_or<int64_t>(300, 32768);
  std::vector<Sequence<TypeParam, TypeParam>> batch{
      random_sequence<TypeParam, TypeParam>(heads, 3, length)};
  const auto alone = attend<TypeParam, TypeParam>(heads, batch, setting, {});
  for (int i = 0; i < 63; ++i) {
    batch.push_back(random_sequence<TypeParam, TypeParam>(heads, 1, 1));
  }
  const auto together = attend(heads, batch, setting, AttentionOptions{});
  EXPECT_TRUE(together.tokens(heads, 0, 3).same_bits_as(alone));
  for (int64_t i = 1; i < 64; ++i) {
    const std::vector<TypeParam>&v = batch[size_t(i)].v, &o = together.tokens(heads, i + 2, 1).o;
    for (size_t j = 0; j < o.size(); ++j) {
      EXPECT_EQ(to_float(o[j]), to_float(v[j / (4 * 64) * 64 + j % 64]));  // its only value
    }
  }
  const auto& long_one = batch[0];
  const auto k = to_double(long_one.k), v = to_double(long_one.v), q = to_double(long_one.q);
  for (int64_t row = 0; row < 3 * 8; ++row) {
    const auto want = ref::attention(&q[size_t(row * 64)], length - 3 + row / 8, k, v, length, 2,
                                     static_cast<int>(row % 8 / 4), 64, {});
    for (size_t d = 0; d < 64; ++d) {
      const double got = to_float(alone.o[size_t(row * 64) + d]);
      EXPECT_LE(std::abs(got - want.o[d]), run.bound<TypeParam>(want.o[d]));
    }
  }
}

TYPED_TEST(AttentionPrefillCuda, RowsThatSeeNoKeyAreZero) {
  // Three queries over one key, of which the causal mask leaves the last query a key; two over
  // none; none over five.
  const AttentionRun run = this->run();
  const HeadShape heads;
  const std::vector batch{random_sequence<TypeParam, TypeParam>(heads, 3, 1),
                          random_sequence<TypeParam, TypeParam>(heads, 2, 0),
                          random_sequence<TypeParam, TypeParam>(heads, 0, 5)};
  const auto got = attend(heads, batch, {.run = &run}, AttentionOptions{});
  for (const int64_t row : {0, 1, 3, 4}) {
    EXPECT_EQ(got.lse[size_t(row)], -std::numeric_limits<float>::infinity());
    for (size_t d = 0; d < 64; ++d) EXPECT_EQ(to_float(got.o[size_t(row * 64) + d]), 0.0f);
  }
  EXPECT_TRUE(same_bits<TypeParam>(got.tokens(heads, 2, 1).o, batch[0].v));
}

class AttentionPrefillBorders : public CudaTest {};

TEST_F(AttentionPrefillBorders, PagesMayLieGigabytesApart) {
  const int64_t stride =
      small_or<int64_t>(int64_t{1} << 12, (int64_t{1} << 30) + 64);  // elements of 2 bytes
  DeviceBuffer<half> memory(size_t(stride + 128));
  const auto key_and_value = random_normal<half>(128);
  memory.upload(key_and_value, size_t(stride));
  const auto view = [&](int64_t first) {
    const std::array<int64_t, 4> extents{2, 1, 1, 64}, strides{stride, 64, 64, 1};
    return TensorView(reinterpret_cast<std::byte*>(memory.data() + first), DType::kFloat16,
                      memory.device(), extents, strides);
  };
  const DeviceBuffer<int32_t> indptr(std::vector<int32_t>{0, 1}), page(std::vector<int32_t>{1}),
      last(std::vector<int32_t>{1});
  const DeviceBuffer<half> q(random_normal<half>(64)), o(64);
  batch_prefill(cuda_context(), o.view({1, 1, 64}), {}, q.view({1, 1, 64}), indptr.view({2}),
                PagedKv::from_pool(view(0), view(64)),
                {indptr.view({2}), page.view({1}), last.view({1})});
  EXPECT_TRUE(same_bits<half>(o.download(), memory.download(size_t(stride) + 64, 64)));
}

TEST_F(AttentionPrefillBorders, RefusesWhatItHasNoKernelFor) {
  const DeviceBuffer<int32_t> indptr(std::vector<int32_t>{0, 1}), page(std::vector<int32_t>{0}),
      last(std::vector<int32_t>{1});
  const DeviceBuffer<half> cache(128);
  const DeviceBuffer<bfloat16> q(64), o(64);
  const TensorView pool = cache.view({2, 1, 1, 64});
  expect_unsupported({"batch_prefill: the cache is f16, supported on cuda:"}, [&] {
    batch_prefill(cuda_context(), o.view({1, 1, 64}), {}, q.view({1, 1, 64}), indptr.view({2}),
                  PagedKv::from_pool(pool.narrow(0, 0, 1), pool.narrow(0, 1, 1)),
                  {indptr.view({2}), page.view({1}), last.view({1})});
  });
  EXPECT_TRUE(o.untouched(0, 64));
}

}  // namespace
}  // namespace heddle::testing
