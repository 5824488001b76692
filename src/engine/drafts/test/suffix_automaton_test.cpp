#include "engine/drafts/suffix_automaton.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heap_count.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle {
namespace {

using Tokens = std::vector<int32_t>;
constexpr size_t kNoLimit = size_t{1} << 40;

void add(SuffixAutomaton& automaton, const Tokens& text) {
  automaton.begin_text();
  for (const int32_t token : text) ASSERT_TRUE(automaton.append(token));
}

/// The definitions, with plain loops.
struct Texts {
  std::vector<Tokens> texts;

  /// The occurrences of `part`, as its ends in each text.
  [[nodiscard]] std::vector<std::pair<size_t, size_t>> ends_of(
      std::span<const int32_t> part) const {
    std::vector<std::pair<size_t, size_t>> ends;
    for (size_t i = 0; i < texts.size(); ++i) {
      for (size_t end = part.size(); end <= texts[i].size(); ++end) {
        if (std::equal(part.begin(), part.end(),
                       texts[i].begin() + std::ptrdiff_t(end - part.size()))) {
          ends.emplace_back(i, end);
        }
      }
    }
    return ends;
  }
  [[nodiscard]] size_t longest_suffix(std::span<const int32_t> context, size_t max_match) const {
    size_t length = std::min(context.size(), max_match);
    while (length > 0 && ends_of(context.last(length)).empty()) --length;
    return length;
  }
  [[nodiscard]] SuffixAutomaton::Next next(std::span<const int32_t> suffix) const {
    struct Counted {
      int32_t count = 0;
      std::pair<size_t, size_t> last{};
    };
    std::map<int32_t, Counted> counts;
    const auto ends = ends_of(suffix);
    for (const auto& end : ends) {
      if (end.second == texts[end.first].size()) continue;
      Counted& counted = counts[texts[end.first][end.second]];
      ++counted.count;
      counted.last = end;
    }
    SuffixAutomaton::Next best{.num_occurrences = static_cast<int32_t>(ends.size())};
    std::pair<size_t, size_t> last{};
    for (const auto& [token, counted] : counts) {
      if (counted.count < best.count || (counted.count == best.count && counted.last < last))
        continue;
      best.token = token;
      best.count = counted.count;
      last = counted.last;
    }
    return best;
  }
};

Tokens random_text(int64_t max_tokens, int32_t num_kinds) {
  Tokens text(static_cast<size_t>(testing::random_int(0, max_tokens)));
  for (int32_t& token : text) token = static_cast<int32_t>(testing::random_int(0, num_kinds - 1));
  return text;
}

void expect_as_defined(const SuffixAutomaton& automaton, SuffixAutomaton::Match& match,
                       const Texts& reference, const Tokens& context, size_t max_match) {
  const size_t length = reference.longest_suffix(context, max_match);
  ASSERT_EQ(static_cast<size_t>(match.length), length);
  const SuffixAutomaton::Next next = automaton.next(match);
  if (length == 0) {
    ASSERT_EQ(next.count, 0);
    return;
  }
  const SuffixAutomaton::Next expected =
      reference.next(std::span<const int32_t>(context).last(length));
  ASSERT_EQ(next.num_occurrences, expected.num_occurrences);
  ASSERT_EQ(next.count, expected.count);
  if (expected.count > 0) {
    ASSERT_EQ(next.token, expected.token);
  }
}

TEST(SuffixAutomaton, FindsSuffixesAndTheirNextTokensAsDefined) {
  const int num_rounds = testing::small_or(20, 200);
  for (int round = 0; round < num_rounds; ++round) {
    const auto max_match = static_cast<int>(testing::random_int(1, 8));
    const auto num_kinds = static_cast<int32_t>(testing::random_int(1, 5));
    SuffixAutomaton automaton(max_match, kNoLimit);
    Texts reference;
    // A match that goes on while texts are added, and one that begins after all of them.
    SuffixAutomaton::Match running;
    Tokens running_context;
    for (int64_t i = testing::random_int(1, 6); i > 0; --i) {
      reference.texts.push_back(random_text(30, num_kinds));
      add(automaton, reference.texts.back());
      for (int32_t token : random_text(12, num_kinds)) {
        // What came before may be longer in a text that was added since: that is not looked for.
        const size_t before = static_cast<size_t>(running.length);
        running_context.push_back(token);
        automaton.advance(running, token);
        const auto last = std::span<const int32_t>(running_context)
                              .last(std::min(running_context.size(), before + 1));
        ASSERT_EQ(static_cast<size_t>(running.length),
                  reference.longest_suffix(last, static_cast<size_t>(max_match)));
        if (running.length == 0) continue;
        const auto expected = reference.next(last.last(static_cast<size_t>(running.length)));
        const auto next = automaton.next(running);
        ASSERT_EQ(next.num_occurrences, expected.num_occurrences);
        ASSERT_EQ(next.count, expected.count);
      }
    }
    SuffixAutomaton::Match match;
    Tokens context;
    for (const int32_t token : random_text(60, num_kinds)) {
      context.push_back(token);
      automaton.advance(match, token);
      ASSERT_NO_FATAL_FAILURE(
          expect_as_defined(automaton, match, reference, context, static_cast<size_t>(max_match)));
    }
  }
}

TEST(SuffixAutomaton, TakesAnyTokens) {
  const int32_t low = std::numeric_limits<int32_t>::min(),
                high = std::numeric_limits<int32_t>::max();
  SuffixAutomaton automaton(8, kNoLimit);
  add(automaton, {0, high, low, 0, high, -1, 0});
  SuffixAutomaton::Match match;
  automaton.advance(match, 0);
  EXPECT_EQ(automaton.next(match).token, high);
  EXPECT_EQ(automaton.next(match).count, 2);
  EXPECT_EQ(automaton.next(match).num_occurrences, 3);
  automaton.advance(match, high);
  EXPECT_EQ(automaton.next(match).token, -1) << "of two the last";
  automaton.advance(match, low);
  EXPECT_EQ(match.length, 3);
  EXPECT_EQ(automaton.next(match).token, 0);
}

TEST(SuffixAutomaton, CountsATokenThatRepeats) {
  const int32_t length = testing::small_or(2000, 100000);
  SuffixAutomaton automaton(16, kNoLimit);
  add(automaton, Tokens(static_cast<size_t>(length), 7));
  SuffixAutomaton::Match match;
  for (int i = 0; i < 40; ++i) automaton.advance(match, 7);
  EXPECT_EQ(match.length, 16);
  EXPECT_EQ(automaton.next(match).token, 7);
  EXPECT_EQ(automaton.next(match).num_occurrences, length - 15);
  EXPECT_EQ(automaton.next(match).count, length - 16);
}

TEST(SuffixAutomaton, TakesNoMemoryForWhatItHas) {
  const Tokens text = random_text(500, 50);
  SuffixAutomaton automaton(32, kNoLimit);
  add(automaton, text);
  const size_t before = automaton.num_bytes();
  for (int i = 0; i < 100; ++i) {
    add(automaton, text);
  }
  EXPECT_EQ(automaton.num_bytes(), before);
  EXPECT_EQ(automaton.num_tokens(), 101 * std::ssize(text));
}

TEST(SuffixAutomaton, StaysWithinItsBytesAndSaysThatItIsFull) {
  constexpr size_t kMaxBytes = 100000;
  SuffixAutomaton automaton(32, kMaxBytes);
  automaton.begin_text();
  Tokens text;
  while (true) {
    text.push_back(static_cast<int32_t>(testing::random_int(0, 20)));
    if (!automaton.append(text.back())) break;
    ASSERT_LE(automaton.num_bytes(), kMaxBytes);
    ASSERT_LT(text.size(), 1000000U);
  }
  EXPECT_GT(automaton.num_bytes(), kMaxBytes * 9 / 10);
  EXPECT_GT(text.size(), 800U);
  text.pop_back();
  EXPECT_EQ(automaton.num_tokens(), std::ssize(text));
  SuffixAutomaton::Match match;
  for (size_t i = text.size() - 40; i + 1 < text.size(); ++i) automaton.advance(match, text[i]);
  EXPECT_EQ(match.length, 32);
  EXPECT_EQ(automaton.next(match).token, text.back()) << "nothing has changed";

  automaton.clear();
  EXPECT_GT(automaton.num_bytes(), 0U);
  EXPECT_TRUE(automaton.append(1));
  automaton.release();
  EXPECT_EQ(automaton.num_bytes(), 0U);
  match = {};
  automaton.advance(match, 3);
  EXPECT_EQ(match.length, 0);
  EXPECT_TRUE(automaton.append(3));
  automaton.advance(match, 3);
  EXPECT_EQ(match.length, 1);
  EXPECT_FALSE(SuffixAutomaton(4, 100).append(3));
}

TEST(SuffixAutomaton, IsUnchangedWhereMemoryRunsOut) {
  SuffixAutomaton automaton(4, kNoLimit);
  Tokens text;
  automaton.begin_text();
  int64_t num_failed = 0;
  for (int64_t i = 0; i < 3000; ++i) {
    text.push_back(static_cast<int32_t>(testing::random_int(0, 100)));
    for (int64_t at = 1;; ++at, ++num_failed) {  // every allocation of the token fails once
      int64_t left = at;
      try {
        const testing::FailingAllocation failing(left);
        ASSERT_TRUE(automaton.append(text.back()));
        break;
      } catch (const std::bad_alloc&) {
        ASSERT_EQ(automaton.num_tokens(), i);
      }
    }
  }
  EXPECT_GE(num_failed, 3 * 4) << "three each time that it grows";
  Texts reference{{text}};
  SuffixAutomaton::Match match;
  const Tokens context(text.begin() + 500, text.begin() + 510);
  for (const int32_t token : context) automaton.advance(match, token);
  expect_as_defined(automaton, match, reference, context, 4);
}

}  // namespace
}  // namespace heddle
