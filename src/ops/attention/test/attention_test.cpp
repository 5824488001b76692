#include <functional>

#include <gtest/gtest.h>

#include "heddle/core/dispatch.h"
#include "heddle/core/error.h"

#include "isa.h"
#include "ops/attention/test/random_test_body.h"
#include "small_sizes.h"

namespace heddle {
namespace {

using testing::PagedCache;
using testing::pick;

template <class TQ, class TKV>
void check_random_case(ThreadPool* pool) {
  testing::AttentionCase c = testing::random_case();
  if (c.options.rope) c.options.rope->attention_factor = pick({1.0, 1.1386, 0.9});
  SCOPED_TRACE(::testing::Message() << c << " q " << kDType<TQ> << " cache " << kDType<TKV>);
  testing::Mirror here;
  testing::AttentionCheck<TQ, TKV> check(c);
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scope(target);
    check.run({testing::context_with(pick<ThreadPool*>({nullptr, pool})), here});
  }
}

// A few hundred draws from everything that the contract allows, against the definition in double.
// What lies around the keys and values of a sequence (gaps, slots past its end, other pages) is
// NaN; unused entries of the table are wild.
TEST(Attention, AgreesWithTheDefinition) {
  ThreadPool pool(3);
  for (int round = 0; round < testing::small_or(100, 300) && !HasFatalFailure(); ++round) {
    dispatch_dtype<float, half, bfloat16>(
        pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16}), "q", [&]<class TQ>() {
          dispatch_dtype<float, half, bfloat16, float8_e4m3>(
              pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3}),
              "cache", [&]<class TKV>() { check_random_case<TQ, TKV>(&pool); });
        });
  }
}

// A row of a tree mask is as many words as its bits need, and no more: 32 queries fill one, 64 two.
TEST(Attention, TreeMasksOfWholeWords) {
  testing::Mirror here;
  for (const int64_t q_len : {31, 32, 33, 64, 65, 96}) {
    SCOPED_TRACE(q_len);
    testing::AttentionCase c;
    c.cache.head_dim = 16;
    c.group_size = 2;
    c.q_lens = {q_len, 3, q_len};
    c.kv_lens = {q_len + 20, 40, q_len};
    c.has_tree = {true, true, true};
    testing::AttentionCheck<float, float>(c).run({{}, here});
  }
}

// Two keys, one query: softmax of (ln 3, 0) is (3/4, 1/4).
TEST(Attention, HandComputedCase) {
  const testing::HeadShape heads{1, 1, 1};
  const std::vector<testing::Sequence<float, float>> sequences{
      {1, 2, {1.0f}, {1.0986122887f, 0.0f}, {8.0f, 4.0f}}};
  const auto got = testing::attend(heads, sequences, {}, {.sm_scale = 1.0f});
  EXPECT_FLOAT_EQ(got.o[0], 7.0f);
  EXPECT_FLOAT_EQ(got.lse[0], 1.3862943611f);  // ln 4
}

// Seven queries after 130 keys in a chain: the mask says what causality says. Then two branches
// that do not see each other, and the second alone after the keys both share: the bits of a row
// depend on what it sees.
TEST(Attention, TreeMasksAreCausalityAlongTheBranches) {
  const testing::HeadShape heads{3, 2, 64};
  const auto all = testing::random_sequence<half, half>(heads, 7, 137);
  const std::vector<int32_t> chain{1, 3, 7, 15, 31, 63, 127}, indptr{0, 7};
  // Tokens 1 to 3 are one branch after token 0, tokens 4 to 6 the other.
  const std::vector<int32_t> tree{1, 3, 7, 15, 17, 49, 113};
  const auto run = [&](const std::vector<int32_t>& mask) {
    AttentionOptions options;
    options.tree_mask = host_view(mask.data(), {7});
    options.tree_mask_indptr = host_view(indptr.data(), {2});
    return testing::attend<half, half>(heads, {all}, {}, options);
  };
  const auto causal = testing::attend<half, half>(heads, {all}, {}, {});
  EXPECT_TRUE(run(chain).same_bits_as(causal));
  const auto got = run(tree);
  EXPECT_TRUE(got.tokens(heads, 0, 4).same_bits_as(causal.tokens(heads, 0, 4)));

  // The second branch without the first: the same to rounding, since its keys have other places.
  auto second = all;
  const int64_t kv_row = heads.num_kv_heads * heads.head_dim;
  const int64_t q_row = heads.num_q_heads() * heads.head_dim;
  second.q_len = 4;
  second.kv_len = 134;
  for (auto* rows : {&second.k, &second.v}) {
    rows->erase(rows->begin() + 131 * kv_row, rows->begin() + 134 * kv_row);
  }
  second.q.erase(second.q.begin() + q_row, second.q.begin() + 4 * q_row);
  const auto alone = testing::attend<half, half>(heads, {second}, {}, {});
  for (int64_t i = 0; i < 3 * q_row; ++i) {
    const float want = to_float(alone.o[size_t(q_row + i)]);
    EXPECT_NEAR(to_float(got.o[size_t(4 * q_row + i)]), want, 1e-3 * std::abs(want) + 1e-5);
  }
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Attention, NamesWhatIsWrong) {
  PagedCache<float> cache({.num_kv_heads = 2, .head_dim = 4, .page_size = 8}, {9, 3});
  const PagedKv kv = cache.kv();
  const PageTable table = cache.table();
  std::vector<float> data(1000);
  const TensorView o = host_view(data.data(), {5, 6, 4});
  const std::vector<int32_t> indptr{0, 3, 5}, too_long{0, 3, 6};
  auto prefill = [&](const TensorView& out, const TensorView& lse, const ConstTensorView& q,
                     const std::vector<int32_t>& q_indptr, const AttentionOptions& options) {
    return message([&] {
      const auto n = static_cast<int64_t>(q_indptr.size());
      batch_prefill({}, out, lse, q, host_view(q_indptr.data(), {n}), kv, table, options);
    });
  };
  const TensorView lse = host_view(data.data(), {5, 6});
  EXPECT_EQ(prefill(o, lse, host_view(data.data(), {5, 5, 4}), indptr, {}),
            "o.size(1) is 6, expected num_q_heads = 5");
  EXPECT_EQ(prefill(host_view(data.data(), {5, 5, 4}), lse, host_view(data.data(), {5, 5, 4}),
                    indptr, {}),
            "q.size(1) is 5, expected a multiple of the cache's num_kv_heads = 2");
  EXPECT_EQ(prefill(o, host_view(data.data(), {4, 6}), o, indptr, {}),
            "lse.size(0) is 4, expected num_tokens = 5");
  EXPECT_EQ(prefill(o, lse, o, too_long, {}),
            "q_indptr[2] is 6, expected at least q_indptr[1] = 3 and at most num_tokens = 5");
  EXPECT_EQ(prefill(o, lse, o, indptr, {.rope = RopeParams{.rotary_dim = 3}}),
            "options.rope: rotary_dim is 3, expected an even number up to head_dim = 4");
  EXPECT_EQ(
      prefill(o, lse, o, indptr, {.rope = RopeParams{.theta = 0.5, .yarn = YarnRopeScaling{}}}),
      "RopeParams::theta is 0.5, expected > 1 with YarnRopeScaling");
  EXPECT_EQ(prefill(o, lse, o, indptr, {.window_left = -2}),
            "options.window_left is -2, expected >= -1");
  EXPECT_EQ(prefill(o, lse, o, indptr, {.logits_soft_cap = -1.0f}),
            "options.logits_soft_cap is -1, expected >= 0");
  AttentionOptions tree;
  tree.tree_mask = host_view(too_long.data(), {3});
  EXPECT_EQ(prefill(o, lse, o, indptr, tree),
            "options.tree_mask_indptr is absent, expected both or none");
  EXPECT_EQ(message([&] {
              const TensorView two = host_view(data.data(), {2, 6, 4});
              batch_decode({}, two, {}, two, kv, table, tree);
            }),
            "options.tree_mask is given, but a query of batch_decode is one token alone");
  const auto decode = [&](const std::vector<int32_t>& bundles, int64_t max_bundle) {
    AttentionOptions options{.rope = {}};
    if (!bundles.empty()) options.bundle_indptr = host_view(bundles.data(), {std::ssize(bundles)});
    options.max_bundle = max_bundle;
    const TensorView two = host_view(data.data(), {2, 6, 4});
    return message([&] { batch_decode({}, two, {}, two, kv, table, options); });
  };
  EXPECT_EQ(decode({}, 2), "options.max_bundle is 2, but options.bundle_indptr is absent");
  EXPECT_EQ(decode({0, 2}, 17), "options.max_bundle is 17, expected 1 to 16");
  EXPECT_EQ(decode({0}, 1),
            "options.bundle_indptr has 1 values, expected num_bundles + 1, with each query in a "
            "bundle");
  EXPECT_EQ(decode({0, 1}, 1),
            "options.bundle_indptr goes from 0 to 1, expected 0 to the number of queries, 2");
  EXPECT_EQ(decode({0, 2}, 1), "options.bundle_indptr[1] is 2, expected 0 to 1");
  AttentionOptions bundled;
  bundled.bundle_indptr = host_view(too_long.data(), {3});
  EXPECT_EQ(prefill(o, lse, o, indptr, bundled),
            "options.bundle_indptr or options.max_bundle is given, but q_indptr tells which "
            "queries batch_prefill reads together");
  std::swap(tree.tree_mask, tree.tree_mask_indptr);
  EXPECT_EQ(prefill(o, lse, o, indptr, tree), "options.tree_mask is absent, expected both or none");
  EXPECT_EQ(message([&] { batch_decode({}, o, lse, o, kv, table); }),
            "q.size(0) is 5, expected num_seqs = 2");
  PagedCache<float> wide({.num_kv_heads = 1, .head_dim = 257, .page_size = 8}, {1});
  const TensorView row = host_view(data.data(), {1, 1, 257});
  EXPECT_EQ(message([&] { batch_decode({}, row, {}, row, wide.kv(), wide.table()); }),
            "head_dim is 257, supported: up to 256");
}

/// Borders: 32 rows of q, sequences of 1024 keys and of multiples of them, tiles of a window.
TEST(Attention, DecodeBundleEndsAtBorders) {
  const auto of = [](int64_t window, int64_t kv_len, int64_t num_queries, int64_t q_heads = 8,
                     int64_t head_dim = 128, DType dtype = DType::kBFloat16) {
    return decode_bundle(dtype, q_heads, 2, head_dim, window, kv_len, num_queries);
  };
  EXPECT_EQ(of(-1, 100, 1), 1);
  EXPECT_EQ(of(-1, 100, 5), 5);
  EXPECT_EQ(of(-1, 100, 16), 8);
  EXPECT_EQ(of(-1, 100, 16, 2), 16);
  EXPECT_EQ(of(-1, 100, 16, 40), 1);
  EXPECT_EQ(of(-1, 100, 16, 8, 64), 4);
  EXPECT_EQ(of(-1, 100, 16, 8, 129), 1);
  EXPECT_EQ(of(-1, 100, 16, 8, 128, DType::kFloat8E4M3), 1);
  EXPECT_EQ(of(-1, 1021, 8), 4);
  EXPECT_EQ(of(-1, 1025, 8), 8);
  EXPECT_EQ(of(-1, 4094, 8), 3);
  EXPECT_EQ(of(-1, 8192, 8), 1);
  EXPECT_EQ(of(31, 30, 8), 8);
  EXPECT_EQ(of(31, 45, 8), 3);
  EXPECT_EQ(of(31, 48, 8), 8);
  EXPECT_EQ(message([&] { (void)of(-2, 1, 1); }), "window_left is -2, expected >= -1");
  EXPECT_EQ(message([&] { (void)of(-1, 0, 1); }), "kv_len is 0, expected 1 to 2147483631");
  EXPECT_EQ(message([&] { (void)of(-1, 1, 0); }), "num_queries is 0, expected at least 1");
  EXPECT_EQ(message([&] { (void)of(-1, 1, 1, 3); }),
            "num_q_heads is 3, expected a multiple of num_kv_heads = 2");
}

}  // namespace
}  // namespace heddle
