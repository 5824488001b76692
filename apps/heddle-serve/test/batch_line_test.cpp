#include "batch/batch_line.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"

namespace heddle::serve {
namespace {

using json = nlohmann::json;

TEST(BatchLines, AreRequests) {
  BatchLine line;
  read_batch_line(
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"é","seed":1}})",
      line);
  EXPECT_EQ(line.custom_id, "a");
  EXPECT_EQ(line.request.method, "POST");
  EXPECT_EQ(line.request.path, "/v1/completions");
  EXPECT_EQ(json::parse(line.request.body), json::parse(R"({"prompt":"é","seed":1})"));
}

TEST(BatchLines, WhatIsWrongIsNamed) {
  const std::string rest = R"("method":"POST","url":"/v1/completions","body":{}})";
  const std::pair<std::string, const char*> wrong[] = {
      {"{", "malformed JSON"},
      {"[]", "expected an object with custom_id"},
      {"{" + rest, "custom_id"},
      {R"({"custom_id":"",)" + rest, "custom_id is empty"},
      {R"({"custom_id":1,)" + rest, "custom_id"},
      {R"({"custom_id":"a","bodi":1,)" + rest, "did you mean \"body\"?"},
      {R"({"custom_id":"a","method":"GET","url":"/v1/models","body":{}})", "expected \"POST\""},
      {R"({"custom_id":"a","method":"POST","url":"/v1/audio","body":{}})", "url is \"/v1/audio\""},
      {R"({"custom_id":"a","method":"POST","url":"/v1/load_lora_adapter","body":{}})", "url is"},
      {R"({"custom_id":"a","method":"POST","url":"/generate_stream","body":{}})", "url is"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/completions"})", "body is missing"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":[]})",
       "body is missing"}};
  for (const auto& [text, words] : wrong) {
    BatchLine line;
    const std::string message = testing::message_of([&] { read_batch_line(text, line); });
    EXPECT_NE(message.find(words), std::string::npos) << text << ": " << message;
  }
  BatchLine line;
  EXPECT_NE(testing::message_of([&] { read_batch_line(R"({"custom_id":"a"})", line); }), "");
  EXPECT_EQ(line.custom_id, "a") << "so that the error names it";
}

TEST(BatchLines, AnswersHaveTheBodyAsItIs) {
  EXPECT_EQ(
      json::parse(answered_line("a\"b", "7", {.body = R"({"x":1e+300})"})),
      json({{"id", "batch_req_7"},
            {"custom_id", "a\"b"},
            {"response", {{"status_code", 200}, {"request_id", "7"}, {"body", {{"x", 1e+300}}}}},
            {"error", nullptr}}));
  const std::string body = R"({"error":{"message":"why","code":404}})";
  const json failed = json::parse(answered_line("a", "7", {.status = 404, .body = body}));
  EXPECT_EQ(failed["response"]["body"], json::parse(body));
  EXPECT_EQ(failed["error"], json({{"code", "404"}, {"message", "why"}}));
  EXPECT_EQ(json::parse(refused_line("", "7", "why")),
            json({{"id", "batch_req_7"},
                  {"custom_id", nullptr},
                  {"response", nullptr},
                  {"error", {{"code", "invalid_line"}, {"message", "why"}}}}));
}

}  // namespace
}  // namespace heddle::serve
