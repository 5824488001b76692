#include "engine/drafts/suffix_memory.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "heap_count.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int32_t kPoison = -77;

/// What is proposed after a context; what is not written stays as it was.
Tokens proposed(const SuffixMemory& memory, const Tokens& context, size_t max_tokens = 8) {
  Tokens drafts(max_tokens + 1, kPoison);
  const size_t count = memory.propose(context, std::span(drafts).first(max_tokens));
  EXPECT_LE(count, max_tokens);
  EXPECT_TRUE(std::all_of(drafts.begin() + static_cast<std::ptrdiff_t>(count), drafts.end(),
                          [](int32_t token) { return token == kPoison; }));
  drafts.resize(count);
  return drafts;
}

Tokens random_tokens(size_t num_tokens, int32_t num_kinds) {
  Tokens tokens(num_tokens);
  for (int32_t& token : tokens) token = static_cast<int32_t>(testing::random_int(0, num_kinds - 1));
  return tokens;
}

TEST(SuffixMemory, ProposesWhatCameAfterTheLongestSuffix) {
  SuffixMemory memory;
  memory.add(Tokens{1, 2, 3, 4, 5, 6});
  memory.add(Tokens{9, 2, 3, 7, 8});
  EXPECT_EQ(proposed(memory, {1, 2, 3}), (Tokens{4, 5, 6}));
  EXPECT_EQ(proposed(memory, {0, 9, 2, 3}), (Tokens{7, 8}));
  EXPECT_EQ(proposed(memory, {0, 2, 3}), (Tokens{7, 8})) << "of two the last";
  EXPECT_EQ(proposed(memory, {1, 2, 3}, 2), (Tokens{4, 5}));
  EXPECT_EQ(proposed(memory, {1, 2, 3}, 0), Tokens{});
  EXPECT_EQ(proposed(memory, {0, 3}), Tokens{}) << "one token is too little";
  EXPECT_EQ(proposed(memory, {5, 6}), Tokens{}) << "the end of an answer";
  EXPECT_EQ(proposed(memory, {}), Tokens{});
}

TEST(SuffixMemory, EndsDraftsWhereTooFewOccurrencesGoOnAlike) {
  SuffixMemory memory;
  for (const int32_t last : {10, 11, 12}) memory.add(Tokens{1, 2, 3, last});
  EXPECT_EQ(proposed(memory, {1, 2}), (Tokens{3}));
  memory.add(Tokens{1, 2, 3, 12});
  EXPECT_EQ(proposed(memory, {1, 2}), (Tokens{3, 12}));
  SuffixMemory bold({.min_share = 0});
  for (const int32_t last : {10, 11, 12}) bold.add(Tokens{1, 2, 3, last});
  EXPECT_EQ(proposed(bold, {1, 2}), (Tokens{3, 12}));
}

TEST(SuffixMemory, HasNothingOfWhatItNeverGot) {
  SuffixMemory memory;
  memory.add({});
  EXPECT_EQ(memory.num_bytes(), 0U);
  EXPECT_EQ(proposed(memory, {1, 2, 3}), Tokens{});
  memory.add(Tokens{1, 2, 3});
  memory.add(Tokens{4, 5, 6});
  EXPECT_EQ(proposed(memory, {2, 3}), Tokens{}) << "the next answer does not go on there";
  EXPECT_EQ(proposed(memory, {3, 4}), Tokens{});
}

/// The same from tokens one after another, in pieces and as a whole, while answers are added and
/// old ones forgotten.
TEST(SuffixMemory, ACursorIsWhereAContextIs) {
  SuffixMemory memory({.max_bytes = 20000, .max_match = 8});
  SuffixMemory::Cursor one, pieces;
  Tokens context;
  int num_compared = 0;
  for (int round = 0; round < testing::small_or(60, 400); ++round) {
    memory.add(random_tokens(static_cast<size_t>(testing::random_int(0, 40)), 4));
    const Tokens more = random_tokens(static_cast<size_t>(testing::random_int(10, 30)), 4);
    for (const int32_t token : more) memory.append(one, token);
    memory.append(pieces, std::span(more).first(5));
    memory.append(pieces, std::span(more).subspan(5));
    context.insert(context.end(), more.begin(), more.end());
    // Ten tokens after anything was added or forgotten all know the same last eight ones.
    std::array<int32_t, 6> from_one{}, from_pieces{};
    const size_t num_one = memory.propose(one, from_one);
    const size_t num_pieces = memory.propose(pieces, from_pieces);
    const Tokens expected = proposed(memory, context, 6);
    ASSERT_EQ(Tokens(from_one.begin(), from_one.begin() + num_one), expected);
    ASSERT_EQ(Tokens(from_pieces.begin(), from_pieces.begin() + num_pieces), expected);
    num_compared += expected.empty() ? 0 : 1;
  }
  EXPECT_GT(num_compared, 10);
}

TEST(SuffixMemory, GoesOnWhileAnswersAreForgotten) {
  SuffixMemory memory({.max_tokens = 100});
  const Tokens answer = {1, 2, 3, 4, 5, 6, 7, 8};
  memory.add(answer);
  SuffixMemory::Cursor cursor = memory.begin();
  memory.append(cursor, std::span(answer).first(3));
  std::array<int32_t, 2> drafts{};
  memory.add(Tokens(45, 50));  // the answer is in the older automaton now
  ASSERT_EQ(memory.propose(cursor, drafts), 2U);
  EXPECT_EQ(drafts, (std::array<int32_t, 2>{4, 5}));
  memory.append(cursor, 4);
  EXPECT_EQ(memory.num_matched(cursor), 4);
  memory.add(Tokens(50, 51));  // and now it is forgotten
  EXPECT_EQ(memory.num_matched(cursor), 0);
  EXPECT_EQ(memory.propose(cursor, drafts), 0U);
  memory.add(answer);
  for (const int32_t token : {4, 5, 6}) memory.append(cursor, token);
  ASSERT_EQ(memory.propose(cursor, drafts), 2U);
  EXPECT_EQ(drafts, (std::array<int32_t, 2>{7, 8}));
}

TEST(SuffixMemory, StaysWithinItsBytesAndTokensAndKeepsTheRecentOnes) {
  for (const int32_t num_kinds : {2, 30, 30000}) {
    const SuffixMemoryOptions options{.max_bytes = 60000, .max_tokens = 1000};
    SuffixMemory memory(options);
    for (int round = 0; round < testing::small_or(50, 400); ++round) {
      const Tokens answer =
          random_tokens(static_cast<size_t>(testing::random_int(20, 60)), num_kinds);
      memory.add(answer);
      ASSERT_LE(memory.num_bytes(), options.max_bytes);
      ASSERT_LE(memory.num_tokens(), options.max_tokens);
      if (round > 10) {
        ASSERT_GE(memory.num_tokens(), 200);
      }
      SuffixMemory::Cursor cursor = memory.begin();
      memory.append(cursor, answer);
      ASSERT_GE(memory.num_matched(cursor), 1);
    }
  }
}

TEST(SuffixMemory, TakesHostileAnswers) {
  SuffixMemory memory;
  memory.add(Tokens(static_cast<size_t>(testing::small_or(3000, 100000)), 7));
  EXPECT_EQ(proposed(memory, Tokens(100, 7), 4), Tokens(4, 7));
  EXPECT_LE(memory.num_tokens(), SuffixMemoryOptions{}.max_tokens);
  const int32_t high = std::numeric_limits<int32_t>::max();
  memory.add(Tokens{0, high, 0, high, high, 0, 0});
  EXPECT_EQ(proposed(memory, {high, high}, 1), Tokens{0});
  memory.add(Tokens{5});
  memory.add({});

  SuffixMemory small({.max_bytes = 20000, .max_tokens = 300});
  const Tokens longer = random_tokens(5000, 1000);
  small.add(longer);
  EXPECT_LE(small.num_bytes(), 20000U);
  EXPECT_LE(small.num_tokens(), 300);
  EXPECT_EQ(proposed(small, Tokens(longer.end() - 10, longer.end() - 2), 2),
            Tokens(longer.end() - 2, longer.end()))
      << "its end is remembered";

  for (const SuffixMemoryOptions& none :
       {SuffixMemoryOptions{.max_bytes = 0}, SuffixMemoryOptions{.max_bytes = 300},
        SuffixMemoryOptions{.max_tokens = 0}, SuffixMemoryOptions{.max_tokens = 1}}) {
    SuffixMemory nothing(none);
    nothing.add(longer);
    EXPECT_EQ(nothing.num_bytes(), 0U);
    EXPECT_EQ(proposed(nothing, longer), Tokens{});
  }
  testing::expect_invalid({"min_match is 0"}, [] { SuffixMemory({.min_match = 0}); });
  testing::expect_invalid({"max_match 1"}, [] { SuffixMemory({.min_match = 2, .max_match = 1}); });
}

TEST(SuffixMemory, IsEmptyOrWholeWhereMemoryRunsOut) {
  int num_failed = 0;
  for (int64_t at = 1;; ++at) {
    SuffixMemory memory({.max_bytes = 50000});
    SuffixMemory::Cursor cursor = memory.begin();
    Tokens answer;
    int64_t left = at;
    bool has_failed = false;
    for (int round = 0; round < 40; ++round) {
      answer = random_tokens(50, 100);
      try {
        const testing::FailingAllocation failing(left);
        memory.add(answer);
      } catch (const std::bad_alloc&) {
        has_failed = true;
        ASSERT_EQ(memory.num_tokens(), 0);
        ASSERT_EQ(memory.num_bytes(), 0U);
      }
      memory.append(cursor, answer);
    }
    ASSERT_LE(memory.num_bytes(), 50000U);
    ASSERT_EQ(proposed(memory, Tokens(answer.begin(), answer.begin() + 40), 3),
              Tokens(answer.begin() + 40, answer.begin() + 43));
    num_failed += has_failed ? 1 : 0;
    if (!has_failed) break;
  }
  EXPECT_GE(num_failed, 6);
}

TEST(SuffixMemory, AllocatesNothingOnceItIsFull) {
  SuffixMemory memory({.max_bytes = 50000});
  const auto add_some = [&memory](int num_answers) {
    std::vector<Tokens> answers;
    for (int i = 0; i < num_answers; ++i) answers.push_back(random_tokens(50, 100));
    const int64_t before = testing::num_heap_allocations();
    for (const Tokens& answer : answers) memory.add(answer);
    return testing::num_heap_allocations() - before;
  };
  EXPECT_GT(add_some(100), 0);
  EXPECT_EQ(add_some(100), 0);
}

}  // namespace
}  // namespace heddle
