#include <limits>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "attention_cases.h"
#include "isa.h"

namespace heddle {
namespace {

using testing::pick;
using testing::PoisonedBuffer;
using testing::random_int;

constexpr float kEmpty = -std::numeric_limits<float>::infinity();

template <class T>
class MergeStates : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(MergeStates, Types);

/// Random states, a third of them empty with an o that is NaN.
template <class T>
struct State {
  State(int64_t rows, int64_t dim)
      : o(testing::random_normal<T>(static_cast<size_t>(rows * dim))),
        lse(testing::random_normal<float>(static_cast<size_t>(rows), 5.0f)) {
    for (int64_t r = 0; r < rows; ++r) {
      if (random_int(0, 2) != 0) continue;
      lse[size_t(r)] = kEmpty;
      std::fill_n(o.begin() + r * dim, dim, from_float<T>(std::numeric_limits<float>::quiet_NaN()));
    }
  }
  std::vector<T> o;
  std::vector<float> lse;
};

/// One row in double.
template <class T>
double reference(const State<T>& a, const State<T>& b, size_t r, size_t at, double* lse) {
  const double max = std::max(a.lse[r], b.lse[r]);
  if (max == kEmpty) {
    *lse = kEmpty;
    return 0.0;
  }
  const double wa = std::exp(a.lse[r] - max), wb = std::exp(b.lse[r] - max);
  *lse = max + std::log(wa + wb);
  double o = 0.0;
  if (wa > 0.0) o += wa / (wa + wb) * to_float(a.o[at]);
  if (wb > 0.0) o += wb / (wa + wb) * to_float(b.o[at]);
  return o;
}

TYPED_TEST(MergeStates, AgreesWithTheDefinition) {
  ThreadPool pool(3);
  for (const int64_t target : testing::cpu_targets()) {
    const testing::ScopedCpuTarget scope(target);
    for (int round = 0; round < 30; ++round) {
      const int64_t tokens = random_int(0, 9), heads = random_int(1, 5);
      const int64_t dim = pick<int64_t>({1, 16, 64, 80, random_int(1, 300)});
      const int64_t rows = tokens * heads, gap = random_int(0, 3);
      const State<TypeParam> a(rows, dim), b(rows, dim);
      PoisonedBuffer<TypeParam> o(static_cast<size_t>(rows * (dim + gap)));
      PoisonedBuffer<float> lse(static_cast<size_t>(rows));
      const bool with_lse = random_int(0, 3) != 0;
      merge_states(
          testing::context_with(pick<ThreadPool*>({nullptr, &pool})),
          o.view({tokens, heads, dim + gap}).narrow(2, 0, dim),
          with_lse ? lse.view({tokens, heads}) : TensorView{},
          host_view(a.o.data(), {tokens, heads, dim}), host_view(a.lse.data(), {tokens, heads}),
          host_view(b.o.data(), {tokens, heads, dim}), host_view(b.lse.data(), {tokens, heads}));
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
        double want_lse = 0.0;
        for (size_t d = 0; d < static_cast<size_t>(dim + gap); ++d) {
          const size_t at = r * static_cast<size_t>(dim + gap) + d;
          if (d >= static_cast<size_t>(dim)) {
            EXPECT_TRUE(o.untouched(at));
            continue;
          }
          const double want = reference(a, b, r, r * static_cast<size_t>(dim) + d, &want_lse);
          const double bound = 1.01 * testing::kRounding<TypeParam> * std::abs(want) + 1e-6;
          EXPECT_LE(std::abs(to_float(o[at]) - want), bound);
        }
        if (!with_lse) {
          EXPECT_TRUE(lse.untouched(r));
        } else if (std::isinf(want_lse)) {
          EXPECT_EQ(lse[r], kEmpty);
        } else {
          EXPECT_LE(std::abs(lse[r] - want_lse), 1e-6 * std::max(1.0, std::abs(want_lse)));
        }
      }
      EXPECT_TRUE(o.guards_intact() && lse.guards_intact());
    }
  }
}

TYPED_TEST(MergeStates, MayWriteOverItsInputs) {
  const int64_t rows = 12, dim = 70;
  State<TypeParam> a(rows, dim), b(rows, dim);
  std::vector<TypeParam> o(a.o.size());
  std::vector<float> lse(a.lse.size());
  auto merge = [&](std::vector<TypeParam>& to, std::vector<float>& to_lse) {
    merge_states({}, host_view(to.data(), {rows, 1, dim}), host_view(to_lse.data(), {rows, 1}),
                 host_view(a.o.data(), {rows, 1, dim}), host_view(a.lse.data(), {rows, 1}),
                 host_view(b.o.data(), {rows, 1, dim}), host_view(b.lse.data(), {rows, 1}));
  };
  merge(o, lse);
  const State<TypeParam> a_before = a;
  merge(a.o, a.lse);
  EXPECT_TRUE(testing::same_bits<TypeParam>(a.o, o) && testing::same_bits<float>(a.lse, lse));
  a = a_before;
  merge(b.o, b.lse);
  EXPECT_TRUE(testing::same_bits<TypeParam>(b.o, o) && testing::same_bits<float>(b.lse, lse));
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
