#include <numeric>

#include <gtest/gtest.h>

#include "heddle/ops/kv_cache.h"
#include "heddle/ops/lora.h"

#include "ops/metadata/test/prepare_batch_test_body.h"

namespace heddle {
namespace {

using ref::BatchCall;
using ref::Vector;
using testing::BatchTensors;
using testing::expect_prepare_batch_cuts_what_does_not_fit_and_says_so;
using testing::expect_prepare_batch_equals_the_definition;
using testing::expect_prepare_batch_takes_any_number_of_requests_and_any_skew;
using testing::expect_prepare_batch_writes_one_step;
using testing::Mirror;
using testing::random_call;
using testing::random_int;
using testing::random_vector;

TEST(PrepareBatch, EqualsTheDefinition) {
  Mirror mirror;
  expect_prepare_batch_equals_the_definition({{}, mirror});
}

TEST(PrepareBatch, WritesOneStep) {
  Mirror mirror;
  expect_prepare_batch_writes_one_step({{}, mirror});
}

TEST(PrepareBatch, CutsWhatDoesNotFitAndSaysSo) {
  Mirror mirror;
  expect_prepare_batch_cuts_what_does_not_fit_and_says_so({{}, mirror});
}

TEST(PrepareBatch, TakesAnyNumberOfRequestsAndAnySkew) {
  Mirror mirror;
  expect_prepare_batch_takes_any_number_of_requests_and_any_skew({{}, mirror});
}

TEST(PrepareBatch, CapturedOnceFollowsTheContentsOfItsTensors) {
  std::vector<int32_t> cache{3, 8}, input{1, 2}, active{2}, q_indptr(3), positions(6);
  PrepareBatchOutputs out;
  out.q_indptr = host_view(q_indptr.data(), {3});
  out.positions = host_view(positions.data(), {6});
  PrepareBatchInputs in;
  in.cache_lengths = host_view(cache.data(), {2});
  in.input_lengths = host_view(input.data(), {2});
  in.num_active = TensorView(reinterpret_cast<std::byte*>(active.data()), DType::kInt32, {}, {});
  prepare_batch({}, out, in);
  EXPECT_EQ(q_indptr, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(positions, (std::vector<int32_t>{3, 8, 9, 0, 0, 0}));
  cache = {1, 0};
  input = {4, 2};
  active = {1};
  prepare_batch({}, out, in);
  EXPECT_EQ(q_indptr, (std::vector<int32_t>{0, 4, 4}));
  EXPECT_EQ(positions, (std::vector<int32_t>{1, 2, 3, 4, 0, 0}));
}

// The places that kv_slots name are those where the cache's own op stores the step's keys by the
// table.
TEST(PrepareBatch, NamesThePlacesWhereKvInitStores) {
  BatchCall c = random_call(random_int(1, 9), 12);
  c.seq_pages.reset();
  c.num_tokens.reset();
  c.max_pages.reset();
  c.table_width.reset();
  const Vector lengths = ref::batch_rows(c).kv;
  int64_t num_pages = 0;
  c.seq_pages.emplace();
  for (const int64_t length : lengths) {
    Vector pages(size_t(1 + length / c.page_size));
    for (int64_t& page : pages) page = num_pages++;
    c.seq_pages->push_back(pages);
  }
  c.max_pages = num_pages;
  const Vector tokens = ref::batch_rows(c).tokens;
  const int64_t num_tokens = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
  c.num_tokens = num_tokens;
  BatchTensors batch(c, {"q_indptr", "page_indptr", "pages", "last_page_len", "kv_slots"});
  batch.run({});
  const Vector kv_slots = ref::prepare_batch(c).at("kv_slots");

  std::vector<float> keys(size_t(num_pages * c.page_size), -1.0f), values(keys),
      rows(size_t(num_tokens), 0.0f);
  std::iota(rows.begin(), rows.end(), 0.0f);
  const ConstTensorView x = host_view(rows.data(), {num_tokens, 1, 1});
  const PagedKv cache =
      PagedKv::from_pool(host_view(keys.data(), {num_pages, 1, c.page_size, 1}),
                         host_view(values.data(), {num_pages, 1, c.page_size, 1}));
  kv_init({}, cache, {batch.out.page_indptr, batch.out.pages, batch.out.last_page_len}, x, x,
          batch.out.q_indptr);
  for (int64_t t = 0; t < num_tokens; ++t) EXPECT_EQ(keys[size_t(kv_slots[size_t(t)])], float(t));
}

// Ids, segments and grouped rows are the same batch to LoRA.
TEST(PrepareBatch, GivesLoraTheSameBatchInEveryForm) {
  BatchCall c = random_call(random_int(1, 30), 5);
  c.num_slots = 4;
  c.adapter_slots = random_vector(int64_t(c.cache_lengths.size()), -1, 4);
  c.num_segments = int64_t(c.cache_lengths.size());
  const int64_t n = *c.num_tokens;
  std::vector<int32_t> slot_ids(static_cast<size_t>(n)), rows(slot_ids), indptr(5);
  std::vector<int64_t> starts(size_t(*c.num_segments)), ends(starts), slots(starts);
  BatchTensors batch(c, {});
  batch.out.slot_ids = host_view(slot_ids.data(), {n});
  batch.out.adapter_rows = host_view(rows.data(), {n});
  batch.out.adapter_indptr = host_view(indptr.data(), {5});
  batch.out.seg_starts = host_view(starts.data(), {*c.num_segments});
  batch.out.seg_ends = host_view(ends.data(), {*c.num_segments});
  batch.out.seg_slots = host_view(slots.data(), {*c.num_segments});
  batch.run({});

  const auto x = testing::random_normal<float>(size_t(n * 8)),
             a = testing::random_normal<float>(4 * 3 * 8);
  std::vector<float> by_ids(size_t(n * 3), 7.0f), by_segments(by_ids), by_rows(by_ids);
  const auto shrink = [&](std::vector<float>& y, const LoraBatch& lora) {
    lora_shrink({}, host_view(y.data(), {n, 3}), host_view(x.data(), {n, 8}),
                host_view(a.data(), {4, 3, 8}), lora);
  };
  shrink(by_ids, LoraBatch::from_ids(batch.out.slot_ids));
  shrink(by_segments,
         LoraBatch::from_segments(batch.out.seg_starts, batch.out.seg_ends, batch.out.seg_slots));
  EXPECT_EQ(by_ids, by_segments);
  for (int32_t slot = 0; slot < 4; ++slot) {
    for (int32_t k = indptr[size_t(slot)]; k < indptr[size_t(slot) + 1]; ++k) {
      const int64_t row = rows[size_t(k)];
      lora_shrink({}, host_view(by_rows.data() + row * 3, {1, 3}),
                  host_view(x.data() + row * 8, {1, 8}), host_view(a.data(), {4, 3, 8}),
                  LoraBatch::from_ids(host_view(&slot, {1})));
    }
  }
  EXPECT_EQ(by_ids, by_rows);
}

}  // namespace
}  // namespace heddle
