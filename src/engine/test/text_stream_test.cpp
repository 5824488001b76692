#include "engine/text/text_stream.h"

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
  TextStream before({"END", "N"}), behind({"END", "N"}, true);
  EXPECT_EQ(before.push("one EN"), "one E") << "the stop string that comes first";
  EXPECT_EQ(before.met(), "N");
  EXPECT_EQ(behind.push("one E"), "one ");
  EXPECT_EQ(behind.met(), "");
  EXPECT_EQ(behind.push("NDs"), "END");
  EXPECT_EQ(behind.met(), "END");
  EXPECT_TRUE(behind.stopped());
}

/// Whatever pieces it comes in, the text ends with the stop string that begins first in what has
/// come, and behind none is anything told.
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

}  // namespace
}  // namespace heddle
