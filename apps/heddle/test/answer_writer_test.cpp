#include "generate/answer_writer.h"

#include <limits>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::app {
namespace {

using nlohmann::ordered_json;

/// The line of a row, as generate --json writes it.
std::string line_of(AnswerHead head, Completion completion, bool logprobs) {
  std::ostringstream out;
  AnswerWriter writer(out, AnswerWriter::Form::kJson, logprobs);
  const int64_t index = head.index;
  writer.begin_row(std::move(head));
  writer.finish_row(index, std::move(completion));
  return out.str();
}

Completion short_answer() {
  Completion completion;
  completion.text = "a\"\n";
  completion.token_ids = {5, 6};
  completion.prompt_tokens = 3;
  completion.cached_tokens = 2;
  completion.finish_reason = FinishReason::kStop;
  return completion;
}

TEST(AnswerWriter, WritesEveryFieldInItsOrder) {
  EXPECT_EQ(
      line_of({.index = 7,
               .id = R"({"b":1,"a":2})",
               .custom_id = "\"c\"",
               .metadata = "[1.0]",
               .adapter = "sql",
               .hash = "h"},
              short_answer(), false),
      R"({"index":7,"id":{"b":1,"a":2},"custom_id":"c","metadata":[1.0],"adapter":"sql",)"
      R"("text":"a\"\n","token_ids":[5,6],"prompt_tokens":3,"cached_tokens":2,"completion_tokens":2,)"
      R"("finish_reason":"stop","error":null,"hash":"h"})"
      "\n");
  EXPECT_EQ(line_of({}, short_answer(), false).substr(0, 37),
            R"({"index":0,"id":null,"adapter":null,")");
}

TEST(AnswerWriter, WritesAnAnswerForEachAdapter) {
  const AnswerHead head{.index = 2, .each = {{}, {{"sql"}}}, .hash = "h"};
  Completion failed;
  failed.finish_reason = FinishReason::kError;
  failed.error = "no";
  const auto written = [&](AnswerWriter::Form form) {
    std::ostringstream out;
    AnswerWriter writer(out, form, false);
    writer.begin_row(head);
    writer.finish_row(2, std::vector<Completion>{short_answer(), failed});
    EXPECT_EQ(writer.num_failed(), 1);
    return out.str();
  };
  EXPECT_EQ(
      written(AnswerWriter::Form::kJson),
      R"({"index":2,"id":null,"each_adapter":[{"adapter":null,"text":"a\"\n",)"
      R"("token_ids":[5,6],"prompt_tokens":3,"cached_tokens":2,"completion_tokens":2,"finish_reason":"stop",)"
      R"("error":null},{"adapter":"sql","text":"","token_ids":[],"prompt_tokens":0,"cached_tokens":0,)"
      R"("completion_tokens":0,"finish_reason":"error","error":"no"}],"error":"no","hash":"h"})"
      "\n");
  EXPECT_EQ(written(AnswerWriter::Form::kText), "[2 base] a\"\n\n[2 sql] error: no\n");
}

TEST(AnswerWriter, WritesTheSamplesOfAPrompt) {
  const AnswerHead head{.index = 2, .adapter = "sql", .n = 2, .hash = "h"};
  const auto written = [&](AnswerWriter::Form form) {
    std::ostringstream out;
    AnswerWriter writer(out, form, true);
    writer.begin_row(head);
    writer.finish_row(2, std::vector<Completion>{short_answer(), short_answer()});
    return out.str();
  };
  const ordered_json row = ordered_json::parse(written(AnswerWriter::Form::kJson));
  EXPECT_EQ(row.at("adapter"), "sql");
  EXPECT_EQ(row.at("choices").size(), 2u);
  EXPECT_EQ(row.at("choices")[1].at("token_ids"), (std::vector<int>{5, 6}));
  EXPECT_TRUE(row.at("choices")[1].contains("logprobs"));
  EXPECT_TRUE(row.at("error").is_null());
  EXPECT_FALSE(row.contains("text") || row.contains("logprobs"));
  EXPECT_EQ(written(AnswerWriter::Form::kText), "[2 sql #0] a\"\n\n[2 sql #1] a\"\n\n");
}

TEST(AnswerWriter, WritesListsOfAdapters) {
  const AnswerHead head{.index = 2, .adapters = {{"sql", 0.1f}, {"cron", 1.0f}}};
  EXPECT_NE(line_of(head, short_answer(), false)
                .find(R"("adapter":null,"adapters":[{"name":"sql","scale":0.1},)"
                      R"({"name":"cron","scale":1.0}],"text")"),
            std::string::npos);
  std::ostringstream out;
  AnswerWriter writer(out, AnswerWriter::Form::kText, false);
  writer.begin_row(head);
  writer.add_text(2, "a");
  writer.finish_row(2, short_answer());
  EXPECT_EQ(out.str(), "[2 0.1*sql+cron] a\n");
}

TEST(AnswerWriter, WritesEveryLogprobAsANumber) {
  Completion completion = short_answer();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  completion.logprobs = {-0.1f, -kInfinity, std::numeric_limits<float>::quiet_NaN(), -12345.5f};
  const std::string line = line_of({}, completion, true);
  const ordered_json logprobs = ordered_json::parse(line).at("logprobs");
  ASSERT_EQ(logprobs.size(), 4u) << line;
  for (const auto& value : logprobs) ASSERT_TRUE(value.is_number()) << line;
  EXPECT_EQ(static_cast<float>(logprobs[0].get<double>()), -0.1f);
  EXPECT_EQ(logprobs[1], -9999.0);
  EXPECT_EQ(logprobs[2], -9999.0);
  EXPECT_EQ(logprobs[3], -12345.5);
}

}  // namespace
}  // namespace heddle::app
