#include <numeric>

#include <gtest/gtest.h>

#include "heddle/ops/kv_cache.h"
#include "heddle/ops/lora.h"

#include "ops/metadata/prepare_batch_cases.h"

namespace heddle {
namespace {

using ref::BatchCall;
using ref::BatchResult;
using ref::Vector;
using testing::BatchTensors;
using testing::pick;
using testing::random_int;
using testing::random_lengths;
using testing::random_vector;
using testing::starts_of_lengths;

using Names = std::vector<std::string>;

int64_t around(int64_t needed) {
  return pick<int64_t>({needed, needed, needed + random_int(1, 40), random_int(0, needed)});
}
bool chance(int percent) { return random_int(0, 99) < percent; }

/// Pages enough for most requests, in random order; rows of equal length at times, so that they come as a table.
std::vector<Vector> random_pages(const BatchCall& c) {
  std::vector<Vector> pages;
  const Vector lengths = ref::batch_rows(c).kv;
  const int64_t most = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const bool even = chance(50) && most < 5000;
  for (const int64_t length : lengths) {
    const int64_t needed = ((even ? most : length) + c.page_size - 1) / c.page_size;
    const int64_t held =
        even ? needed : std::max<int64_t>(0, needed + random_int(chance(5) ? -1 : 0, 2));
    pages.push_back(random_vector(held, chance(2) ? -1 : 0, 5000));
  }
  return pages;
}

BatchCall random_call(int64_t num_seqs, int64_t typical) {
  BatchCall c;
  c.cache_lengths = random_lengths(num_seqs, typical);
  if (chance(80))
    c.input_lengths =
        chance(50) ? random_lengths(num_seqs, typical) : random_vector(num_seqs, 0, 4);
  c.tokens_per_seq = random_int(0, 3);
  if (chance(40)) c.accepted_lengths = random_vector(num_seqs, 0, 4);
  c.accepted_extra = random_int(0, 1);
  if (chance(50)) c.num_active = random_int(0, num_seqs);
  c.page_size = pick<int64_t>({1, 2, 16, random_int(1, 30)});
  const int64_t num_slots = random_int(0, 6);
  if (chance(80)) c.adapter_slots = random_vector(num_seqs, -2, num_slots);
  c.num_slots = num_slots;
  c.pad_page = pick<int64_t>({-1, 0});
  c.pad_token = random_int(0, 9);
  c.seq_pages = random_pages(c);

  const ref::BatchRows rows = ref::batch_rows(c);
  const int64_t tokens = std::accumulate(rows.tokens.begin(), rows.tokens.end(), int64_t{0});
  const int64_t pages = std::accumulate(rows.pages.begin(), rows.pages.end(), int64_t{0});
  c.num_tokens = around(tokens);
  c.max_pages = around(pages);
  c.num_segments = pick<int64_t>({num_seqs, num_seqs, random_int(0, num_seqs)});
  int64_t widest = 1;
  for (const int64_t n : rows.pages) widest = std::max(widest, n);
  c.table_width = around(std::min<int64_t>(widest, 500));
  if (chance(70)) {
    c.next_indptr = starts_of_lengths(random_vector(num_seqs, 0, 4), random_int(0, 2));
    c.next_input_ids = random_vector(around(c.next_indptr->back()), 0, 50'000);
  }
  if (chance(50)) c.prompt_lengths = random_vector(num_seqs, 0, 2 * typical);
  c.all_input_ids = testing::random_matrix(num_seqs, random_int(0, 60));
  return c;
}

/// All outputs, or some of them: the extents of those that are left out bound nothing any more.
Names random_outputs(BatchCall& c) {
  Names with_tokens = {"positions", "kv_slots", "token_to_seq", "slot_ids", "adapter_rows"};
  const Names with_segments = {"seg_starts", "seg_ends", "seg_slots"};
  const bool all = chance(60);
  Names names;
  const auto add = [&](const Names& choices) {
    size_t taken = 0;
    for (const std::string& name : choices) {
      if (all || chance(50)) names.push_back(name), ++taken;
    }
    return taken > 0;
  };
  add({"q_indptr", "start_lengths", "kv_lengths", "page_indptr", "last_page_len", "overflow"});
  if (!add({"pages"})) c.max_pages.reset();
  if (!add({"page_table"})) c.table_width.reset();
  if (!add({"all_input_ids"})) c.all_input_ids.reset();
  if (c.next_input_ids || c.all_input_ids) with_tokens.push_back("input_ids");
  if (!add(with_tokens)) c.num_tokens.reset();
  if (!add(with_segments)) c.num_segments.reset();
  const bool grouped = std::find(names.begin(), names.end(), "adapter_rows") != names.end();
  if (!add({"adapter_indptr"})) {
    if (grouped) {
      names.push_back("adapter_indptr");
    } else {
      c.num_slots.reset();
    }
  }
  return names;
}

TEST(PrepareBatch, EqualsTheDefinition) {
  for (int repeat = 0; repeat < 400; ++repeat) {
    ThreadPool pool(static_cast<int>(random_int(1, 3)));
    ExecContext ctx;
    ctx.threads = pool.num_threads() > 1 ? &pool : nullptr;
    const int64_t num_seqs =
        repeat % 50 == 0 ? random_int(500, 1600) : pick<int64_t>({0, 1, 2, random_int(3, 40), 256});
    BatchCall call = random_call(num_seqs, repeat % 50 == 1 ? 700 : random_int(1, 20));
    const Names names = random_outputs(call);
    BatchTensors batch(call, names);
    batch.run(ctx);
    batch.expect(ref::prepare_batch(call));
    if (::testing::Test::HasFailure()) FAIL() << "repeat " << repeat;
  }
}

/// A call whose metadata every reader can check by eye.
BatchCall small_call() {
  BatchCall c;
  c.cache_lengths = {5, 0, 7, 9};
  c.input_lengths = {1, 3, 2, 1};
  c.num_active = 3;
  c.page_size = 4;
  c.seq_pages = {{10, 11}, {20, 21}, {30, 31, 32}, {40, 41, 42}};
  c.adapter_slots = {2, -1, 2, 0};
  c.num_tokens = 8;
  c.max_pages = 9;
  c.table_width = 3;
  c.num_segments = 4;
  c.num_slots = 3;
  c.next_indptr = {0, 1, 1, 3, 4};
  c.next_input_ids = {101, 301, 302, 401};
  c.all_input_ids = ref::Matrix{4, 10, Vector(40, 7)};
  return c;
}

TEST(PrepareBatch, WritesOneStep) {
  const BatchCall c = small_call();
  BatchResult want = {{"q_indptr", {0, 1, 4, 6, 6}},
                      {"start_lengths", {5, 0, 7, 0}},
                      {"kv_lengths", {6, 3, 9, 0}},
                      {"page_indptr", {0, 2, 3, 6, 6}},
                      {"last_page_len", {2, 3, 1, 0}},
                      {"pages", {10, 11, 20, 30, 31, 32, -1, -1, -1}},
                      {"page_table", {10, 11, -1, 20, -1, -1, 30, 31, 32, -1, -1, -1}},
                      {"positions", {5, 0, 1, 2, 7, 8, 0, 0}},
                      {"kv_slots", {45, 80, 81, 82, 127, 128, -1, -1}},
                      {"token_to_seq", {0, 1, 1, 1, 2, 2, -1, -1}},
                      {"input_ids", {101, 7, 7, 7, 301, 302, 0, 0}},
                      {"slot_ids", {2, -1, -1, -1, 2, 2, -1, -1}},
                      {"seg_starts", {0, 4, 0, 0}},
                      {"seg_ends", {1, 6, 0, 0}},
                      {"seg_slots", {2, 2, -1, -1}},
                      {"adapter_rows", {0, 4, 5, -1, -1, -1, -1, -1}},
                      {"adapter_indptr", {0, 0, 0, 3}},
                      {"overflow", {0}}};
  want["all_input_ids"] = Vector(40, 7);
  want["all_input_ids"][5] = 101;
  want["all_input_ids"][27] = 301;
  want["all_input_ids"][28] = 302;
  Names names;
  for (const auto& [name, values] : want) names.push_back(name);
  BatchTensors batch(c, names);
  batch.run({});
  batch.expect(want);
  EXPECT_EQ(ref::prepare_batch(c), want);
}

TEST(PrepareBatch, CutsWhatDoesNotFitAndSaysSo) {
  const auto overflow_of = [](const BatchCall& c) {
    const Names names = {"q_indptr",  "kv_lengths", "pages",          "page_table",
                         "positions", "seg_slots",  "adapter_indptr", "overflow"};
    BatchTensors batch(c, names);
    batch.run({});
    const BatchResult want = ref::prepare_batch(c);
    batch.expect(want);
    return want.at("overflow")[0];
  };
  BatchCall c = small_call();
  EXPECT_EQ(overflow_of(c), 0);
  c.num_tokens = 5;
  EXPECT_EQ(overflow_of(c), kTokenOverflow);
  c = small_call();
  c.max_pages = 5;
  EXPECT_EQ(overflow_of(c), kPageOverflow);
  c = small_call();
  c.table_width = 2;
  EXPECT_EQ(overflow_of(c), kPageOverflow);
  c = small_call();
  c.seq_pages = {{10, 11}, {20, 21}, {30, 31}, {}};
  EXPECT_EQ(overflow_of(c), kMissingPages);
  c = small_call();
  c.num_segments = 1;
  EXPECT_EQ(overflow_of(c), kSegmentOverflow);
}

TEST(PrepareBatch, TakesAnyNumberOfRequestsAndAnySkew) {
  ThreadPool pool(3);
  ExecContext ctx;
  ctx.threads = &pool;
  for (const int64_t num_seqs : {256, 70'000}) {
    BatchCall c;
    c.cache_lengths = Vector(size_t(num_seqs), 3);
    c.input_lengths = Vector(size_t(num_seqs), 1);
    (*c.input_lengths)[size_t(random_int(0, num_seqs - 1))] = 32'768;
    c.num_tokens = num_seqs - 1 + 32'768;
    c.num_slots = 4;
    c.num_segments = num_seqs;
    c.adapter_slots = random_vector(num_seqs, -1, 3);
    BatchTensors batch(
        c, {"q_indptr", "positions", "token_to_seq", "slot_ids", "seg_starts", "seg_ends",
            "seg_slots", "adapter_rows", "adapter_indptr", "kv_lengths", "overflow"});
    batch.run(ctx);
    batch.expect(ref::prepare_batch(c));
  }
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

// The places that kv_slots name are those where the cache's own op stores the step's keys by the table.
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
