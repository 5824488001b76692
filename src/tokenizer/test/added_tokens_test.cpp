#include "tokenizer/added_tokens.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle::tokenizer {
namespace {

/// The definition: at each place try every token, the longest that fits counts.
std::vector<AddedTokens::Match> find_plainly(const std::vector<std::string>& tokens,
                                             std::string_view text) {
  std::vector<AddedTokens::Match> matches;
  for (size_t begin = 0; begin < text.size();) {
    std::optional<size_t> longest;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool fits = !tokens[i].empty() && text.substr(begin).starts_with(tokens[i]);
      if (fits && (!longest || tokens[i].size() > tokens[*longest].size())) longest = i;
    }
    if (!longest) {
      ++begin;
      continue;
    }
    const size_t end = begin + tokens[*longest].size();
    matches.push_back({begin, end, static_cast<int32_t>(*longest)});
    begin = end;
  }
  return matches;
}

std::string random_word(int64_t least, int64_t most) {
  std::string word;
  for (int64_t n = testing::random_int(least, most); n > 0; --n) {
    word += static_cast<char>('a' + testing::random_int(0, 1));
  }
  return word;
}

TEST(AddedTokens, FindsTheLeftmostThenLongest) {
  size_t num_matches = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> texts;  // of two letters, so that many begin or end alike, or twice
    for (int64_t n = testing::random_int(0, 8); n > 0; --n) texts.push_back(random_word(0, 6));
    std::vector<AddedTokens::Token> tokens;
    for (size_t i = 0; i < texts.size(); ++i) {
      tokens.push_back({texts[i], static_cast<int32_t>(i)});
    }
    const AddedTokens added(tokens);
    for (int i = 0; i < 10; ++i) {
      const std::string text = random_word(0, 30);
      const auto got = added.find_all(text), want = find_plainly(texts, text);
      ASSERT_EQ(got.size(), want.size()) << text;
      for (size_t m = 0; m < want.size(); ++m) {
        EXPECT_EQ(got[m].begin, want[m].begin) << text;
        EXPECT_EQ(got[m].end, want[m].end) << text;
        EXPECT_EQ(got[m].id, want[m].id) << text;
      }
      num_matches += want.size();
    }
  }
  EXPECT_GT(num_matches, 1000u);
}

TEST(AddedTokens, NeverMatchWhatIsNoUtf8) {
  const AddedTokens added({{"\xC3", 1}, {"\xE2\x82", 2}, {"\xE2\x82\xAC", 3}, {"", 4}});
  const auto matches = added.find_all("\xC3\xA9 \xE2\x82\xAC");
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].id, 3);
  EXPECT_EQ(matches[0].begin, 3u);
  EXPECT_EQ(matches[0].end, 6u);
}

}  // namespace
}  // namespace heddle::tokenizer
