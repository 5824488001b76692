// Every operation of the C interface gives the bits of its C++ counterpart, and its options have the same defaults.
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"
#include "heddle/ops/activation.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/linear.h"
#include "heddle/ops/norm.h"
#include "heddle/ops/sampling.h"

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

/// A context of each language.
class CApiOps : public ::testing::Test {
 protected:
  Context context{2};
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 20);
  Workspace workspace{memory};
  ExecContext ctx;

  CApiOps() { ctx.workspace = &workspace; }
};

TEST_F(CApiOps, Activation) {
  auto gate = random_array({3, 17}), up = random_array({3, 17}), got = up, want = up;
  expect_ok(heddle_silu_and_mul(context, got.c(), gate.c(), up.c()));
  silu_and_mul(ctx, want.view(), gate.view(), up.view());
  EXPECT_EQ(got, want);
}

TEST_F(CApiOps, Norm) {
  heddle_rms_norm_options options;
  heddle_rms_norm_options_init(&options);
  EXPECT_EQ(options.epsilon, RmsNormOptions().epsilon);
  EXPECT_EQ(options.weight_offset, RmsNormOptions().weight_offset);

  auto x = random_array<half>({3, 17}), w = random_array<half>({17}), got = x, want = x;
  expect_ok(heddle_rms_norm(context, got.c(), x.c(), w.c(), nullptr));
  rms_norm(ctx, want.view(), x.view(), w.view());
  EXPECT_EQ(got, want);

  options.epsilon = 0.5f;
  options.weight_offset = 1;
  auto residual = random_array<half>({3, 17}), same = residual;
  expect_ok(heddle_fused_add_rms_norm(context, got.c(), residual.c(), x.c(), w.c(), &options));
  fused_add_rms_norm(ctx, want.view(), same.view(), x.view(), w.view(),
                     {.epsilon = 0.5f, .weight_offset = 1});
  EXPECT_EQ(got, want);
  EXPECT_EQ(residual, same);

  Array<float8_e4m3> got8({3, 17}), want8({3, 17});
  Array<float> scales({3}), want_scales({3});
  heddle_rms_norm_options_init(&options);
  EXPECT_TRUE(options.output_scale == nullptr && options.row_scales == nullptr);
  options.row_scales = scales.c();
  expect_ok(heddle_rms_norm(context, got8.c(), x.c(), w.c(), &options));
  RmsNormOptions per_row;
  per_row.output_scale.per_row = want_scales.view();
  rms_norm(ctx, want8.view(), x.view(), w.view(), per_row);
  EXPECT_EQ(got8, want8);
  EXPECT_EQ(scales, want_scales);
  options.row_scales = nullptr;
  options.output_scale = scales.c();
  EXPECT_EQ(heddle_rms_norm(context, got8.c(), x.c(), w.c(), &options), HEDDLE_INVALID_ARGUMENT);
}

TEST_F(CApiOps, Rope) {
  heddle_rope_params params;
  heddle_rope_params_init(&params);
  RopeParams same;
  EXPECT_EQ(params.theta, same.theta);
  EXPECT_EQ(params.scale, same.scale);
  EXPECT_EQ(params.rotary_dim, same.rotary_dim);
  EXPECT_FALSE(params.has_llama3);
  same.llama3.emplace();
  EXPECT_EQ(params.llama3_factor, same.llama3->factor);
  EXPECT_EQ(params.llama3_low_freq_factor, same.llama3->low_freq_factor);
  EXPECT_EQ(params.llama3_high_freq_factor, same.llama3->high_freq_factor);
  EXPECT_EQ(params.llama3_original_max_position, same.llama3->original_max_position);

  params.has_llama3 = true;
  params.theta = same.theta = 5e5;
  params.llama3_factor = same.llama3->factor = 32.0;
  for (const int d : {0, 3, 5})
    EXPECT_EQ(heddle_rope_frequency(&params, 16, d), rope_frequency(same, 16, d));
  EXPECT_EQ(heddle_rope_frequency(nullptr, 16, 5), rope_frequency({}, 16, 5));

  Array<int32_t> positions({3}, {0, 7, 100000});
  auto factors = random_array({8});
  Array<float> cos({3, 8}), sin({3, 8}), cos_want({3, 8}), sin_want({3, 8});
  expect_ok(heddle_rope_table(context, cos.c(), sin.c(), positions.c(), &params, factors.c()));
  rope_table(ctx, cos_want.view(), sin_want.view(), positions.view(), same, factors.view());
  EXPECT_EQ(cos, cos_want);
  EXPECT_EQ(sin, sin_want);

  auto x = random_array({3, 2, 16}), x_want = x;
  expect_ok(heddle_rope(context, x.c(), cos.c(), sin.c()));
  rope(ctx, x_want.view(), cos.view(), sin.view());
  EXPECT_EQ(x, x_want);
  expect_ok(heddle_rope_positions(context, x.c(), positions.c(), &params));
  rope(ctx, x_want.view(), positions.view(), same);
  EXPECT_EQ(x, x_want);
}

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

TEST_F(CApiOps, Linear) {
  int32_t block = 0;
  size_t stored_size = 0, packed_size = 0;
  expect_ok(heddle_block_size(&block, HEDDLE_Q6_K));
  EXPECT_EQ(block, block_size(WeightType::kQ6K));
  expect_ok(heddle_stored_bytes(&stored_size, HEDDLE_Q4_1, 20 * 64));
  EXPECT_EQ(stored_size, stored_bytes(WeightType::kQ4_1, 20 * 64));
  expect_ok(heddle_packed_bytes(&packed_size, HEDDLE_Q4_1, 20, 64));
  EXPECT_EQ(packed_size, packed_bytes(WeightType::kQ4_1, 20, 64));

  Array<uint8_t> stored({int64_t(stored_size)});
  for (uint8_t& byte : stored.values) byte = static_cast<uint8_t>(random_int(0, 50));
  Array<float> values({20 * 64}), values_want({20 * 64});
  expect_ok(heddle_dequantize(values.c(), HEDDLE_Q4_1, stored.c()));
  dequantize(values_want.values, WeightType::kQ4_1, std::as_bytes(std::span(stored.values)));
  EXPECT_EQ(values, values_want);

  std::vector<uint8_t> room(packed_size + 64);
  uint8_t* aligned = room.data() + (64 - reinterpret_cast<uintptr_t>(room.data()) % 64);
  const CTensor packed(aligned, {int64_t(packed_size)});
  expect_ok(heddle_pack_rows(context, packed.get(), HEDDLE_Q4_1, 20, 64, 0, 20, stored.c()));
  heddle_packed_weight weight{HEDDLE_Q4_1, 20, 64, packed.get()};
  const PackedWeight same{WeightType::kQ4_1, 20, 64, reinterpret_cast<std::byte*>(aligned)};
  auto x = random_array({5, 64});
  Array<float> y({5, 20}), want({5, 20}), y1({5, 20}), rows({2, 64}), rows_want({2, 64});
  linear(ctx, want.view(), x.view(), same);
  expect_ok(heddle_linear(context, y.c(), x.c(), &weight));
  EXPECT_EQ(y, want);
  const heddle_packed_weight weights[] = {weight, weight};
  y.values.assign(y.values.size(), 0.0f);
  DLTensor* const ys[] = {y.c(), y1.c()};
  expect_ok(heddle_linear_many(context, ys, 2, x.c(), weights));
  EXPECT_EQ(y, want);
  EXPECT_EQ(y1, want);
  Array<int64_t> ids({2}, {19, -1});
  expect_ok(heddle_packed_embedding(context, rows.c(), ids.c(), &weight));
  embedding(ctx, rows_want.view(), ids.view(), same);
  EXPECT_EQ(rows, rows_want);

  weight.type = 11;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "type is 11, which is no heddle_weight_type",
                 heddle_linear(context, y.c(), x.c(), &weight));
  weight = {HEDDLE_Q4_1, 36, 64, packed.get()};
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight.data.size(0) is ",
                 heddle_linear(context, y.c(), x.c(), &weight));
  const CTensor crooked(aligned + 1, {int64_t(packed_size)});
  weight = {HEDDLE_Q4_1, 20, 64, crooked.get()};
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight.data is not 64-byte aligned",
                 heddle_linear(context, y.c(), x.c(), &weight));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight is NULL",
                 heddle_linear(context, y.c(), x.c(), nullptr));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "bytes is NULL",
                 heddle_packed_bytes(nullptr, HEDDLE_Q4_1, 20, 64));
}

TEST_F(CApiOps, Embedding) {
  auto rows = random_array<bfloat16>({5, 7});
  Array<int32_t> ids({3}, {4, 0, 9});
  Array<float> got({3, 7}), want({3, 7});
  expect_ok(heddle_embedding(context, got.c(), ids.c(), rows.c()));
  embedding(ctx, want.view(), ids.view(), rows.view());
  EXPECT_EQ(got, want);
}

TEST_F(CApiOps, Sampling) {
  EXPECT_EQ(heddle_sample_workspace_bytes(4, 50), sample_workspace_bytes(4, 50));
  auto logits = random_array({4, 50});
  Array<float> temperature({4}, {0.0f, 1.0f, 0.7f, 2.0f}), top_p({4}, {1.0f, 0.9f, 0.8f, 1.0f}),
      min_p({4}, {0.0f, 0.0f, 0.1f, 0.0f});
  Array<int32_t> top_k({4}, {0, 10, 0, 40}), ids({4}), ids_want({4});
  Array<int64_t> seed({4}, {1, 2, 3, 4}), step({4}, {0, 1, 2, 3});
  Array<float> logprobs({4}), logprobs_want({4});
  heddle_sampling_table table{temperature.c(), top_k.c(), top_p.c(), min_p.c(), seed.c(), step.c()};
  expect_ok(heddle_sample(context, ids.c(), logprobs.c(), logits.c(), &table));
  sample(ctx, ids_want.view(), logprobs_want.view(), logits.view(),
         {temperature.view(), top_k.view(), top_p.view(), min_p.view(), seed.view(), step.view()});
  EXPECT_EQ(ids, ids_want);
  EXPECT_EQ(logprobs, logprobs_want);
  expect_ok(heddle_greedy(context, ids.c(), nullptr, logits.c()));
  greedy(ctx, ids_want.view(), {}, logits.view());
  EXPECT_EQ(ids, ids_want);

  table.seed = nullptr;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "seed is NULL",
                 heddle_sample(context, ids.c(), nullptr, logits.c(), &table));
  table.seed = seed.c();
  const Context poor(1, 0);
  expect_failure(HEDDLE_OUT_OF_MEMORY, "workspace holds 0 bytes",
                 heddle_sample(poor, ids.c(), nullptr, logits.c(), &table));
}

}  // namespace
}  // namespace heddle::testing
