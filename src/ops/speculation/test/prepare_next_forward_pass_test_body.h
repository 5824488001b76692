#pragma once

#include <gtest/gtest.h>

#include "expect_error.h"
#include "ops/speculation/test/speculation_cases.h"
#include "ops/speculation/test/speculation_test_body.h"
#include "scoped_validation.h"

// The bodies of the tests of prepare_next_forward_pass, the same for every device.

namespace heddle::testing::prepare_next_forward_pass_cases {

/// The four buffers, `spare` rows and columns larger than needed.
struct Buffers {
  IndexBuffer sampled, last_seq, tokens, counts;
  Buffers(int64_t rows, int64_t width, int64_t spare = 0)
      : sampled(rows + spare),
        last_seq(rows + spare),
        tokens(rows + spare, width + spare),
        counts(rows + spare) {}

  [[nodiscard]] ref::Prepared values() const {
    ref::Prepared result{sampled.values(), last_seq.values(), counts.values(), {}};
    for (int64_t p = 0; p < tokens.rows(); ++p) result.accepted_tokens.push_back(tokens.row(p));
    return result;
  }
  [[nodiscard]] bool gaps_intact() const {
    return sampled.gaps_intact() && last_seq.gaps_intact() && tokens.gaps_intact() &&
           counts.gaps_intact();
  }
};

inline void expect_prepared(const ref::Prepared& want, const Buffers& got) {
  const ref::Prepared values = got.values();
  EXPECT_EQ(values.sampled_tokens, want.sampled_tokens);
  EXPECT_EQ(values.last_accepted_seq, want.last_accepted_seq);
  EXPECT_EQ(values.accepted_counts, want.accepted_counts);
  EXPECT_EQ(values.accepted_tokens, want.accepted_tokens);
  EXPECT_TRUE(got.gaps_intact());
}

/// `mask` and `last_ones` of a verification, of which some are changed: the op takes them as they
/// come.
inline void run_random(const SpeculationRun& device, const DraftedBatch& batch) {
  ref::Verified verified = ref::verify_speculative_tokens(batch.input, batch.output, batch.drafts,
                                                          batch.num_prefill, batch.ragged);
  Ints& last_ones = verified.last_one_indices;
  for (int64_t& last : last_ones) last = random_int(0, 9) == 0 ? -1 : last;
  for (int64_t& bit : verified.mask) bit = random_int(0, 9) == 0 ? 1 - bit : bit;
  const bool rank_two = random_int(0, 1) == 1;
  IndexBuffer input(batch.input), output(batch.output), last_one_indices(last_ones);
  IndexBuffer indptr(batch.draft_indptr), required(batch.num_tokens() + random_int(0, 1));
  for (int64_t t = 0; t < required.rows(); ++t) required.set(t, random_int(0, 99999));
  MaskBuffer mask(verified.mask);
  Buffers got(batch.num_requests(), batch.max_drafts, random_int(0, 2));
  const PrepareOptions options{.write_prefill_rows = random_int(0, 1) == 1};

  ref::Prepared want = got.values();
  for (Ints& row : want.accepted_tokens) row.resize(size_t(batch.max_drafts));
  want = ref::prepare_next_forward_pass(want, batch.output, required.values(), last_ones,
                                        verified.mask, batch.input, batch.drafts,
                                        options.write_prefill_rows);
  for (Ints& row : want.accepted_tokens) row.resize(got.tokens.row(0).size(), IndexBuffer::kBefore);

  prepare_next_forward_pass(device, got.sampled.view(), got.last_seq.view(), got.tokens.view(),
                            got.counts.view(), rank_two ? output.as_row() : output.view(),
                            required.view(), last_one_indices.view(),
                            rank_two ? mask.as_row() : mask.view(),
                            rank_two ? input.as_row() : input.view(), batch.num_decode,
                            batch.ragged ? Drafts::ragged(indptr.view(), batch.max_drafts)
                                         : Drafts::uniform(batch.max_drafts),
                            options);
  expect_prepared(want, got);
}

inline void equals_the_reference(const SpeculationRun& device) {
  for (int round = 0; round < device.rounds(300); ++round) {
    run_random(device, random_batch(random_int(1, 20), random_int(0, 5), random_int(0, 5),
                                    random_int(0, 1) == 1, random_int(0, 3)));
  }
}

inline void takes_any_number_of_requests(const SpeculationRun& device) {
  run_random(device, random_batch(device.many(66000), 1000, 3, true));
}

/// Two decode requests with two drafts, one prefill request.
struct Example {
  const SpeculationRun* device;
  IndexBuffer input{Ints{1, 7, 8, 2, 3, 4, 9}}, output{Ints{7, 8, 5, 6, 6, 6, 4}};
  IndexBuffer required{Ints{10, 11, 12, 13, 14, 15, 16}}, last_ones{Ints{2, 3, 6}};
  MaskBuffer mask{Ints{1, 1, 1, 1, 0, 0, 1}};
  Buffers got{3, 2};

  explicit Example(const SpeculationRun& on) : device(&on) {}

  void run(const PrepareOptions& options = {}, const Drafts& drafts = Drafts::uniform(2),
           const Count& num_decode = 2) {
    prepare_next_forward_pass(*device, got.sampled.view(), got.last_seq.view(), got.tokens.view(),
                              got.counts.view(), output.view(), required.view(), last_ones.view(),
                              mask.view(), input.view(), num_decode, drafts, options);
  }
};

constexpr int64_t kBefore = IndexBuffer::kBefore;

inline void prefill_rows_are_written_only_where_asked(const SpeculationRun& device) {
  Example example(device);
  example.run();
  expect_prepared(
      {{5, 6, 4}, {12, 13, 16}, {2, 0, kBefore}, {{7, 8}, {-1, -1}, {kBefore, kBefore}}},
      example.got);
  example.run({.write_prefill_rows = true});
  expect_prepared({{5, 6, 4}, {12, 13, 16}, {2, 0, 0}, {{7, 8}, {-1, -1}, {-1, -1}}}, example.got);
}

/// Of a prefill request accepted_tokens and accepted_counts need no row.
inline void takes_accepted_rows_of_decode_requests_alone(const SpeculationRun& device) {
  for (const Ints& last_ones : {Ints{2, 3, 6}, Ints{2, 3, -1}}) {
    const bool known = last_ones[2] >= 0;
    Example example(device);
    example.last_ones = IndexBuffer(last_ones);
    example.got.tokens = IndexBuffer(2, 2);
    example.got.counts = IndexBuffer(2);
    example.run();
    expect_prepared({{5, 6, known ? 4 : -1}, {12, 13, known ? 16 : -1}, {2, 0}, {{7, 8}, {-1, -1}}},
                    example.got);
    example.got.counts = IndexBuffer(3);  // the rows that both have
    example.run();
    expect_prepared(
        {{5, 6, known ? 4 : -1}, {12, 13, known ? 16 : -1}, {2, 0, kBefore}, {{7, 8}, {-1, -1}}},
        example.got);
  }
  Example example(device);
  example.got.tokens = IndexBuffer(0, 2);
  example.got.counts = IndexBuffer(0);
  example.run({}, Drafts::uniform(2), 0);
  EXPECT_EQ(example.got.sampled.values(), (Ints{5, 6, 4}));
  EXPECT_TRUE(example.got.gaps_intact());
}

inline void a_row_without_last_one_gets_nothing(const SpeculationRun& device) {
  Example example(device);
  example.last_ones.set(0, -1);
  example.last_ones.set(2, 7);  // past the tokens
  example.run();
  expect_prepared({{-1, 6, -1}, {-1, 13, -1}, {0, 0, 0}, {{-1, -1}, {-1, -1}, {-1, -1}}},
                  example.got);
}

inline void without_drafts(const SpeculationRun& device) {
  Example example(device);
  example.got = Buffers(3, 0);
  example.last_ones = IndexBuffer(Ints{0, 1, 2});
  example.run({}, Drafts::uniform(0));
  expect_prepared({{7, 8, 5}, {10, 11, 12}, {0, 0, kBefore}, {{}, {}, {}}}, example.got);
}

inline void counts_true_masks_not_tokens(const SpeculationRun& device) {
  Example example(device);  // an accepted draft may be -1
  example.input.set(1, -1);
  example.run();
  EXPECT_EQ(example.got.counts.get(0), 2);
  EXPECT_EQ(example.got.tokens.row(0), (Ints{-1, 8}));
}

inline void the_count_may_lie_on_the_device(const SpeculationRun& device) {
  Example example(device);
  const std::vector<int64_t> two{2};
  example.run({}, Drafts::uniform(2), ConstTensorView(host_view(two.data(), {1})));
  EXPECT_EQ(example.got.counts.values(), (Ints{2, 0, kBefore}));
}

inline void empty_batch(const SpeculationRun& device) {
  IndexBuffer none(0), table(0, 3);
  MaskBuffer mask(0);
  prepare_next_forward_pass(device, none.view(), none.view(), table.view(), none.view(),
                            none.view(), none.view(), none.view(), mask.view(), none.view(), 0,
                            Drafts::uniform(3));
  EXPECT_TRUE(none.gaps_intact() && table.gaps_intact());
}

inline void errors_name_tensor_axis_and_values(const SpeculationRun& device) {
  Example example(device);
  example.got.sampled = IndexBuffer(2);
  expect_invalid({"sampled_tokens.size(0) is 2, expected at least num_rows = 3"},
                 [&] { example.run(); });
  example = Example(device);
  expect_invalid({"accepted_tokens.size(1) is 2, expected at least num_speculative_tokens = 3"},
                 [&] { example.run({}, Drafts::uniform(3)); });
  expect_invalid({"num_decode_requests is 4, expected 0 to 3"},
                 [&] { example.run({}, Drafts::uniform(2), 4); });
  example.got.counts = IndexBuffer(1);
  expect_invalid({"accepted_counts.size(0) is 1, expected at least num_decode_requests = 2"},
                 [&] { example.run(); });
  example.got.counts = IndexBuffer(2);
  expect_invalid({"accepted_counts.size(0) is 2, expected at least num_rows = 3"},
                 [&] { example.run({.write_prefill_rows = true}); });
  const std::vector<int64_t> two{2};
  expect_invalid({"accepted_counts.size(0) is 2, expected at least num_rows = 3"}, [&] {
    example.run({}, Drafts::uniform(2), ConstTensorView(host_view(two.data(), {1})));
  });
  example = Example(device);
  example.required = IndexBuffer(6);
  expect_invalid({"required_logit_indices.size(0) is 6, expected at least num_tokens = 7"},
                 [&] { example.run(); });
  example = Example(device);
  example.mask = MaskBuffer(8);
  expect_invalid({"accepted_tokens_mask.size(0) is 8, expected num_tokens = 7"},
                 [&] { example.run(); });
}

inline void validation_names_row_and_value(const SpeculationRun& device) {
  const ScopedValidation validation;
  Example example(device);
  example.run();
  example.last_ones.set(0, -1);
  example.run();
  example.last_ones.set(1, 7);
  expect_invalid({"last_one_indices[1] is 7, expected below num_tokens = 7"},
                 [&] { example.run(); });
  example.last_ones.set(1, -2);
  expect_invalid({"last_one_indices[1] is -2, expected at least -1"}, [&] { example.run(); });
  example.last_ones.set(1, 3);
  IndexBuffer count(Ints{4}), descending(Ints{0, 2, 1});
  expect_invalid({"num_decode_requests is 4, expected 0 to the rows for requests = 3"},
                 [&] { example.run({}, Drafts::uniform(2), count.view()); });
  expect_invalid({"draft_indptr[2] is 1, expected at least draft_indptr[1] = 2"},
                 [&] { example.run({}, Drafts::ragged(descending.view(), 2)); });
  count.set(0, 3);
  expect_invalid({"num_decode_requests is 3, expected below draft_indptr.size(0) = 3"},
                 [&] { example.run({}, Drafts::ragged(descending.view(), 2), count.view()); });
}

}  // namespace heddle::testing::prepare_next_forward_pass_cases
