#include "heddle/ops/attention.h"

#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"
#include "heddle/ops/kv_cache.h"

#include "capi/test/capi_cuda_test_body.h"
#include "compare.h"
#include "device_buffer.h"
#include "random.h"

namespace heddle::testing {
namespace {

/// Two sequences of 5 and 3 tokens on pages of 4, one kv head of 16: a cache that C fills and one
/// that C++ does.
TEST_F(CApiCuda, NewTokensAttentionAndStates) {
  const DeviceBuffer<half> k(random_normal<half>(8 * 16)), v(random_normal<half>(8 * 16));
  const DeviceBuffer<half> got(2 * 4 * 4 * 16), want(got.size());
  const std::vector<half> queries = random_normal<half>(8 * 2 * 16);
  const DeviceBuffer<half> q_got(queries), q_want(queries);
  const DeviceBuffer<int32_t> indptr(std::vector<int32_t>{0, 2, 3}),
      pages(std::vector<int32_t>{3, 0, 2}), last(std::vector<int32_t>{1, 3}),
      starts(std::vector<int32_t>{0, 5, 8});
  const OnDevice c_k(k, {8, 1, 16}), c_v(v, {8, 1, 16}), c_q(q_got, {8, 2, 16}),
      c_indptr(indptr, {3}), c_pages(pages, {3}), c_last(last, {2}), c_starts(starts, {3}),
      k_pool(got, {4, 1, 4, 16});
  OnDevice v_pool(got, {4, 1, 4, 16});
  v_pool.get()->byte_offset = got.size() / 2 * sizeof(half);
  heddle_paged_kv cache;
  heddle_paged_kv_init(&cache);
  cache.k = k_pool.get();
  cache.v = v_pool.get();
  const heddle_page_table table{c_indptr.get(), c_pages.get(), c_last.get()};
  const TensorView all = want.view({8, 1, 4, 16});
  const PagedKv same = PagedKv::from_pool(all.narrow(0, 0, 4), all.narrow(0, 4, 4));
  const PageTable same_table{indptr.view({3}), pages.view({3}), last.view({2})};
  const ExecContext ctx = cuda_context();

  expect_ok(heddle_kv_init(context_, &cache, &table, c_k.get(), c_v.get(), c_starts.get()));
  kv_init(ctx, same, same_table, k.view({8, 1, 16}), v.view({8, 1, 16}), starts.view({3}));
  EXPECT_TRUE(same_bits<half>(got.download(), want.download()));
  EXPECT_FALSE(got.untouched(0, got.size()));

  expect_ok(heddle_rope_kv_append(context_, c_q.get(), &cache, &table, c_k.get(), c_v.get(),
                                  c_starts.get(), nullptr, nullptr));
  rope_kv_append(ctx, q_want.view({8, 2, 16}), same, same_table, k.view({8, 1, 16}),
                 v.view({8, 1, 16}), starts.view({3}), {}, {});
  EXPECT_TRUE(same_bits<half>(got.download(), want.download()));
  EXPECT_TRUE(same_bits<half>(q_got.download(), q_want.download()));
  EXPECT_FALSE(same_bits<half>(q_got.download(), queries));

  const DeviceBuffer<half> a_got(queries.size()), a_want(queries.size());
  const DeviceBuffer<float> lse(16), lse_want(16);
  const OnDevice c_a(a_got, {8, 2, 16}), c_a_lse(lse, {8, 2});
  expect_ok(heddle_batch_prefill(context_, c_a.get(), c_a_lse.get(), c_q.get(), c_starts.get(),
                                 &cache, &table, nullptr));
  batch_prefill(ctx, a_want.view({8, 2, 16}), lse_want.view({8, 2}), q_want.view({8, 2, 16}),
                starts.view({3}), same, same_table);
  EXPECT_TRUE(same_bits<half>(a_got.download(), a_want.download()));
  EXPECT_TRUE(same_bits<float>(lse.download(), lse_want.download()));
  EXPECT_FALSE(a_got.untouched(0, a_got.size()));

  const DeviceBuffer<half> d_got(2 * 2 * 16), d_want(d_got.size());
  const OnDevice c_d(d_got, {2, 2, 16}), c_d_lse(lse, {2, 2}), c_d_q(q_got, {2, 2, 16});
  expect_ok(heddle_batch_decode(context_, c_d.get(), c_d_lse.get(), c_d_q.get(), &cache, &table,
                                nullptr));
  batch_decode(ctx, d_want.view({2, 2, 16}), lse_want.view({2, 2}), q_want.view({2, 2, 16}), same,
               same_table);
  EXPECT_TRUE(same_bits<half>(d_got.download(), d_want.download()));
  EXPECT_TRUE(same_bits<float>(lse.download(), lse_want.download()));
  EXPECT_FALSE(d_got.untouched(0, d_got.size()));
  const size_t bytes = heddle_batch_decode_workspace_bytes({kDLCUDA, 0}, 2, 2, 16);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes, batch_decode_workspace_bytes({DeviceType::kCuda, 0}, 2, 2, 16));

  const DeviceBuffer<half> o_got(queries.size()), o_want(queries.size());
  const OnDevice c_lse(lse, {8, 2}), c_o(o_got, {8, 2, 16}), c_other(q_want, {8, 2, 16});
  expect_ok(heddle_merge_states(context_, c_o.get(), nullptr, c_q.get(), c_lse.get(), c_other.get(),
                                c_lse.get()));
  merge_states(ctx, o_want.view({8, 2, 16}), {}, q_got.view({8, 2, 16}), lse.view({8, 2}),
               q_want.view({8, 2, 16}), lse.view({8, 2}));
  EXPECT_TRUE(same_bits<half>(o_got.download(), o_want.download()));
}

}  // namespace
}  // namespace heddle::testing
