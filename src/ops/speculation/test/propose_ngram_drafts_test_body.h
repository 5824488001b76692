#pragma once

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "ops/speculation/test/propose_ngram_drafts_ref.h"
#include "ops/speculation/test/speculation_cases.h"
#include "ops/speculation/test/speculation_test_body.h"
#include "scoped_validation.h"

// The bodies of the tests of propose_ngram_drafts, the same for every device.

namespace heddle::testing::propose_ngram_drafts_cases {

/// Sequences in a table of max_tokens columns: after each is what would make a longer match.
struct Sequences {
  std::vector<Ints> rows;
  IndexBuffer table, lengths;

  Sequences(const std::vector<Ints>& tokens, int64_t max_tokens)
      : rows(tokens), table(int64_t(tokens.size()), max_tokens), lengths(int64_t(tokens.size())) {
    for (size_t i = 0; i < rows.size(); ++i) {
      lengths.set(int64_t(i), int64_t(rows[i].size()));
      for (int64_t j = 0; j < max_tokens; ++j) {
        table.set(int64_t(i), j, j < int64_t(rows[i].size()) ? rows[i][size_t(j)] : 1);
      }
    }
  }
};

/// `length` tokens of few different ones, so that n-grams come again.
inline Ints random_tokens(int64_t length, int64_t num_different) {
  Ints tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(random_int(0, num_different - 1));
  return tokens;
}

inline void expect_proposed(const SpeculationRun& device, Sequences& s, int64_t max_drafts,
                            const NgramOptions& options, int64_t num_active) {
  const int64_t num_rows = int64_t(s.rows.size());
  IndexBuffer drafts(num_rows + 1, max_drafts + 1), counts(num_rows + 1);
  std::vector<int64_t> active{num_active};
  const bool on_device = random_int(0, 1) == 1;
  propose_ngram_drafts(device, drafts.view(), counts.view(), s.table.view(), s.lengths.view(),
                       max_drafts,
                       on_device                ? Count(host_view(active.data(), {1}))
                       : num_active == num_rows ? Count()
                                                : Count(num_active),
                       options);
  for (int64_t i = 0; i < num_rows; ++i) {
    Ints want =
        i < num_active ? ref::propose_ngram_drafts(s.rows[size_t(i)], max_drafts, options) : Ints{};
    EXPECT_EQ(counts.get(i), int64_t(want.size())) << i;
    want.resize(size_t(max_drafts), kNoToken);
    want.push_back(IndexBuffer::kBefore);  // the column after the drafts
    EXPECT_EQ(drafts.row(i), want) << i;
  }
  EXPECT_EQ(drafts.row(num_rows), Ints(size_t(max_drafts + 1), IndexBuffer::kBefore));
  EXPECT_EQ(counts.get(num_rows), IndexBuffer::kBefore);
  EXPECT_TRUE(drafts.gaps_intact());
  EXPECT_TRUE(counts.gaps_intact());
}

inline NgramOptions random_options() {
  const int64_t min_ngram = random_int(1, 3);
  return {.min_ngram = min_ngram,
          .max_ngram = min_ngram + random_int(0, 4),
          .match = random_int(0, 1) == 1 ? NgramMatch::kLast : NgramMatch::kFirst,
          .max_length = random_int(0, 1) == 1 ? random_int(1, 60) : 0};
}

inline void equals_the_reference(const SpeculationRun& device) {
  for (int round = 0; round < device.rounds(300); ++round) {
    const int64_t max_tokens = random_int(0, 50);
    std::vector<Ints> rows;
    for (int64_t i = random_int(1, 12); i > 0; --i) {
      rows.push_back(random_tokens(random_int(0, max_tokens), random_int(1, 5)));
    }
    Sequences s(rows, max_tokens);
    expect_proposed(device, s, random_int(0, 6), random_options(),
                    random_int(0, int64_t(rows.size())));
  }
}

inline void long_and_short_sequences(const SpeculationRun& device) {
  // Lengths about the shares of blocks; the n-gram that comes again lies anywhere.
  for (int round = 0; round < 4; ++round) {
    const int64_t max_tokens = device.many(40000);
    std::vector<Ints> rows;
    for (const int64_t length : {max_tokens, max_tokens - 1, int64_t{2}, int64_t{129},
                                 random_int(1, max_tokens), random_int(1, max_tokens)}) {
      rows.push_back(random_tokens(length, round == 0 ? 1 : round == 1 ? 3 : 1 << 20));
      Ints& row = rows.back();
      const int64_t ngram = std::min<int64_t>(4, length / 2);
      if (ngram > 0) {
        std::copy(row.end() - ngram, row.end(), row.begin() + random_int(0, length - 2 * ngram));
      }
    }
    Sequences s(rows, max_tokens);
    NgramOptions options = random_options();
    options.max_length = 0;
    expect_proposed(device, s, 5, options, int64_t(rows.size()));
  }
}

inline void takes_any_number_of_sequences(const SpeculationRun& device) {
  std::vector<Ints> rows;
  for (int64_t i = device.many(70000); i > 0; --i) {
    rows.push_back(random_tokens(random_int(0, 9), 3));
  }
  Sequences s(rows, 9);
  expect_proposed(device, s, 3, {}, int64_t(rows.size()) - 7);
}

inline void takes_the_longest_ngram_and_of_those_the_first_or_the_last(
    const SpeculationRun& device) {
  //                    0  1  2  3  4  5  6  7  8  9 10 11
  Sequences s({Ints{7, 8, 1, 9, 7, 8, 2, 8, 3, 5, 7, 8}}, 12);
  const auto drafts = [&](const NgramOptions& options) {
    IndexBuffer tokens(1, 3), count(1);
    propose_ngram_drafts(device, tokens.view(), count.view(), s.table.view(), s.lengths.view(), 3,
                         {}, options);
    EXPECT_EQ(count.get(0), 3);
    return tokens.row(0);
  };
  EXPECT_EQ(drafts({}), (Ints{1, 9, 7}));
  EXPECT_EQ(drafts({.match = NgramMatch::kLast}), (Ints{2, 8, 3}));
  EXPECT_EQ(drafts({.max_ngram = 1, .match = NgramMatch::kLast}), (Ints{3, 5, 7}));
}

inline void an_occurrence_may_overlap_the_last_tokens(const SpeculationRun& device) {
  Sequences s({Ints{4, 4, 4, 4, 4}, Ints{5}, Ints{}, Ints{1, 2, 3}}, 6);
  IndexBuffer tokens(4, 3), counts(4);
  propose_ngram_drafts(device, tokens.view(), counts.view(), s.table.view(), s.lengths.view(), 3);
  EXPECT_EQ(counts.values(), (Ints{2, 0, 0, 0}));  // 4 4 4 at 0, which two follow
  EXPECT_EQ(tokens.row(0), (Ints{4, 4, -1}));
  propose_ngram_drafts(device, tokens.view(), counts.view(), s.table.view(), s.lengths.view(), 3,
                       {}, {.match = NgramMatch::kLast});
  EXPECT_EQ(counts.values(), (Ints{1, 0, 0, 0}));
  EXPECT_EQ(tokens.row(0), (Ints{4, -1, -1}));
}

inline void tokens_differ_in_all_their_bits(const SpeculationRun& device) {
  constexpr int64_t kHigh = int64_t{1} << 32;
  std::vector<int64_t> tokens{3 + kHigh, 7, 3, 8, 3}, length{5};
  IndexBuffer drafts(1, 1), count(1);
  propose_ngram_drafts(device, drafts.view(), count.view(), host_view(tokens.data(), {1, 5}),
                       host_view(length.data(), {1}), 1);
  EXPECT_EQ(count.get(0), 1);
  EXPECT_EQ(drafts.get(0), 8);
}

inline void lengths_are_clamped(const SpeculationRun& device) {
  Sequences s({Ints{1, 2, 1}, Ints{1, 2, 1}}, 3);
  s.lengths.set(0, 1000);
  s.lengths.set(1, -5);
  IndexBuffer drafts(2, 2), counts(2);
  propose_ngram_drafts(device, drafts.view(), counts.view(), s.table.view(), s.lengths.view(), 2);
  EXPECT_EQ(counts.values(), (Ints{2, 0}));
  EXPECT_EQ(drafts.row(0), (Ints{2, 1}));
}

inline void empty_batch(const SpeculationRun& device) {
  IndexBuffer none(0), no_rows(0, 3);
  propose_ngram_drafts(device, no_rows.view(), none.view(), no_rows.view(), none.view(), 3);
  EXPECT_TRUE(no_rows.gaps_intact());
}

inline void errors_name_tensor_axis_and_values(const SpeculationRun& device) {
  IndexBuffer tokens(2, 4), lengths(Ints{1, 2}), drafts(2, 3), counts(2), one(1);
  std::vector<float> floats(8);
  const auto run = [&](TensorView to, TensorView count, ConstTensorView from, int64_t k,
                       const Count& active, const NgramOptions& options) {
    propose_ngram_drafts(device, to, count, from, lengths.view(), k, active, options);
  };
  const auto expect = [&](const char* message, int64_t k, const NgramOptions& options) {
    expect_invalid({message},
                   [&] { run(drafts.view(), counts.view(), tokens.view(), k, {}, options); });
  };
  expect("num_speculative_tokens is -1, expected at least 0", -1, {});
  expect("draft_tokens.size(1) is 3, expected at least num_speculative_tokens = 4", 4, {});
  expect("min_ngram is 0, expected at least 1", 3, {.min_ngram = 0});
  expect("max_ngram is 1, expected at least min_ngram = 2", 3, {.min_ngram = 2, .max_ngram = 1});
  expect("max_length is -1, expected at least 0", 3, {.max_length = -1});
  expect_invalid({"num_drafts.size(0) is 1, expected at least num_rows = 2"},
                 [&] { run(drafts.view(), one.view(), tokens.view(), 3, {}, {}); });
  expect_invalid({"num_active is 3, expected 0 to 2"},
                 [&] { run(drafts.view(), counts.view(), tokens.view(), 3, 3, {}); });
  expect_unsupported({"tokens is f32"}, [&] {
    run(drafts.view(), counts.view(), host_view(floats.data(), {2, 4}), 3, {}, {});
  });
}

inline void validation_names_row_and_value(const SpeculationRun& device) {
  const ScopedValidation on;
  Sequences s({Ints{1, 2, 1}, Ints{1, 2, 1}}, 3);
  IndexBuffer drafts(2, 2), counts(2);
  const auto run = [&](const Count& active) {
    propose_ngram_drafts(device, drafts.view(), counts.view(), s.table.view(), s.lengths.view(), 2,
                         active);
  };
  s.lengths.set(1, 4);
  run(1);
  expect_invalid({"lengths[1] is 4, expected 0 to tokens.size(1) = 3"}, [&] { run({}); });
  s.lengths.set(1, -1);
  expect_invalid({"lengths[1] is -1, expected 0 to tokens.size(1) = 3"}, [&] { run(2); });
  std::vector<int32_t> three{3};
  expect_invalid({"num_active is 3, expected 0 to num_rows = 2"},
                 [&] { run(Count(host_view(three.data(), {1}))); });
}

}  // namespace heddle::testing::propose_ngram_drafts_cases
