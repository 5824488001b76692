#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/math.h"
#include "ops/metadata/test/conversions_test_body.h"
#include "ops/metadata/test/prepare_batch_cases.h"

// Bodies of the tests of prepare_batch, for every device.

namespace heddle::testing {

using ref::BatchCall;
using ref::BatchResult;

using Names = std::vector<std::string>;

inline bool chance(int percent) { return random_int(0, 99) < percent; }

/// Pages enough for most requests, in random order; rows of equal length at times, so that they
/// come as a table.
inline std::vector<Vector> random_pages(const BatchCall& c) {
  std::vector<Vector> pages;
  const Vector lengths = ref::batch_rows(c).kv;
  const int64_t most = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const bool even = chance(50) && most < 5000;
  for (const int64_t length : lengths) {
    const int64_t needed = ceil_div(even ? most : length, c.page_size);
    const int64_t held =
        even ? needed : std::max<int64_t>(0, needed + random_int(chance(5) ? -1 : 0, 2));
    pages.push_back(random_vector(held, chance(2) ? -1 : 0, 5000));
  }
  return pages;
}

inline BatchCall random_call(int64_t num_seqs, int64_t typical) {
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
inline Names random_outputs(BatchCall& c) {
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

inline void expect_prepare_batch_equals_the_definition(const MetadataRun& run) {
  for (int repeat = 0; repeat < small_or(6, 200); ++repeat) {
    ThreadPool pool(static_cast<int>(random_int(1, 3)));
    const ExecContext ctx = run.with(pool);
    const ScopedIndexTensors kind(index_tensors_of(repeat));
    const int64_t num_seqs =
        repeat % 50 == 0 ? random_int(500, 1600) : pick<int64_t>({0, 1, 2, random_int(3, 40), 256});
    BatchCall call = random_call(num_seqs, repeat % 50 == 1 ? 700 : random_int(1, 20));
    const Names names = random_outputs(call);
    BatchTensors batch(call, names);
    batch.run(ctx, run.mirror);
    batch.expect(ref::prepare_batch(call));
    if (::testing::Test::HasFailure()) FAIL() << "repeat " << repeat;
  }
}

/// A call whose metadata every reader can check by eye.
inline BatchCall small_call() {
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

inline void expect_prepare_batch_writes_one_step(const MetadataRun& run) {
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
  batch.run(run.ctx, run.mirror);
  batch.expect(want);
  EXPECT_EQ(ref::prepare_batch(c), want);
}

inline void expect_prepare_batch_cuts_what_does_not_fit_and_says_so(const MetadataRun& run) {
  const auto overflow_of = [&](const BatchCall& c) {
    const Names names = {"q_indptr",  "kv_lengths", "pages",          "page_table",
                         "positions", "seg_slots",  "adapter_indptr", "overflow"};
    BatchTensors batch(c, names);
    batch.run(run.ctx, run.mirror);
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
  c.table_width = 2;  // room for all pages that there are
  EXPECT_EQ(overflow_of(c), kMissingPages);
  c = small_call();
  c.num_segments = 1;
  EXPECT_EQ(overflow_of(c), kSegmentOverflow);
}

inline void expect_prepare_batch_takes_any_number_of_requests_and_any_skew(const MetadataRun& run) {
  ThreadPool pool(3);
  const ExecContext ctx = run.with(pool);
  const int64_t long_row = small_or(2000, 32'768);
  for (const int64_t num_seqs : {256, small_or(700, 70'000)}) {
    BatchCall c;
    c.cache_lengths = Vector(size_t(num_seqs), 3);
    c.input_lengths = Vector(size_t(num_seqs), 1);
    (*c.input_lengths)[size_t(random_int(0, num_seqs - 1))] = long_row;
    c.num_tokens = num_seqs - 1 + long_row;
    c.num_slots = 4;
    c.num_segments = num_seqs;
    c.adapter_slots = random_vector(num_seqs, -1, 3);
    BatchTensors batch(
        c, {"q_indptr", "positions", "token_to_seq", "slot_ids", "seg_starts", "seg_ends",
            "seg_slots", "adapter_rows", "adapter_indptr", "kv_lengths", "overflow"});
    batch.run(ctx, run.mirror);
    batch.expect(ref::prepare_batch(c));
  }
}

}  // namespace heddle::testing
