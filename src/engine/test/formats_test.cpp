// Requests whose answers have a format, and such whose thoughts have a limit.
#include <gmock/gmock.h>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/face/made_engine.h"
#include "engine/rules/grammar/grammar_library.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"

namespace heddle {
namespace {

using Kind = AnswerFormat::Kind;
using model::ref::Llama;
using testing::run_all;

constexpr int32_t kEnd = 256;

const std::string kSchema = R"({
  "type": "object", "additionalProperties": false, "required": ["name", "count", "tags"],
  "properties": {
    "name": {"type": "string", "maxLength": 4},
    "count": {"type": "integer", "minimum": 0, "maximum": 99},
    "tags": {"type": "array", "items": {"enum": ["warp", "weft"]}, "maxItems": 2}}})";
const std::string kGrammar = R"-(root ::= "(" [a-c]{1,3} ")" | "[" root "]")-";

/// Each kind of format, and whether a text has it.
struct Case {
  const char* name;
  AnswerFormat format;
  bool (*has)(const std::string& text);
};

bool is_of_schema(const std::string& text) {
  const auto value = nlohmann::json::parse(text, nullptr, false);
  if (!value.is_object() || value.size() != 3) return false;
  const auto is_tag = [](const nlohmann::json& tag) { return tag == "warp" || tag == "weft"; };
  const auto& tags = value.at("tags");
  return value.at("name").is_string() && value.at("count").is_number_integer() &&
         value.at("count") >= 0 && value.at("count") <= 99 && tags.is_array() && tags.size() <= 2 &&
         std::ranges::all_of(tags, is_tag);
}

bool is_of_grammar(const std::string& text) {
  size_t depth = 0;
  while (depth < text.size() && text[depth] == '[') ++depth;
  const std::string inner = text.substr(depth, text.size() - 2 * depth);
  return text == std::string(depth, '[') + inner + std::string(depth, ']') &&
         std::regex_match(inner, std::regex(R"(\([abc]{1,3}\))"));
}

const std::vector<Case> kCases = {
    {"choice",
     {.kind = Kind::kChoice, .choices = {"yes", "no", "n\"o\\", "\xC3\xA4h\n"}},
     [](const std::string& text) {
       return std::set<std::string>{"yes", "no", "n\"o\\", "\xC3\xA4h\n"}.contains(text);
     }},
    {"regex",
     {.kind = Kind::kRegex, .source = "[0-9]{3}-(abc|def)+"},
     [](const std::string& text) {
       return std::regex_match(text, std::regex("[0-9]{3}-(abc|def)+"));
     }},
    {"json",
     {.kind = Kind::kJson},
     [](const std::string& text) {
       return nlohmann::json::parse(text, nullptr, false).is_object();
     }},
    {"schema", {.kind = Kind::kJsonSchema, .source = kSchema}, is_of_schema},
    {"grammar", {.kind = Kind::kGrammar, .source = kGrammar}, is_of_grammar},
    {"tag",
     {.kind = Kind::kStructuralTag,
      .source = R"({"type": "structural_tag", "format": {"type": "tag", "begin": "<a>",
                   "content": {"type": "regex", "pattern": "[xy]{2}"}, "end": "</a>"}})"},
     [](const std::string& text) { return std::regex_match(text, std::regex("<a>[xy]{2}</a>")); }},
    {"lark",
     {.kind = Kind::kLark, .source = "start: \"x\" | \"y\" start"},
     [](const std::string& text) { return std::regex_match(text, std::regex("y*x")); }},
};

class FormatsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!grammar::has_library()) GTEST_SKIP() << "built without structured output";
  }

  Engine engine(int max_batch = 6) {
    Engine engine =
        model_.engine({.max_batch = max_batch, .prefill_chunk = 7, .prefix_cache = false});
    (void)engine.add_adapter("one", one_.folder.path().string());
    return engine;
  }
  static Request request(int32_t i, const AnswerFormat& format, int64_t max_tokens = 200) {
    Request request = testing::request_of({i % 256, 40, 3, (90 + 7 * i) % 256}, max_tokens);
    request.sampling = {.temperature = 1.5f, .seed = i};
    request.format = format;
    if (i % 3 == 1) request.adapter = "one";
    return request;
  }
  static std::string error_of(Engine& engine, const AnswerFormat& format) {
    const Completion answer = run_all(engine, {request(0, format)}).front();
    EXPECT_EQ(answer.finish_reason, FinishReason::kError);
    EXPECT_EQ(answer.error_code, RequestError::kInvalidArgument);
    return answer.error;
  }

  [[nodiscard]] const std::string& model_path() const { return model_.path(); }
  [[nodiscard]] std::string adapter_path() const { return one_.folder.path().string(); }

 private:
  static model::DecoderConfig config() {
    model::DecoderConfig config = testing::tiny_config(257);
    config.context_length = 512;
    return config;
  }
  Llama base_ = model::random_llama(config(), true);
  testing::TinyModel model_{base_, {.control_tokens = {"<|end|>"}, .eos = kEnd}};
  testing::TinyAdapter one_{base_, 3, {model::llama::kQ, model::llama::kDown}};
};

TEST_F(FormatsTest, AnswersThatEndHaveTheirFormatAndOthersBeginOne) {
  Engine engine = FormatsTest::engine();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 70; ++i) {
    requests.push_back(request(i, kCases[size_t(i) % kCases.size()].format));
  }
  const std::vector<Completion> answers = run_all(engine, requests);
  size_t num_whole = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Case& of = kCases[i % kCases.size()];
    const std::string what = std::string(of.name) + ": " + answers[i].text;
    ASSERT_EQ(answers[i].error, "") << what;
    if (answers[i].finish_reason == FinishReason::kStop) {
      EXPECT_TRUE(of.has(answers[i].text)) << what;
      ++num_whole;
    } else {
      EXPECT_EQ(answers[i].finish_reason, FinishReason::kLength) << what;
      // It may have become whole with the last token that it may have.
      const std::string& text = answers[i].text;
      EXPECT_FALSE(of.has(text) && of.has(text.substr(0, text.size() - 1)))
          << what << ": cut off where it could have ended";
    }
  }
  EXPECT_GE(num_whole, 45u);
}

TEST_F(FormatsTest, ABatchOfFormatsHasTheBitsOfEachAlone) {
  Engine together = engine();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 9; ++i) {
    const AnswerFormat format = i % 4 == 3 ? AnswerFormat{} : kCases[size_t(i) % 7].format;
    requests.push_back(request(i, format, 20 + i));
    requests.back().top_logprobs = i % 3;
    if (i == 4) requests.back().sampling.presence_penalty = 1.0f;
  }
  for (int round = 0; round < 2; ++round) {  // as calls and as graphs
    const std::vector<Completion> answers = run_all(together, requests);
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_EQ(answers[i].error, "");
      Engine alone = engine();
      const Completion want = run_all(alone, {requests[i]}).front();
      testing::expect_same(answers[i], want, "request " + std::to_string(i));
      EXPECT_EQ(answers[i].top_token_ids, want.top_token_ids);
      EXPECT_TRUE(testing::same_bits<float>(answers[i].top_logprobs, want.top_logprobs));
    }
  }
}

/// What is drawn is masked; what is reported is the model's own.
TEST_F(FormatsTest, LogProbabilitiesAreThoseOfTheModel) {
  Engine engine = FormatsTest::engine();
  Request free = request(0, {}, 1);
  free.sampling = {};
  free.top_logprobs = 100;
  Request bound = free;
  bound.format = {.kind = Kind::kChoice, .choices = {"x", "y"}};
  free.ignore_end = true;  // of one model in 257 the end is the most likely token
  const Completion model = run_all(engine, {free}).front();
  const Completion answer = run_all(engine, {bound}).front();
  ASSERT_EQ(answer.error, "");
  EXPECT_EQ(answer.top_token_ids, model.top_token_ids);
  EXPECT_TRUE(testing::same_bits<float>(answer.top_logprobs, model.top_logprobs));
  const auto place = std::ranges::find(model.top_token_ids, answer.token_ids.front());
  if (place == model.top_token_ids.end()) return;
  EXPECT_EQ(answer.logprobs.front(),
            model.top_logprobs[size_t(place - model.top_token_ids.begin())]);
}

TEST_F(FormatsTest, WhatIsWrongIsNamed) {
  Engine engine = FormatsTest::engine();
  EXPECT_THAT(error_of(engine, {.kind = Kind::kRegex, .source = "a("}),
              ::testing::StartsWith("format"));
  for (const char* pattern : {"a^b", "a\\Z", "a(?=b)", "(?!a)b"}) {
    EXPECT_THAT(error_of(engine, {.kind = Kind::kRegex, .source = pattern}),
                ::testing::StartsWith("format"))
        << pattern;
  }
  EXPECT_THAT(error_of(engine, {.kind = Kind::kLark, .source = "start: %json {}"}),
              ::testing::HasSubstr("%json"));
  EXPECT_THAT(error_of(engine, {.kind = Kind::kGrammar, .source = "root ::= other"}),
              ::testing::HasSubstr("other"));
  EXPECT_THAT(error_of(engine, {.kind = Kind::kJsonSchema, .source = "{"}),
              ::testing::StartsWith("format"));
  EXPECT_THAT(error_of(engine, {.kind = Kind::kStructuralTag, .source = "{}"}),
              ::testing::StartsWith("format"));
  EXPECT_THROW(engine.check(request(0, {.kind = Kind::kRegex, .source = "a("})), Error);
  EXPECT_NO_THROW(engine.check(request(0, {.kind = Kind::kRegex, .source = "a"})));
  Request endless = request(0, {.kind = Kind::kJson});
  endless.ignore_end = true;
  EXPECT_EQ(run_all(engine, {endless}).front().error_code, RequestError::kInvalidArgument);
}

TEST_F(FormatsTest, WhereNothingIsLeftToDrawTheRequestSaysSo) {
  Engine engine = FormatsTest::engine();
  Request request = FormatsTest::request(0, {.kind = Kind::kChoice, .choices = {"yes"}});
  request.bad_words = {"e"};
  const Completion answer = run_all(engine, {request}).front();
  EXPECT_EQ(answer.text, "y");
  EXPECT_THAT(answer.error, ::testing::StartsWith("nothing is left to draw"));
}

/// A grammar that takes long to compile holds up no other request, and ends with an error.
TEST_F(FormatsTest, AHostileGrammarHoldsUpNoOtherRequest) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  EngineOptions options{.model_path = model_path()};
  options.device = testing::test_device();
  options.num_threads = 2;
  Engine engine = open_engine(options, {.formats = {.first = {.seconds = 0.1, .num_bytes = kBytes},
                                                    .last = {.seconds = 1, .num_bytes = kBytes}}});
  (void)engine.add_adapter("one", adapter_path());
  std::vector<RequestId> ids;
  ids.push_back(
      engine.submit(request(0, {.kind = Kind::kRegex, .source = "((a{0,100}){0,100}){0,100}"})));
  for (int32_t i = 1; i < 7; ++i) ids.push_back(engine.submit(request(i, kCases[1].format)));
  std::vector<testing::Outcome> outcomes(ids.size());
  bool was_last = false;
  while (engine.num_unfinished() > 0) {
    was_last = engine.num_unfinished() == 1 && outcomes.front().num_completions == 0;
    testing::take(engine.step(), ids.front(), outcomes);
  }
  EXPECT_TRUE(was_last);
  EXPECT_THAT(outcomes.front().completion.error, ::testing::HasSubstr("processor time"));
  for (size_t i = 1; i < ids.size(); ++i) EXPECT_EQ(outcomes[i].completion.error, "");
}

TEST_F(FormatsTest, LogitsOfAPromptAreThoseWithoutAFormat) {
  Engine engine = FormatsTest::engine();
  const std::vector<float> free = engine.prompt_logits(request(0, {}));
  EXPECT_TRUE(testing::same_bits<float>(engine.prompt_logits(request(0, kCases[0].format)), free));
}

TEST_F(FormatsTest, ThoughtsHaveALimit) {
  Engine engine = FormatsTest::engine();
  Request request = FormatsTest::request(5, {}, 60);
  request.ignore_end = true;  // which may come before
  request.thinking = {.max_tokens = 11, .end = "</t>"};
  const Completion answer = run_all(engine, {request}).front();
  const size_t end = answer.text.find("</t>");
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(answer.token_ids[11], '<');
  request.thinking.begin = "<t>";  // with which this answer does not begin
  EXPECT_EQ(run_all(engine, {request}).front().text.find("</t>"), std::string::npos);
  request.ignore_end = false;
  request.thinking = {.max_tokens = 0, .end = "</t>"};
  request.format = {.kind = Kind::kRegex, .source = "[a-z]*</t>(yes|no)"};
  const std::string text = run_all(engine, {request}).front().text;
  EXPECT_TRUE(text == "</t>yes" || text == "</t>no") << text;
}

}  // namespace
}  // namespace heddle
