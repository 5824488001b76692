#include "engine/drafts/ngram_drafts.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "heap_count.h"
#include "random.h"

namespace heddle {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int32_t kUntouched = -99;

Tokens ngram_drafts(std::span<const int32_t> tokens, size_t max_drafts,
                    const NgramOptions& options = {}) {
  Tokens drafts(max_drafts + 1, kUntouched);
  const size_t count = propose_from_ngrams(tokens, std::span(drafts).first(max_drafts), options);
  EXPECT_LE(count, max_drafts);
  EXPECT_TRUE(std::all_of(drafts.begin() + static_cast<std::ptrdiff_t>(count), drafts.end(),
                          [](int32_t token) { return token == kUntouched; }));
  drafts.resize(count);
  return drafts;
}

/// The definition of the op.
Tokens defined_drafts(const Tokens& t, size_t max_drafts, const NgramOptions& options) {
  const size_t length = t.size();
  for (auto n = static_cast<size_t>(options.max_ngram); n >= static_cast<size_t>(options.min_ngram);
       --n) {
    std::vector<size_t> starts;
    for (size_t s = 0; s + n < length; ++s) {
      bool is_same = true;
      for (size_t m = 0; m < n; ++m) is_same &= t[s + m] == t[length - n + m];
      if (is_same) starts.push_back(s);
    }
    if (starts.empty()) continue;
    const size_t s = options.match == NgramMatch::kFirst ? starts.front() : starts.back();
    size_t count = std::min(max_drafts, length - s - n);
    if (options.max_length > 0) {
      const int64_t left = options.max_length - static_cast<int64_t>(length);
      count = std::min(count, static_cast<size_t>(std::max<int64_t>(left, 0)));
    }
    const auto begin = t.begin() + static_cast<std::ptrdiff_t>(s + n);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }
  return {};
}

TEST(NgramDrafts, AreWhatFollowedTheLastTokensBefore) {
  const Tokens row = {1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 2, 3};
  EXPECT_EQ(ngram_drafts(row, 3), (Tokens{4, 9, 1}));
  EXPECT_EQ(ngram_drafts(row, 2, {.match = NgramMatch::kLast}), (Tokens{5, 9}));
  EXPECT_EQ(ngram_drafts(row, 3, {.max_length = 14}), (Tokens{4, 9}));
  EXPECT_EQ(ngram_drafts(row, 3, {.min_ngram = 3}), Tokens{});
  EXPECT_EQ(ngram_drafts(row, 0), Tokens{});
}

TEST(NgramDrafts, AreNoneOfShortRows) {
  EXPECT_EQ(ngram_drafts({}, 4), Tokens{});
  EXPECT_EQ(ngram_drafts(Tokens{5}, 4), Tokens{});
  const int32_t high = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(ngram_drafts(Tokens{0, high, 0}, 4), (Tokens{high, 0}));
}

TEST(NgramDrafts, AreThoseOfTheDefinition) {
  for (int round = 0; round < 300; ++round) {
    Tokens row(static_cast<size_t>(testing::random_int(0, 60)));
    for (int32_t& token : row) token = static_cast<int32_t>(testing::random_int(0, 4));
    const int64_t min_ngram = testing::random_int(1, 3);
    const NgramOptions options{.min_ngram = min_ngram,
                               .max_ngram = min_ngram + testing::random_int(0, 3),
                               .match = testing::pick({NgramMatch::kFirst, NgramMatch::kLast}),
                               .max_length = testing::random_int(0, 70)};
    const auto max_drafts = static_cast<size_t>(testing::random_int(0, 15));
    ASSERT_EQ(ngram_drafts(row, max_drafts, options), defined_drafts(row, max_drafts, options));
  }
}

TEST(NgramDrafts, CopyAndAllocateNothing) {
  const Tokens row(30000, 3);
  Tokens drafts(100);
  const int64_t before = testing::num_heap_bytes();
  const size_t count = propose_from_ngrams(row, drafts, {.max_ngram = 4});
  EXPECT_EQ(testing::num_heap_bytes(), before);
  EXPECT_EQ(count, 64U) << "at most";
}

TEST(NgramDrafts, RefuseOptionsOutOfRange) {
  Tokens drafts(4);
  testing::expect_invalid({"min_ngram is 0"}, [&] {
    propose_from_ngrams(Tokens{1, 2}, drafts, {.min_ngram = 0});
  });
}

}  // namespace
}  // namespace heddle
