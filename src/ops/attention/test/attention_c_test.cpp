#include "heddle/ops/attention.h"

#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

/// Two sequences of 5 and 3 tokens on pages of 4: 2 kv heads of dimension 16.
class CApiAttention : public CApiOps {
 protected:
  Array<float> k_pool{{4, 2, 4, 16}}, v_pool{{4, 2, 4, 16}};
  Array<int32_t> page_indptr{{3}, {0, 2, 3}}, page_ids{{3}, {3, 0, 2}};
  Array<int64_t> last_page_len{{2}, {1, 3}};
  heddle_page_table c_table{page_indptr.c(), page_ids.c(), last_page_len.c()};
  PageTable table{page_indptr.view(), page_ids.view(), last_page_len.view()};
  heddle_paged_kv c_cache{};
  PagedKv cache = PagedKv::from_pool(k_pool.view(), v_pool.view());

  CApiAttention() {
    heddle_paged_kv_init(&c_cache);
    EXPECT_EQ(c_cache.num_layers, 1);
    EXPECT_EQ(c_cache.k, nullptr);
    c_cache.k = k_pool.c();
    c_cache.v = v_pool.c();
  }
};

TEST_F(CApiAttention, StoresAndAttends) {
  auto k = random_array({8, 2, 16}), v = random_array({8, 2, 16});
  auto k1 = random_array({2, 2, 16}), v1 = random_array({2, 2, 16});
  Array<int32_t> starts({3}, {0, 5, 8});
  expect_ok(heddle_kv_init(context, &c_cache, &c_table, k.c(), v.c(), starts.c()));
  expect_ok(heddle_kv_append(context, &c_cache, &c_table, k1.c(), v1.c()));
  const Array<float> k_got = k_pool, v_got = v_pool;
  k_pool.values.assign(k_pool.values.size(), 0.0f);
  v_pool.values.assign(v_pool.values.size(), 0.0f);
  kv_init(ctx, cache, table, k.view(), v.view(), starts.view());
  kv_append(ctx, cache, table, k1.view(), v1.view());
  EXPECT_EQ(k_got, k_pool);
  EXPECT_EQ(v_got, v_pool);

  heddle_rope_params rope;
  heddle_rope_params_init(&rope);
  rope.theta = 300.0;
  auto turned = random_array({8, 4, 16}), turned_want = turned;
  expect_ok(heddle_rope_kv_append(context, turned.c(), &c_cache, &c_table, k.c(), v.c(), starts.c(),
                                  nullptr, &rope));
  const Array<float> k_turned = k_pool;
  rope_kv_append(ctx, turned_want.view(), cache, table, k.view(), v.view(), starts.view(), {},
                 {.theta = 300.0});
  EXPECT_EQ(turned, turned_want);
  EXPECT_EQ(k_turned, k_pool);
  EXPECT_NE(k_turned, k_got);

  heddle_attention_options options;
  heddle_attention_options_init(&options);
  const AttentionOptions defaults;
  EXPECT_EQ(options.tree_mask, nullptr);
  EXPECT_EQ(options.tree_mask_indptr, nullptr);
  EXPECT_FALSE(options.has_sm_scale);
  EXPECT_EQ(options.causal, defaults.causal);
  EXPECT_EQ(options.window_left, defaults.window_left);
  EXPECT_EQ(options.logits_soft_cap, defaults.logits_soft_cap);
  EXPECT_FALSE(options.has_rope);
  EXPECT_EQ(options.rope.theta, RopeParams().theta);
  options.has_sm_scale = options.has_rope = true;
  options.sm_scale = 0.3f;
  options.causal = false;
  options.window_left = 2;
  options.logits_soft_cap = 5.0f;
  options.rope.theta = 100.0;
  const AttentionOptions same{.sm_scale = 0.3f,
                              .causal = false,
                              .window_left = 2,
                              .logits_soft_cap = 5.0f,
                              .rope = RopeParams{.theta = 100.0}};

  auto q = random_array({8, 4, 16}), o = q, o_want = q;
  Array<float> lse({8, 4}), lse_want({8, 4});
  expect_ok(heddle_batch_prefill(context, o.c(), lse.c(), q.c(), starts.c(), &c_cache, &c_table,
                                 &options));
  batch_prefill(ctx, o_want.view(), lse_want.view(), q.view(), starts.view(), cache, table, same);
  EXPECT_EQ(o, o_want);
  EXPECT_EQ(lse, lse_want);

  Array<int32_t> tree({8}, {1, 3, 5, 9, 31, 1, 2, 7}), tree_starts({3}, {0, 5, 8});
  options.tree_mask = tree.c();
  options.tree_mask_indptr = tree_starts.c();
  AttentionOptions with_tree = same;
  with_tree.tree_mask = tree.view();
  with_tree.tree_mask_indptr = tree_starts.view();
  const Array<float> without = o;
  expect_ok(heddle_batch_prefill(context, o.c(), lse.c(), q.c(), starts.c(), &c_cache, &c_table,
                                 &options));
  batch_prefill(ctx, o_want.view(), lse_want.view(), q.view(), starts.view(), cache, table,
                with_tree);
  EXPECT_EQ(o, o_want);
  EXPECT_NE(o, without);

  auto q1 = random_array({2, 4, 16}), d = q1, d_want = q1;
  expect_ok(heddle_batch_decode(context, d.c(), nullptr, q1.c(), &c_cache, &c_table, nullptr));
  batch_decode(ctx, d_want.view(), {}, q1.view(), cache, table);
  EXPECT_EQ(heddle_batch_decode_workspace_bytes({kDLCPU, 0}, 3, 4, 64), 0);
  EXPECT_EQ(heddle_batch_decode_workspace_bytes({kDLCUDA, 1000}, 3, 4, 64), 0);
  EXPECT_EQ(d, d_want);

  auto other = random_array({8, 4, 16}), lse_other = random_array({8, 4}), m = q, m_want = q;
  Array<float> m_lse({8, 4}), m_lse_want({8, 4});
  expect_ok(
      heddle_merge_states(context, m.c(), m_lse.c(), o.c(), lse.c(), other.c(), lse_other.c()));
  merge_states(ctx, m_want.view(), m_lse_want.view(), o.view(), lse.view(), other.view(),
               lse_other.view());
  EXPECT_EQ(m, m_want);
  EXPECT_EQ(m_lse, m_lse_want);
}

TEST_F(CApiAttention, PagesMayBeAddresses) {
  auto pages = random_array({3, 2, 2, 2, 4, 16});  // 3 pages of 2 layers
  Array<int64_t> addresses({3});
  for (int64_t i = 0; i < 3; ++i) {
    addresses.values[size_t(i)] =
        reinterpret_cast<int64_t>(pages.values.data() + (2 - i) * int64_t{2} * 2 * 2 * 4 * 16);
  }
  c_table.pages = addresses.c();
  table.pages = addresses.view();
  heddle_paged_kv by_address;
  heddle_paged_kv_init(&by_address);
  by_address.num_layers = 2;
  by_address.layer_idx = 1;
  by_address.num_kv_heads = 2;
  by_address.page_size = 4;
  by_address.head_dim = 16;
  auto q = random_array({2, 4, 16}), o = q, want = q;
  expect_ok(heddle_batch_decode(context, o.c(), nullptr, q.c(), &by_address, &c_table, nullptr));
  batch_decode(ctx, want.view(), {}, q.view(),
               PagedKv::from_pointers(DType::kFloat32, {}, 2, 1, 2, 4, 16), table);
  EXPECT_EQ(o, want);
  by_address.layer_idx = 2;
  expect_failure(
      HEDDLE_INVALID_ARGUMENT, "layer_idx is 2",
      heddle_batch_decode(context, o.c(), nullptr, q.c(), &by_address, &c_table, nullptr));
  c_table.pages = nullptr;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "pages is NULL",
                 heddle_batch_decode(context, o.c(), nullptr, q.c(), &c_cache, &c_table, nullptr));
  c_table.pages = page_ids.c();
  c_cache.v = nullptr;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "cache.v is NULL",
                 heddle_batch_decode(context, o.c(), nullptr, q.c(), &c_cache, &c_table, nullptr));
}

}  // namespace
}  // namespace heddle::testing
