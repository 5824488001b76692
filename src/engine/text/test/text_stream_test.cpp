#include "engine/text/text_stream.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle {
namespace {

TEST(TextStream, HoldsAnIncompleteCharacterBack) {
  TextStream stream({});
  EXPECT_EQ(stream.push("a\xE2\x82"), "a");
  EXPECT_EQ(stream.push("\xAC!"), "\xE2\x82\xAC!");
  EXPECT_EQ(stream.push("\xE2"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(TextStream, EndsBeforeTheFirstStopString) {
  TextStream stream({"END", "\n\n"});
  EXPECT_EQ(stream.push("one\n"), "one");
  EXPECT_EQ(stream.push("two E"), "\ntwo ");
  EXPECT_EQ(stream.push("N"), "");
  EXPECT_EQ(stream.push("d EN"), "ENd ");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.push("D three"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, TellsWhichStopStringItMetAndKeepsIt) {
  TextStream before({"END", "N"}), after({"END", "N"}, true);
  EXPECT_EQ(before.push("one EN"), "one E") << "the stop string that comes first";
  EXPECT_EQ(before.met(), "N");
  EXPECT_EQ(after.push("one E"), "one ");
  EXPECT_EQ(after.met(), "");
  EXPECT_EQ(after.push("NDs"), "END");
  EXPECT_EQ(after.met(), "END");
  EXPECT_TRUE(after.stopped());
}

/// Whatever pieces it comes in, the text ends with the stop string that begins first in what has
/// come, and after none is anything reported.
TEST(TextStream, PiecesDoNotChangeWhichOfSeveralStopStringsIsKept) {
  const std::string text = "one two three four";
  const std::vector<std::string> stop = {"four", "two", "ee f", "thr"};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    for (const bool keeps : {false, true}) {
      TextStream stream(stop, keeps);
      std::string got;
      for (size_t at = 0; at < text.size(); at += piece) got += stream.push(text.substr(at, piece));
      got += stream.finish();
      EXPECT_EQ(got, keeps ? "one two" : "one ") << piece;
      EXPECT_EQ(stream.met(), "two");
    }
  }
}

TEST(TextStream, GivesAHeldBeginningWhenTheAnswerEnds) {
  TextStream stream({"abc"});
  EXPECT_EQ(stream.push("xab"), "x");
  EXPECT_EQ(stream.finish(), "ab");
}

TEST(TextStream, StopStringsMatchWhatIsHidden) {
  TextStream whole({"<|end|>"}), part({"d\n<|e"}), over({"<|a|><|b|>"}), kept({"\n<|end|>"}, true);
  EXPECT_EQ(whole.push("Good"), "Good");
  EXPECT_EQ(whole.push_hidden("<|end|>"), "");
  EXPECT_TRUE(whole.stopped());
  EXPECT_EQ(whole.met(), "<|end|>");

  EXPECT_EQ(part.push("God"), "Go");
  EXPECT_EQ(part.push("\n"), "") << "what may become a stop string is held";
  EXPECT_EQ(part.push_hidden("<|end|>"), "");
  EXPECT_TRUE(part.stopped());

  EXPECT_EQ(over.push("1"), "1");
  EXPECT_EQ(over.push_hidden("<|a|>"), "");
  EXPECT_EQ(over.push("2"), "2");
  EXPECT_EQ(over.push_hidden("<|a|>"), "");
  EXPECT_FALSE(over.stopped());
  EXPECT_EQ(over.push_hidden("<|b|>"), "");
  EXPECT_TRUE(over.stopped());

  EXPECT_EQ(kept.push("x\n"), "x");
  EXPECT_EQ(kept.push_hidden("<|end|>"), "\n<|end|>");
  EXPECT_EQ(kept.finish(), "");
}

TEST(TextStream, HiddenTextIsNotShownAndDoesNotPartStopStrings) {
  TextStream stream({"abc", "<|end|>!"});
  EXPECT_EQ(stream.push("xa"), "x");
  EXPECT_EQ(stream.push_hidden("<|end|>"), "");
  EXPECT_EQ(stream.push("b"), "") << "the shown text ends with ab";
  EXPECT_EQ(stream.push("d"), "abd");
  EXPECT_EQ(stream.push("ab"), "");
  EXPECT_EQ(stream.push_hidden("<|end|>"), "");
  EXPECT_EQ(stream.push("c"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.met(), "abc");

  TextStream held({"<|end|>!"});
  EXPECT_EQ(held.push_hidden("<|end|>"), "");
  EXPECT_EQ(held.push("\xC3"), "");
  EXPECT_EQ(held.push_hidden("<|end|>"), "");
  EXPECT_EQ(held.push("\xA9"), "\xC3\xA9") << "a character goes on after what is hidden";
  EXPECT_EQ(held.finish(), "");
}

TEST(TextStream, NothingIsSearchedBeforeTheLeastNumberOfTokens) {
  TextStream stream({"<|end|>", "b"});
  EXPECT_EQ(stream.push("ab", false), "ab");
  EXPECT_EQ(stream.push_hidden("<|end|>", false), "");
  EXPECT_EQ(stream.push("a"), "a");
  EXPECT_EQ(stream.push("b"), "");
  EXPECT_EQ(stream.met(), "b");
}

/// A text of random pieces, shown and hidden, against a search in the whole of it.
TEST(TextStream, EndsWhereTheTextWithWhatIsHiddenDoes) {
  for (int round = 0; round < 2000; ++round) {
    const auto word = [](int most) {
      std::string text;
      for (int64_t n = testing::random_int(1, most); n > 0; --n) {
        text += static_cast<char>('a' + testing::random_int(0, 1));
      }
      return text;
    };
    const std::string stop = word(5);
    TextStream stream({stop});
    std::string all, shown, got;
    std::vector<size_t> shown_before = {0};  // by bytes of `all`
    bool ends = false;
    while (!ends && all.size() < 24) {
      const std::string piece = word(4);
      const bool is_hidden = testing::random_int(0, 2) == 0;
      got += is_hidden ? stream.push_hidden(piece) : stream.push(piece);
      all += piece;
      if (!is_hidden) shown += piece;
      for (size_t i = 0; i < piece.size(); ++i) {
        shown_before.push_back(shown_before.back() + (is_hidden ? 0 : 1));
      }
      const size_t in_all = all.find(stop), in_shown = shown.find(stop);
      ends = in_all != std::string::npos || in_shown != std::string::npos;
      ASSERT_EQ(stream.stopped(), ends) << all << " " << shown << " " << stop;
      if (!ends) continue;
      const size_t end =
          std::min(in_all == std::string::npos ? in_all : shown_before[in_all], in_shown);
      ASSERT_EQ(got, shown.substr(0, end)) << all << " " << shown << " " << stop;
    }
    got += stream.finish();
    if (!ends) {
      ASSERT_EQ(got, shown) << stop;
    }
  }
}

TEST(TextStream, TakesTimeInProportionToTheText) {
  constexpr size_t kBytes = 1 << 20;
  TextStream stream({std::string(kBytes, 'a') + "b"});
  std::string got;
  for (size_t i = 0; i < kBytes / 64; ++i) {
    got += stream.push(std::string(63, 'a') + (i % 64 == 63 ? "c" : "a"));
  }
  EXPECT_EQ(got.size(), kBytes) << "what was held is given when a c comes";
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, PiecesDoNotChangeTheText) {
  const std::string text = "aabaabaaabab aab\xC3\xA9 abaab";
  for (int round = 0; round < 500; ++round) {
    const std::string stop = testing::pick<std::string>({"aaab", "abab", "b\xC3", "zz", " abaab"});
    TextStream stream({stop});
    std::string got;
    for (size_t at = 0; at < text.size();) {
      const size_t n = static_cast<size_t>(testing::random_int(1, 5));
      got += stream.push(std::string_view(text).substr(at, n));
      at += n;
    }
    got += stream.finish();
    EXPECT_EQ(got, text.substr(0, text.find(stop)));
    EXPECT_EQ(stream.stopped(), text.find(stop) != std::string::npos);
  }
}

/// TextStream by its definition: all that is held is searched anew for each piece.
class PlainStream {
 public:
  explicit PlainStream(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  std::string push(const std::string& piece, bool at_end) {
    if (stopped_) return {};
    held_ += piece;
    size_t first = std::string::npos, keep = 0;
    for (const std::string& stop : stop_) first = std::min(first, held_.find(stop));
    stopped_ = first != std::string::npos;
    if (stopped_) return held_.substr(0, first);
    for (const std::string& stop : stop_) {
      for (size_t n = 1; !at_end && n < stop.size() && n <= held_.size(); ++n) {
        if (held_.ends_with(stop.substr(0, n))) keep = std::max(keep, n);
      }
    }
    const std::string text = held_.substr(0, held_.size() - keep);
    held_.erase(0, text.size());
    return text;
  }

 private:
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

std::string random_letters(int64_t longest) {
  std::string text(static_cast<size_t>(testing::random_int(1, longest)), 'a');
  for (char& c : text) c = testing::pick<char>({'a', 'a', 'a', 'b'});
  return text;
}

TEST(TextStream, FindsStopStringsThatRepeatThemselves) {
  int num_stopped = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stop;
    for (int i = 0; i < 3; ++i)
      stop.push_back(random_letters(9) + testing::pick<std::string>({"", "b"}));
    TextStream stream(stop);
    PlainStream plain(stop);
    for (int i = 0; i < 12; ++i) {
      const std::string piece = random_letters(3);
      ASSERT_EQ(stream.push(piece), plain.push(piece, false)) << "round " << round;
    }
    num_stopped += stream.stopped() ? 1 : 0;
    ASSERT_EQ(stream.finish(), plain.push("", true));
  }
  EXPECT_GT(num_stopped, 500);
  EXPECT_LT(num_stopped, 2000);
}

TEST(TextStream, WhatIsNotSearchedBeginsNoStopString) {
  TextStream stream({"abc"});
  EXPECT_EQ(stream.push("ab", false), "ab");
  EXPECT_EQ(stream.push("cab"), "c");
  EXPECT_EQ(stream.push("c"), "");
  EXPECT_TRUE(stream.stopped());
}

}  // namespace
}  // namespace heddle
