// batch_decode on a GPU: the bodies of the CPU's tests.
#include <cstring>
#include <vector>

#include "ops/attention/test/attention_cuda_test_body.h"
#include "ops/attention/test/bits_test_body.h"

namespace heddle::testing {
namespace {

template <class T>
class AttentionDecodeCuda : public AttentionCuda<T> {};
TYPED_TEST_SUITE(AttentionDecodeCuda, HalfTypes);

TYPED_TEST(AttentionDecodeCuda, AgreesWithTheDefinition) {
  for (const bool any : {false, true}) {
    this->expect_agreement({.prefill = false, .decode = true, .any_head_dim = any, .longest = 300},
                           250);
  }
}

TYPED_TEST(AttentionDecodeCuda, ARowAloneIsTheRowInABatch) {
  const AttentionRun run = this->run();
  const Setting setting{.decode = true, .run = &run};
  expect_a_row_alone_is_the_row_in_a_batch<TypeParam>(setting, {setting, setting});
}

TYPED_TEST(AttentionDecodeCuda, PagesDoNotShow) {
  const AttentionRun run = this->run();
  expect_pages_do_not_show<TypeParam>({.decode = true, .run = &run});
}

TYPED_TEST(AttentionDecodeCuda, OneLongSequenceAmongShortOnes) {
  const AttentionRun run = this->run();
  const Setting setting{.decode = true, .run = &run};
  const HeadShape heads{.group_size = 4, .num_kv_heads = 2, .head_dim = 64};
  std::vector<Sequence<TypeParam, TypeParam>> batch{
      random_sequence<TypeParam, TypeParam>(heads, 1, small_or<int64_t>(600, 32768))};
  const auto alone = attend<TypeParam, TypeParam>(heads, batch, setting, {});
  for (int i = 0; i < 63; ++i) {
    batch.push_back(random_sequence<TypeParam, TypeParam>(heads, 1, 1));
  }
  const auto together = attend(heads, batch, setting, AttentionOptions{});
  EXPECT_TRUE(together.tokens(heads, 0, 1).same_bits_as(alone));
  for (int64_t i = 1; i < 64; ++i) {  // of one key, the output is its value
    const std::vector<TypeParam>&v = batch[size_t(i)].v, &o = together.tokens(heads, i, 1).o;
    for (size_t j = 0; j < o.size(); ++j) {
      EXPECT_EQ(to_float(o[j]), to_float(v[j / (4 * 64) * 64 + j % 64]));
    }
  }
}

/// Few sequences go to clusters of blocks where the chip has them.
TYPED_TEST(AttentionDecodeCuda, ClustersDoNotShow) {
  const AttentionRun run = this->run();
  AttentionRun without = run;
  without.ctx.info.compute_capability = 80;
  for (int round = 0; round < small_or(6, 60); ++round) {
    HeadShape heads = random_heads();
    heads.head_dim = static_cast<int>(pick<int64_t>({64, 80, 128, 256, random_int(1, 256)}));
    heads.group_size = static_cast<int>(pick<int64_t>({1, 4, 9, 16}));
    const int64_t longest = small_or<int64_t>(300, 2048);
    const int64_t length = pick<int64_t>({129, 512, longest, random_int(1, longest)});
    const bool are_alike = round % 2 == 0;
    std::vector<Sequence<TypeParam, TypeParam>> batch;
    for (int64_t i = random_int(1, small_or(2, 9)); i > 0; --i) {
      const int64_t own_length = are_alike ? length : random_int(1, length);
      batch.push_back(random_sequence<TypeParam, TypeParam>(heads, 1, own_length));
    }
    const AttentionOptions options = random_options(heads.head_dim);
    SCOPED_TRACE(::testing::Message()
                 << batch.size() << (are_alike ? " of " : " of up to ") << length << ", heads "
                 << heads.num_kv_heads << " x " << heads.group_size << " of " << heads.head_dim);
    const auto want = attend(heads, batch, {.decode = true, .run = &without}, options);
    EXPECT_TRUE(attend(heads, batch, {.decode = true, .run = &run}, options).same_bits_as(want));
  }
}

/// More sequences than a block has threads, and at full size more than that in the share of a
/// block.
TYPED_TEST(AttentionDecodeCuda, ManySequencesOfOneKeyAmongLongOnes) {
  const AttentionRun run = this->run();
  const Setting setting{.decode = true, .run = &run};
  const HeadShape heads{.group_size = 1, .num_kv_heads = 1, .head_dim = 64};
  const int64_t count = small_or<int64_t>(150, 40000), step = small_or<int64_t>(37, 3001);
  std::vector<Sequence<TypeParam, TypeParam>> batch;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = i % step == 5 ? random_int(130, 700) : 1;
    batch.push_back(random_sequence<TypeParam, TypeParam>(heads, 1, length));
  }
  const auto together = attend(heads, batch, setting, AttentionOptions{});
  for (int64_t i = 0; i < count; ++i) {
    const auto row = together.tokens(heads, i, 1);
    if (i % step == 5) {
      const auto alone = attend<TypeParam, TypeParam>(heads, {batch[size_t(i)]}, setting, {});
      EXPECT_TRUE(row.same_bits_as(alone)) << "sequence " << i;
    } else {
      ASSERT_EQ(0, std::memcmp(row.o.data(), batch[size_t(i)].v.data(), 64 * sizeof(TypeParam)))
          << "sequence " << i;
    }
  }
}

}  // namespace
}  // namespace heddle::testing
