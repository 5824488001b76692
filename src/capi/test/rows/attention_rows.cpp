#include <string>
#include <utility>
#include <vector>

#include "heddle/c_api.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/kv_cache.h"

#include "capi/test/rows/rows.h"

// Two sequences of 5 and 3 tokens on pages of 4, with 2 kv heads of dimension 16.

namespace heddle::testing {
namespace {

/// Two views as the keys and values of a cache.
auto cache_of(CallTensor::Use use) {
  return made(
      [](auto*, DLTensor* k, DLTensor* v) {
        heddle_paged_kv cache;
        heddle_paged_kv_init(&cache);
        cache.k = k;
        cache.v = v;
        return cache;
      },
      [](auto&, TensorView k, TensorView v) { return PagedKv::from_pool(k, v); },
      in<half>("cache.k", {4, 2, 4, 16}).used_as(use),
      in<half>("cache.v", {4, 2, 4, 16}).used_as(use));
}
/// A cache of f8e4m3, with tensors of scales or with two numbers.
auto cache_with_scales() {
  return made(
      [](auto*, DLTensor* k, DLTensor* v, DLTensor* k_scales, DLTensor* v_scales) {
        heddle_paged_kv cache;
        heddle_paged_kv_init(&cache);
        cache.k = k;
        cache.v = v;
        cache.k_scales = k_scales;
        cache.v_scales = v_scales;
        return cache;
      },
      [](auto&, TensorView k, TensorView v, TensorView k_scales, TensorView v_scales) {
        return PagedKv::from_pool(k, v, k_scales, v_scales);
      },
      in_place<float8_e4m3>("cache.k", {4, 2, 4, 16}),
      in_place<float8_e4m3>("cache.v", {4, 2, 4, 16}), in_place<float>("cache.k_scales", {4, 2, 4}),
      in_place<float>("cache.v_scales", {4, 2, 4}));
}
auto cache_with_two_scales() {
  return made(
      [](auto*, DLTensor* k, DLTensor* v) {
        heddle_paged_kv cache;
        heddle_paged_kv_init(&cache);
        cache.k = k;
        cache.v = v;
        cache.k_scale = 0.5f;
        cache.v_scale = 0.25f;
        return cache;
      },
      [](auto&, TensorView k, TensorView v) { return PagedKv::from_pool(k, v, 0.5f, 0.25f); },
      in_place<float8_e4m3>("cache.k", {4, 2, 4, 16}),
      in_place<float8_e4m3>("cache.v", {4, 2, 4, 16}));
}
auto table_of(const CallTensor& pages) {
  return fields<heddle_page_table, PageTable>(in<int32_t>("page_indptr", {3}, {0, 2, 3}), pages,
                                              in<int64_t>("last_page_len", {2}, {1, 3}));
}

std::vector<Row> kv_cache_rows() {
  const auto cache = cache_of(CallTensor::Use::kInPlace);
  const auto table = table_of(in<int32_t>("pages", {3}, {3, 0, 2}));
  const auto k = in<half>("k", {8, 2, 16}), v = in<half>("v", {8, 2, 16}),
             k1 = in<half>("k", {2, 2, 16}), v1 = in<half>("v", {2, 2, 16});
  const auto starts = in<int32_t>("seq_indptr", {3}, {0, 5, 8});
  heddle_rope_params params;
  heddle_rope_params_init(&params);
  params.theta = 300.0;
  return {row("kv_init", heddle_kv_init, kv_init, cache, table, k, v, starts)
              .refuses<0>("cache is NULL", nullptr)
              .refuses<1>("table is NULL", nullptr),
          row("kv_append", heddle_kv_append, kv_append, cache, table, k1, v1),
          row("kv_append, scales", heddle_kv_append, kv_append, cache_with_scales(), table, k1, v1),
          row("kv_append, two scales", heddle_kv_append, kv_append, cache_with_two_scales(), table,
              k1, v1),
          row("rope_kv_append", heddle_rope_kv_append, rope_kv_append,
              in_place<half>("q", {8, 4, 16}).optional(), cache, table, k, v, starts.optional(),
              in<int32_t>("positions", {8}, {1, 2, 3, 4, 5, 7, 8, 9}).optional(),
              both(params, RopeParams{.theta = 300.0})),
          row("rope_kv_append, defaults", heddle_rope_kv_append, rope_kv_append,
              in_place<half>("q", {2, 4, 16}).optional(), cache, table, k1, v1, absent(), absent(),
              both(nullptr, RopeParams()))};
}

/// Options that are no defaults.
auto attention_options(CallTensor tree_mask, CallTensor tree_mask_indptr) {
  return made(
      [](auto*, DLTensor* mask, DLTensor* indptr) {
        heddle_attention_options options;
        heddle_attention_options_init(&options);
        options.has_sm_scale = options.has_rope = true;
        options.sm_scale = 0.3f;
        options.causal = false;
        options.window_left = 2;
        options.logits_soft_cap = 5.0f;
        options.rope.theta = 100.0;
        options.tree_mask = mask;
        options.tree_mask_indptr = indptr;
        return options;
      },
      [](auto&, TensorView mask, TensorView indptr) {
        return AttentionOptions{0.3f, false, 2, 5.0f, RopeParams{.theta = 100.0}, mask, indptr};
      },
      std::move(tree_mask), std::move(tree_mask_indptr));
}

/// batch_decode of the second of two layers of pages by address.
Row decode_by_address() {
  constexpr int64_t kPageBytes = int64_t{2} * 2 * 2 * 4 * 16 * sizeof(half);
  const auto cache = made(
      [](auto*, DLTensor*) {
        return heddle_paged_kv{nullptr, nullptr, {kDLFloat, 16, 1}, 2,       1,    2,
                               4,       16,      nullptr,           nullptr, 0.0f, 0.0f};
      },
      [](auto& ctx, TensorView) {
        return PagedKv::from_pointers(DType::kFloat16, ctx.device, 2, 1, 2, 4, 16);
      },
      in<half>("memory", {3, 2, 2, 2, 4, 16}).used_as(CallTensor::Use::kMemory));
  const auto pages = in<int64_t>("pages", {3}).addresses(kPageBytes);
  return row("batch_decode by address", heddle_batch_decode, batch_decode,
             out<half>("o", {2, 4, 16}), absent(), in<half>("q", {2, 4, 16}), cache,
             table_of(pages), both(nullptr, AttentionOptions()))
      .refuses<3>("layer_idx is 2", [](heddle_paged_kv cache) {
        cache.layer_idx = 2;
        return cache;
      });
}

/// The two queries of the batch as bundles of one.
auto bundles() {
  return made(
      [](auto*, DLTensor* indptr) {
        heddle_attention_options options;
        heddle_attention_options_init(&options);
        options.bundle_indptr = indptr;
        return options;
      },
      [](auto&, TensorView indptr) {
        AttentionOptions options;
        options.bundle_indptr = indptr;
        return options;
      },
      in<int32_t>("options.bundle_indptr", {3}, {0, 1, 2}).optional());
}

}  // namespace

std::vector<Row> attention_rows() {
  const auto cache = cache_of(CallTensor::Use::kRead);
  const auto table = table_of(in<int32_t>("pages", {3}, {3, 0, 2}));
  const auto o = out<half>("o", {8, 4, 16}), q = in<half>("q", {8, 4, 16});
  const auto lse = out<float>("lse", {8, 4}).optional();
  const auto starts = in<int32_t>("q_indptr", {3}, {0, 5, 8});
  const auto defaults = both(nullptr, AttentionOptions());
  std::vector<Row> rows{
      row("batch_prefill", heddle_batch_prefill, batch_prefill, o, lse, q, starts, cache, table,
          defaults),
      row("batch_prefill, options", heddle_batch_prefill, batch_prefill, o, lse, q, starts, cache,
          table, attention_options(absent(), absent())),
      row("batch_prefill, trees", heddle_batch_prefill, batch_prefill, o, lse, q, starts, cache,
          table,
          attention_options(
              in<int32_t>("options.tree_mask", {8}, {1, 3, 5, 9, 31, 1, 2, 7}).optional(),
              in<int32_t>("options.tree_mask_indptr", {3}, {0, 5, 8}).optional())),
      row("batch_decode", heddle_batch_decode, batch_decode, out<half>("o", {2, 4, 16}),
          out<float>("lse", {2, 4}).optional(), in<half>("q", {2, 4, 16}), cache, table, defaults),
      row("batch_decode, bundles", heddle_batch_decode, batch_decode, out<half>("o", {2, 4, 16}),
          absent(), in<half>("q", {2, 4, 16}), cache, table, bundles()),
      decode_by_address(),
      row("merge_states", heddle_merge_states, merge_states, o, lse, in<half>("o_a", {8, 4, 16}),
          in<float>("lse_a", {8, 4}), in<half>("o_b", {8, 4, 16}), in<float>("lse_b", {8, 4}))};
  for (Row& more : kv_cache_rows()) rows.push_back(std::move(more));
  return rows;
}

}  // namespace heddle::testing
