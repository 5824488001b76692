// The promises about bits on the CPU, and that they hold across instruction sets.

#include "isa.h"
#include "ops/attention/test/bits_test_body.h"

namespace heddle {
namespace {

using testing::Attended;
using testing::HeadShape;

template <class T>
class AttentionBits : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(AttentionBits, Types);

TYPED_TEST(AttentionBits, RowAloneIsRowInABatchOnAnyThreads) {
  ThreadPool two(2), three(3);
  testing::expect_a_row_alone_is_the_row_in_a_batch<TypeParam>(
      {}, {{}, {.threads = &two}, {.threads = &three}});
}

TYPED_TEST(AttentionBits, PagesDoNotShow) { testing::expect_pages_do_not_show<TypeParam>({}); }

TYPED_TEST(AttentionBits, ChunksAndDecodeStepsGiveTheWholePrompt) {
  testing::expect_chunks_give_the_whole_prompt<TypeParam>({}, {.decode = true});
}

TYPED_TEST(AttentionBits, NaNReachesTheRowsThatSeeItOnly) {
  testing::expect_nan_reaches_the_rows_that_see_it_only<TypeParam>({});
}

TYPED_TEST(AttentionBits, TargetsWithFusedMultiplyAddAreEqual) {
  const HeadShape heads = testing::random_heads();
  const auto batch = testing::random_batch<TypeParam>(heads);
  for (const AttentionOptions& options : testing::all_options()) {
    std::vector<Attended<TypeParam>> results;
    for (const int64_t target : testing::cpu_targets()) {
      if (!testing::has_fused_multiply_add(target)) continue;
      const testing::ScopedCpuTarget scope(target);
      results.push_back(testing::attend(heads, batch, {}, options));
      EXPECT_TRUE(results.back().same_bits_as(results.front()));
    }
  }
}

}  // namespace
}  // namespace heddle
