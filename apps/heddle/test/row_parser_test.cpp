#include "generate/row_parser.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace heddle::app {
namespace {

Request parsed(const std::string& text, const RowDefaults& given = {}) {
  Row row;
  parse_row(text, "line", given, row);
  return row.request;
}

bool are_equal(const SamplingOptions& a, const SamplingOptions& b) {
  return a.temperature == b.temperature && a.top_k == b.top_k && a.top_p == b.top_p &&
         a.min_p == b.min_p && a.seed == b.seed;
}

RowDefaults defaults() {
  RowDefaults defaults;
  defaults.answer.max_tokens = 9;
  defaults.answer.sampling = {
      .temperature = 0.5f, .top_k = 3, .top_p = 0.75f, .min_p = 0.25f, .seed = 40};
  return defaults;
}

TEST(ParseRow, EveryFieldOfSamplingReachesItsOwnPlace) {
  const auto with = [](const std::string& field) {
    return parsed(R"({"prompt": "x", )" + field + "}", defaults()).sampling;
  };
  SamplingOptions want = defaults().answer.sampling;
  EXPECT_TRUE(are_equal(parsed(R"({"prompt": "x"})", defaults()).sampling, want));
  EXPECT_TRUE(
      are_equal(with(R"("temperature": 1.25)"),
                {.temperature = 1.25f, .top_k = 3, .top_p = 0.75f, .min_p = 0.25f, .seed = 40}));
  EXPECT_TRUE(
      are_equal(with(R"("top_k": 7)"),
                {.temperature = 0.5f, .top_k = 7, .top_p = 0.75f, .min_p = 0.25f, .seed = 40}));
  EXPECT_TRUE(
      are_equal(with(R"("top_p": 0.125)"),
                {.temperature = 0.5f, .top_k = 3, .top_p = 0.125f, .min_p = 0.25f, .seed = 40}));
  EXPECT_TRUE(
      are_equal(with(R"("min_p": 0.5)"),
                {.temperature = 0.5f, .top_k = 3, .top_p = 0.75f, .min_p = 0.5f, .seed = 40}));
  EXPECT_TRUE(
      are_equal(with(R"("seed": -9)"),
                {.temperature = 0.5f, .top_k = 3, .top_p = 0.75f, .min_p = 0.25f, .seed = -9}));
}

TEST(ParseRow, LengthStopStringsAndPrompt) {
  const Request plain = parsed(R"({"prompt": "x"})", defaults());
  EXPECT_EQ(plain.max_tokens, 9);
  EXPECT_TRUE(plain.stop.empty());
  ASSERT_EQ(plain.messages.size(), 1u);
  EXPECT_EQ(plain.messages[0].role, "user");
  EXPECT_EQ(plain.messages[0].content, "x");
  const Request full =
      parsed(R"({"prompt": "x", "max_tokens": 4, "stop": ["a", "b"]})", defaults());
  EXPECT_EQ(full.max_tokens, 4);
  EXPECT_EQ(full.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parsed(R"({"prompt": "x", "stop": "z"})").stop, std::vector<std::string>{"z"});
  EXPECT_EQ(parsed(R"({"prompt": "x"})", {.raw = true}).text, "x");
}

TEST(ParseRow, RowsDrawWithSeedsOfTheirOwn) {
  Row row{.index = 5};
  parse_row(R"({"prompt": "x"})", "line", defaults(), row);
  EXPECT_EQ(row.request.sampling.seed, 45);
}

TEST(ParseRow, RefusesWhatIsOutOfBounds) {
  for (const std::string field :
       {R"("top_p": 0)", R"("top_p": 1.5)", R"("min_p": -0.1)", R"("min_p": 1.01)",
        R"("temperature": -1)", R"("top_k": -1)", R"("top_k": 1.5)", R"("max_tokens": 0)",
        R"("seed": 1e300)", R"("stop": [""])", R"("stop": 3)"}) {
    const std::string name = field.substr(1, field.find('"', 1) - 1);
    testing::expect_invalid({"line: ", name.c_str()},
                            [&] { (void)parsed(R"({"prompt": "x", )" + field + "}"); });
  }
}

}  // namespace
}  // namespace heddle::app
