#include "chat/commands.h"

#include <gtest/gtest.h>

namespace heddle::app {
namespace {

using Kind = ChatLine::Kind;
using Names = std::vector<std::string>;

const Names kKnown = {"base", "sql", "slug"};

TEST(ChatLine, IsAPromptACommandOrEmpty) {
  EXPECT_EQ(parse_chat_line("").kind, Kind::kEmpty);
  EXPECT_EQ(parse_chat_line(" \t").kind, Kind::kEmpty);
  const ChatLine prompt = parse_chat_line(" /not a command ");
  EXPECT_EQ(prompt.kind, Kind::kPrompt);
  EXPECT_EQ(prompt.text, " /not a command ");
  const ChatLine slash = parse_chat_line("//etc");
  EXPECT_EQ(slash.kind, Kind::kPrompt);
  EXPECT_EQ(slash.text, "/etc");
  const ChatLine command = parse_chat_line("/system  one\ntwo ");
  EXPECT_EQ(command.kind, Kind::kCommand);
  EXPECT_EQ(command.command, "/system");
  EXPECT_EQ(command.text, "one\ntwo");
  EXPECT_EQ(parse_chat_line("/").command, "/");
}

TEST(NearestCommand, ForgivesSlipsAndTakesBeginnings) {
  EXPECT_EQ(nearest_command("/adpater"), "/adapter");
  EXPECT_EQ(nearest_command("/exit"), "/quit");
  EXPECT_EQ(nearest_command("/comp"), "/compare");
  EXPECT_EQ(nearest_command("/"), "");
  EXPECT_EQ(nearest_command("/something"), "");
}

TEST(Comparison, NamesAreJoinedByCommas) {
  const auto expect = [](const std::string& text, const Names& names, const std::string& prompt) {
    const Comparison comparison = parse_comparison(text, kKnown);
    EXPECT_EQ(comparison.names, names) << text;
    EXPECT_EQ(comparison.prompt, prompt) << text;
  };
  expect("a prompt", {}, "a prompt");
  expect("sql is a word here", {}, "sql is a word here");
  expect("sql,base the prompt", {"sql", "base"}, "the prompt");
  expect("sql,base,sql x", {"sql", "base"}, "x");
  expect("sql,missing x", {"sql", "missing"}, "x");
  expect("sql, x", {}, "sql, x");
  expect("one,two x", {}, "one,two x");
  expect("sql,base", {"sql", "base"}, "");
  expect("", {}, "");
}

TEST(Completion, GivesCommandsThenNames) {
  const auto complete = [](const std::string& line) { return complete_chat_line(line, kKnown); };
  EXPECT_EQ(complete("/re"), (Names{"/retry", "/reset"}));
  EXPECT_EQ(complete("/").size(), chat_commands().size());
  EXPECT_EQ(complete(""), Names{});
  EXPECT_EQ(complete("hello"), Names{});
  EXPECT_EQ(complete("/adapter "), (Names{"/adapter base", "/adapter sql", "/adapter slug"}));
  EXPECT_EQ(complete("/adapter sq"), Names{"/adapter sql"});
  EXPECT_EQ(complete("/compare sql,b"), Names{"/compare sql,base"});
  EXPECT_EQ(complete("/system s"), Names{});
}

}  // namespace
}  // namespace heddle::app
