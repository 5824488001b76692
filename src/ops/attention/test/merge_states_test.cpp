#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "isa.h"
#include "ops/attention/test/attention_cases.h"
#include "ops/attention/test/merge_states_test_body.h"

namespace heddle {
namespace {

using testing::pick;

template <class T>
class MergeStates : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(MergeStates, Types);

TYPED_TEST(MergeStates, AgreesWithTheDefinition) {
  ThreadPool pool(3);
  testing::Mirror here;
  for (const int64_t target : testing::cpu_targets()) {
    const testing::ScopedCpuTarget scope(target);
    for (int round = 0; round < 30; ++round) {
      testing::check_merge_states<TypeParam>(
          testing::context_with(pick<ThreadPool*>({nullptr, &pool})), here);
    }
  }
}

TYPED_TEST(MergeStates, MayWriteOverItsInputs) {
  testing::check_merge_in_place<TypeParam>({}, [](const auto& call) {
    testing::Mirror here;
    call(here);
  });
}

// Attention over the first and the last keys, merged, is attention over all.
TEST(MergeStatesOfAttention, GivesAttentionOverAllKeys) {
  const testing::HeadShape heads{3, 2, 64};
  const auto all = testing::random_sequence<float, float>(heads, 1, 90);
  const int64_t kv_row = heads.num_kv_heads * heads.head_dim, cut = 33;
  testing::Sequence<float, float> first = all, last = all;
  first.kv_len = cut;
  last.kv_len = all.kv_len - cut;
  last.k.erase(last.k.begin(), last.k.begin() + cut * kv_row);
  last.v.erase(last.v.begin(), last.v.begin() + cut * kv_row);
  const auto want = testing::attend<float, float>(heads, {all}, {}, {});
  auto a = testing::attend<float, float>(heads, {first}, {}, {});
  auto b = testing::attend<float, float>(heads, {last}, {}, {});
  const TensorView o = host_view(a.o.data(), {1, 6, 64}), lse = host_view(a.lse.data(), {1, 6});
  merge_states({}, o, lse, o, lse, host_view(b.o.data(), {1, 6, 64}),
               host_view(b.lse.data(), {1, 6}));
  for (size_t i = 0; i < a.o.size(); ++i) EXPECT_NEAR(a.o[i], want.o[i], 2e-6);
  for (size_t i = 0; i < a.lse.size(); ++i) EXPECT_NEAR(a.lse[i], want.lse[i], 2e-6);
}

TEST(MergeStatesErrors, NamesWhatIsWrong) {
  std::vector<float> data(100);
  const TensorView o = host_view(data.data(), {2, 3, 4}), lse = host_view(data.data(), {2, 3});
  try {
    merge_states({}, o, lse, o, lse, o, host_view(data.data(), {2, 2}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "lse_b.size(1) is 2, expected num_q_heads = 3");
  }
}

}  // namespace
}  // namespace heddle
