// The promises about bits on the CPU, and that they hold across instruction sets.

#include "isa.h"
#include "ops/attention/test/bits_test_body.h"

namespace heddle {
namespace {

using testing::Attended;
using testing::HeadShape;

/// The types of the queries and of the cache.
template <class Q, class KV>
struct TypesOf {
  using Query = Q;
  using Cache = KV;
};
template <class T>
class AttentionBits : public ::testing::Test {};
using Types = ::testing::Types<TypesOf<float, float>, TypesOf<half, half>,
                               TypesOf<bfloat16, bfloat16>, TypesOf<float, float8_e4m3>>;
TYPED_TEST_SUITE(AttentionBits, Types);

TYPED_TEST(AttentionBits, RowAloneIsRowInABatchOnAnyThreads) {
  using TQ = typename TypeParam::Query;
  using TKV = typename TypeParam::Cache;
  ThreadPool two(2), three(3);
  testing::expect_a_row_alone_is_the_row_in_a_batch<TQ, TKV>(
      {}, {{}, {.threads = &two}, {.threads = &three}});
}

TYPED_TEST(AttentionBits, PagesDoNotShow) {
  using TQ = typename TypeParam::Query;
  using TKV = typename TypeParam::Cache;
  testing::expect_pages_do_not_show<TQ, TKV>({});
}

TYPED_TEST(AttentionBits, ChunksAndDecodeStepsGiveTheWholePrompt) {
  using TQ = typename TypeParam::Query;
  using TKV = typename TypeParam::Cache;
  testing::expect_chunks_give_the_whole_prompt<TQ, TKV>({}, {.decode = true});
}

TYPED_TEST(AttentionBits, NaNReachesTheRowsThatSeeItOnly) {
  using TQ = typename TypeParam::Query;
  using TKV = typename TypeParam::Cache;
  testing::expect_nan_reaches_the_rows_that_see_it_only<TQ, TKV>({});
}

TYPED_TEST(AttentionBits, TargetsWithFusedMultiplyAddAreEqual) {
  using TQ = typename TypeParam::Query;
  using TKV = typename TypeParam::Cache;
  const HeadShape heads = testing::random_heads();
  const auto batch = testing::random_batch<TQ, TKV>(heads);
  for (const AttentionOptions& options : testing::all_options()) {
    std::vector<Attended<TQ>> results;
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
