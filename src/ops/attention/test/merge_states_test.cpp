#include <array>
#include <utility>
#include <vector>

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

/// Sums with gaps between heads and between tokens, or head by head, give the same bits.
TYPED_TEST(MergeStates, TakesSumsOfAnyStrides) {
  using T = TypeParam;
  const int64_t tokens = 7, heads = 3, dim = 17;
  const testing::AttentionState<T> a(tokens * heads, dim), b(tokens * heads, dim);
  const auto rows = [&](const std::vector<T>& o) {
    return ConstTensorView(host_view(o.data(), {tokens, heads, dim}));
  };
  struct Sums {
    int64_t token_stride, head_stride;
    testing::PoisonedBuffer<float> data{200};
    TensorView view(int64_t tokens, int64_t heads) {
      const std::array<int64_t, 2> shape{tokens, heads}, strides{token_stride, head_stride};
      return {reinterpret_cast<std::byte*>(data.data()), DType::kFloat32, {}, shape, strides};
    }
    float& at(int64_t t, int64_t h) { return data[size_t(t * token_stride + h * head_stride)]; }
  };
  const auto merge = [&](Sums lse, Sums lse_a, Sums lse_b) {
    std::vector<T> o(size_t(tokens * heads * dim));
    for (int64_t i = 0; i < tokens * heads; ++i) {
      lse_a.at(i / heads, i % heads) = a.lse[size_t(i)];
      lse_b.at(i / heads, i % heads) = b.lse[size_t(i)];
    }
    merge_states({}, host_view(o.data(), {tokens, heads, dim}), lse.view(tokens, heads), rows(a.o),
                 lse_a.view(tokens, heads), rows(b.o), lse_b.view(tokens, heads));
    std::vector<float> sums;
    for (int64_t i = 0; i < tokens * heads; ++i) sums.push_back(lse.at(i / heads, i % heads));
    int64_t num_untouched = 0;
    for (size_t i = 0; i < 200; ++i) num_untouched += lse.data.untouched(i) ? 1 : 0;
    EXPECT_EQ(num_untouched, 200 - tokens * heads);
    return std::pair(std::move(o), std::move(sums));
  };
  const auto [o, lse] = merge({heads, 1}, {heads, 1}, {heads, 1});
  const auto [strided_o, strided_lse] = merge({14, 3}, {1, 9}, {11, 2});
  EXPECT_TRUE(testing::same_bits<T>(strided_o, o));
  EXPECT_TRUE(testing::same_bits<float>(strided_lse, lse));
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
