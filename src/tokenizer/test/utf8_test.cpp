#include "tokenizer/utf8.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "random.h"

namespace heddle::tokenizer {
namespace {

struct Recorded {
  std::string bytes, text;
};

/// Broken UTF-8 with what Python's bytes.decode("utf-8", errors="replace") makes of it.
std::vector<Recorded> recorded_strings() {
  const auto file =
      nlohmann::json::parse(std::ifstream(HEDDLE_SOURCE_DIR "/tests/fixtures/tokenizer/utf8.json"));
  std::vector<Recorded> strings;
  for (const auto& [hex, text] : file.get<std::vector<std::pair<std::string, std::string>>>()) {
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2) {
      bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    strings.push_back({bytes, text});
  }
  return strings;
}

TEST(Utf8, ReplacesWhatPythonReplaces) {
  const auto strings = recorded_strings();
  ASSERT_EQ(strings.size(), 200u);
  for (const auto& [bytes, text] : strings) EXPECT_EQ(replace_invalid_utf8(bytes), text);
}

TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(replace_invalid_utf8(""), "");
  EXPECT_EQ(replace_invalid_utf8("añ€😀"), "añ€😀");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), "\uFFFD");  // cut short: one
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98z"), "\uFFFDz");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(replace_invalid_utf8("\xC0\x80"), "\uFFFD\uFFFD");            // longer than needed
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x80\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82\xE2\x82\xAC"), "\uFFFD€");
}

TEST(Utf8, KnowsTheFirstAndLastCharacterOfEachLength) {
  for (const char* text :
       {"\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(replace_invalid_utf8(text), text);
  }
  // One before the first, one after the last: every byte of them is replaced for itself.
  for (const char* text :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
        "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80"}) {
    std::string want;
    for (size_t i = 0; i < std::string_view(text).size(); ++i) want += "\uFFFD";
    EXPECT_EQ(replace_invalid_utf8(text), want) << ::testing::PrintToString(text);
  }
}

TEST(Utf8Stream, GivesTheSameTextHoweverTheBytesArrive) {
  for (const auto& [bytes, text] : recorded_strings()) {
    Utf8Stream stream;
    for (int repeat = 0; repeat < 2; ++repeat) {  // finish leaves a stream as new
      std::string got;
      for (size_t begin = 0; begin < bytes.size();) {
        const auto size = static_cast<size_t>(testing::random_int(0, 3));
        got += stream.push(std::string_view(bytes).substr(begin, size));
        begin += size;
      }
      EXPECT_EQ(got + stream.finish(), text);
    }
  }
}

TEST(Utf8Stream, HoldsBackOnlyWhatIsIncomplete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("ab\xF0\x9F"), "ab");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80z"), "😀z");
  EXPECT_EQ(stream.push("\xE2\x82"), "");
  EXPECT_EQ(stream.push("q"), "\uFFFDq");  // broken: known as soon as q comes
  EXPECT_EQ(stream.push("\xC3"), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace heddle::tokenizer
