#include "tokenizer/huggingface/pattern.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace heddle::tokenizer {
namespace {

/// The parts, matches in brackets.
std::string parts(const Pattern& pattern, std::string_view text) {
  std::string result;
  pattern.split(text, [&](size_t begin, size_t end, bool is_match) {
    const std::string part(text.substr(begin, end - begin));
    result += is_match ? "[" + part + "]" : part;
  });
  return result;
}

std::string found(const char* expression, std::string_view text) {
  return parts(Pattern::of_expression(expression, "x.json: pattern"), text);
}

std::string refusal(const std::string& expression) {
  const std::string message =
      testing::message_of([&] { (void)Pattern::of_expression(expression, "x.json: pattern"); });
  const std::string end = " is not supported", begin = ", and ";
  if (!message.starts_with("x.json: pattern is ") || !message.ends_with(end)) return message;
  const size_t at = message.rfind(begin) + begin.size();
  return message.substr(at, message.size() - at - end.size());
}

TEST(Pattern, FindsStrings) {
  EXPECT_EQ(parts(Pattern::of_string("aa"), "baaaab"), "b[aa][aa]b");
  EXPECT_EQ(parts(Pattern::of_string("."), "a.b"), "a[.]b");
  EXPECT_EQ(parts(Pattern::of_string("x"), ""), "");
}

TEST(Pattern, ReadsExpressionsAsOnigurumaDoes) {
  EXPECT_EQ(found(R"(\s)", "a\u0085\u00A0\u180E\u2003\u3000 \x1C"),
            "a[\u0085][\u00A0]\u180E[\u2003][\u3000][ ]\x1C");
  EXPECT_EQ(found(R"([^\S\n])", " \n\tx"), "[ ]\n[\t]x");
  EXPECT_EQ(found(R"(\S+)", "ab\u3000é "), "[ab]\u3000[é] ");
  EXPECT_EQ(found(R"(\d)", "1٣½a"), "[1][٣]½a");
  EXPECT_EQ(found(R"([\s-x])", "a-x "), "a[-][x][ ]");
  EXPECT_EQ(found(R"((?i:'s))", "'s'S'ſ's"), "['s]['S]['ſ]['s]");
  EXPECT_EQ(found(R"(\p{^L}\P{L}\p{Han})", "--中--a"), "[--中]--a");
  EXPECT_EQ(found(R"(\p{Han})", "。中"), "。[中]");  // the script, not Script_Extensions
  EXPECT_EQ(found(R"(a?+b++c*+)", "abbccbc"), "[abbcc][bc]");
  EXPECT_EQ(found("a$", "a\na"), "[a]\n[a]");
  EXPECT_EQ(found("a.", "a\nab\r"), "a\n[ab]\r");
  EXPECT_EQ(found("a.", "a\r"), "[a\r]");
  EXPECT_EQ(found(R"(\x{4E2D}\u4e2d\x41)", "中中A"), "[中中A]");
  EXPECT_EQ(found(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~])", "a]^b"), "a[]][^]b");
  EXPECT_EQ(found("b{2}c{1,}", "bbbccb"), "b[bbcc]b");
}

TEST(Pattern, StepsOverEmptyMatchesAsThePackageDoes) {
  EXPECT_EQ(found("a*", "baac"), "[]b[aa]c[]");
  EXPECT_EQ(found("(?=中)", "x中中"), "x[]中[]中");
}

TEST(Pattern, RefusesByNameWhatPcre2ReadsDifferently) {
  for (const auto& [expression, named] : std::vector<std::pair<std::string, std::string>>{
           {R"(\w+)", R"('\w' at its byte 0)"},
           {R"(a\b)", R"('\b' at its byte 1)"},
           {R"(\h)", R"('\h' at its byte 0)"},
           {R"((a)\1)", R"('\1' at its byte 3)"},
           {"^a", "'^' at its byte 0"},
           {"[a-z&&[^b]]", "'&&' at its byte 4"},
           {"[[:alpha:]]", "'[ within [' at its byte 1"},
           {"[]a]", "'[]' at its byte 1"},
           {"[a", "'[' at its byte 2"},
           {"a{2}+", "'}+' at its byte 4"},
           {"a{,3}", "'{' at its byte 1"},
           {"a+++", "'+' at its byte 3"},
           {"(?i)a", "'(?i)' at its byte 0"},
           {"(?m:a)", "'(?m:' at its byte 0"},
           {"(?<x>a)", "'(?<x' at its byte 0"},
           {"(*UCP)a", "'(*' at its byte 0"},
           {"a)", "')' at its byte 1"},
           {R"(\p{Alpha})", R"('\p{Alpha}' at its byte 0)"},
           {R"(\pL)", R"('\pL' at its byte 0)"},
           {R"(\xE9)", R"('\xE9' at its byte 0)"},
           {R"(\x{110000})", R"('\x{110000}' at its byte 0)"},
           {"(?i:ss)", "'ss' at its byte 5"},
           {"(?i:é)", "'(?i:' at its byte 4"},
           {"\\", R"('\' at its byte 0)"}}) {
    EXPECT_EQ(refusal(expression), named) << expression;
  }
  EXPECT_EQ(refusal("(a"), "x.json: pattern is '(a', which PCRE2 refuses with error 114");
  EXPECT_EQ(refusal(std::string(65537, 'a')),
            "x.json: pattern has 65537 bytes, at most 65536 are supported");
}

}  // namespace
}  // namespace heddle::tokenizer
