#include "demo/answer_lines.h"

#include <algorithm>
#include <clocale>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include "chat/columns.h"

namespace heddle::app {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(FinishedLines, HaveBothAnswersSideBySide) {
  const auto lines = lines_of(finished_lines({"Slug: A b!", "slug", "A slug is\na snail.", "a-b"}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "Question: Slug: A b!");
  EXPECT_EQ(lines[1], "base model:" + std::string(27, ' ') + " | adapter slug:");
  EXPECT_EQ(lines[2], "A slug is a snail." + std::string(20, ' ') + " | a-b");
}

TEST(FinishedLines, CutAfterFourLinesAndStayWithin80Cells) {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  std::string text;
  for (int i = 0; i < 100; ++i) text += "w\u00F6rter ";
  const auto lines = lines_of(finished_lines({"q", "a", text, "\u7E54\u6A5F" + text}));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_TRUE(lines.back().ends_with(" ..."));
  for (const std::string& line : lines) EXPECT_LE(cells_of(line), kDemoWidth) << line;
}

TEST(FinishedLines, HaveNoControlCharacters) {
  const std::string text = finished_lines({"q\x1B[2J", "a", "\x1B]0;title\x07", ""});
  EXPECT_TRUE(std::ranges::none_of(text, [](char c) { return c == '\x1B' || c == '\x07'; }));
  EXPECT_NE(text.find("(nothing)"), std::string::npos);
}

TEST(RunningLines, AreOneOfEachQuestionWithTheEndsOfItsAnswers) {
  std::vector<DemoQuestion> questions(3);
  questions[1] = {"q", "a-name-that-is-too-long", std::string(200, 'b') + " end", "short"};
  const auto lines = lines_of(running_lines(questions));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[1].find("short"), std::string::npos);
  EXPECT_TRUE(lines[1].ends_with(" end") || lines[1].ends_with("end"));
  for (const std::string& line : lines) EXPECT_LE(cells_of(line), kDemoWidth);
}

}  // namespace
}  // namespace heddle::app
