#include "request_json/shown.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::app {
namespace {

TEST(Shown, KeepsTextAndEscapesWhatATerminalWouldObey) {
  EXPECT_EQ(shown("a \"b\" \\c é 中"), "a \"b\" \\c é 中");
  EXPECT_EQ(shown("\x1b[31m\n\t\x7f"), "\\u001b[31m\\n\\t\\u007f");
  EXPECT_EQ(shown("\xc2\x9b \xc2\xa0"), "\\u009b \xc2\xa0");
  EXPECT_EQ(shown("\u2028\u202E\u2069 \u2014\u20AC"), "\\u2028\\u202e\\u2069 \u2014\u20AC");
  EXPECT_EQ(shown("a\xff"), "a\uFFFD");
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(shown(std::string(121, 'x')), std::string(120, 'x') + "...");
  EXPECT_EQ(shown("aé", 2), "a...");  // never half a character
}

TEST(Shown, QuotesAsJsonDoes) {
  EXPECT_EQ(quote("a\"b\n\x7f"), "\"a\\\"b\\n\\u007f\"");
  EXPECT_EQ(quote(std::string(61, 'x')), '"' + std::string(60, 'x') + "...\"");
}

TEST(Shown, KnowsUtf8) {
  for (const char* text : {"", "abc", "\xC2\x80", "\xC3\xA9", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
    EXPECT_TRUE(is_utf8("x" + std::string(text) + "y")) << text;
  }
  for (const char* text :
       {"\x80", "\xC1\xBF", "\xC3", "\xC3z", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xF0\x90\x80"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
    EXPECT_FALSE(is_utf8("x" + std::string(text) + "y")) << text;
  }
}

}  // namespace
}  // namespace heddle::app
