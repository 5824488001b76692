#include "chat/columns.h"

#include <clocale>

#include <gtest/gtest.h>

namespace heddle::app {
namespace {

using Lines = std::vector<std::string>;

TEST(Wrap, CutsBetweenWordsAndWithinLongOnes) {
  EXPECT_EQ(wrap("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrap("one two three", 8), (Lines{"one two", "three"}));
  EXPECT_EQ(wrap("abcdefgh ij", 3), (Lines{"abc", "def", "gh", "ij"}));
  EXPECT_EQ(wrap("a\n\nb\n", 5), (Lines{"a", "", "b", ""}));
  EXPECT_EQ(wrap("", 5), (Lines{""}));
  EXPECT_EQ(wrap("\tx", 8), (Lines{"    x"}));
}

TEST(Wrap, CountsCellsAndNotBytes) {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  EXPECT_EQ(wrap("éééé", 2), (Lines{"éé", "éé"}));
  EXPECT_EQ(wrap("織機織機", 4), (Lines{"織機", "織機"}));
  EXPECT_EQ(wrap("\xFF\xFE", 1).size(), 2u) << "no characters, but not lost";
}

TEST(Columns, AsManyAsFitUpToThree) {
  EXPECT_EQ(columns_that_fit(40, 5), 1);
  EXPECT_EQ(columns_that_fit(74, 5), 1);
  EXPECT_EQ(columns_that_fit(75, 5), 2);
  EXPECT_EQ(columns_that_fit(114, 5), 3);
  EXPECT_EQ(columns_that_fit(500, 5), 3);
  EXPECT_EQ(columns_that_fit(500, 2), 2);
  EXPECT_EQ(columns_that_fit(0, 2), 1);
}

TEST(Columns, StandSideBySideInBands) {
  const std::string text =
      side_by_side({{"a", "one two three"}, {"b", "x"}, {"c", "last"}}, 2, 19, "<", ">");
  EXPECT_EQ(text,
            "<a       > | <b>\n"
            "one two  | x\n"
            "three    | \n"
            "\n"
            "<c>\n"
            "last\n");
}

}  // namespace
}  // namespace heddle::app
