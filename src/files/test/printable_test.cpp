#include "files/printable.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::files {
namespace {

TEST(Printable, KeepsTextAndShowsEveryOtherByte) {
  EXPECT_EQ(printable("blk.0.attn_q.weight"), "blk.0.attn_q.weight");
  EXPECT_EQ(printable("h\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80"),
            "h\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80");
  EXPECT_EQ(printable(std::string_view("a\n\t\0\x7f", 5)), "a\\x0a\\x09\\x00\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");  // a control character of its own
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0");
  // Ends of a line and a paragraph, and what turns the direction of text.
  for (const char* turning : {"\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xa8", "\xe2\x80\xa9",
                              "\xe2\x80\xaa", "\xe2\x81\xa6", "\xe2\x81\xa9"}) {
    EXPECT_EQ(printable(turning).substr(0, 4), "\\xe2") << printable(turning);
  }
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");
  EXPECT_EQ(printable("\xe2\x80\x94 \xe2\x82\xac"), "\xe2\x80\x94 \xe2\x82\xac");
  // Cut, overlong, surrogate, past the last code point, lone continuation.
  EXPECT_EQ(printable("\xe4\xb8"), "\\xe4\\xb8");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");
  EXPECT_EQ(printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");
  EXPECT_EQ(printable("\xf0\x80\x80\xaf"), "\\xf0\\x80\\x80\\xaf");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\x80"), "\\x80");
  EXPECT_EQ(printable("\xc1\xbf"), "\\xc1\\xbf");
  EXPECT_EQ(printable("\xe0\x9f\xbf"), "\\xe0\\x9f\\xbf");
  EXPECT_EQ(printable("\xf0\x80\x80\x80"), "\\xf0\\x80\\x80\\x80");
  EXPECT_EQ(printable("\xf0\x8f\xbf\xbf"), "\\xf0\\x8f\\xbf\\xbf");
  EXPECT_EQ(printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
  // The first and last character of each length that is allowed.
  for (const char* text : {"\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(printable(text), text);
  }
  EXPECT_EQ(quote("a'b"), "'a'b'");
}

TEST(Printable, CutsWhatIsLong) {
  EXPECT_EQ(printable(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(printable(std::string(121, 'x')), std::string(120, 'x') + "...");
  EXPECT_LT(printable(std::string(100000, '\n')).size(), 130u);
}

}  // namespace
}  // namespace heddle::files
