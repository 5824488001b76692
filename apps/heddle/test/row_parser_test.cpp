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

TEST(ParseRow, SpeculationAndPrediction) {
  const auto with = [](const std::string& field) {
    return parsed(R"({"prompt": "x", )" + field + "}");
  };
  EXPECT_EQ(parsed(R"({"prompt": "x"})").speculation, "");
  EXPECT_EQ(with(R"("speculation": true)").speculation, "");
  EXPECT_EQ(with(R"("speculation": false)").speculation, "off");
  for (const char* method : {"off", "ngram", "suffix"}) {
    EXPECT_EQ(with(R"("speculation": ")" + std::string(method) + '"').speculation, method);
  }
  EXPECT_EQ(with(R"("prediction": {"type": "content", "content": "a b"})").prediction, "a b");
  EXPECT_EQ(with(R"("prediction": {"type": "content", "content": [{"type": "text", "text": "a"},
                                                                {"type": "text", "text": " b"}]})")
                .prediction,
            "a b");
  EXPECT_EQ(with(R"("prediction": null, "speculation": null)").prediction, "");
  for (const auto& [field, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("speculation": "eagle3")",
            "line: speculation is \"eagle3\", expected true, false, \"off\", \"ngram\" or "
            "\"suffix\""},
           {R"("speculation": 3)", "line: speculation is 3, expected true, false"},
           {R"("speculation": {})", "line: speculation is object, expected true, false"},
           {R"("prediction": "x")", "line: prediction is string, expected an object"},
           {R"("prediction": {"content": "x"})", "line: prediction.type is missing"},
           {R"("prediction": {"type": "text", "content": "x"})",
            "prediction.type is not \"content\""},
           {R"("prediction": {"type": "content"})", "line: prediction.content is missing"},
           {R"("prediction": {"type": "content", "content": 1})",
            "prediction.content is number, expected a string or an array of texts"},
           {R"("prediction": {"type": "content", "content": ["x"]})",
            "prediction.content[0] is string, expected an object"},
           {R"("prediction": {"type": "content", "content": [{"type": "image", "text": "x"}]})",
            "prediction.content[0].type is not \"text\""},
           {R"("prediction": {"type": "content", "content": [{"type": "text", "text": 1}]})",
            "prediction.content[0].text is number, expected a string"},
           {R"("prediction": {"type": "content", "content": "x", "contents": 1})",
            "prediction: unknown field \"contents\""}}) {
    testing::expect_invalid({what}, [&] { (void)with(field); });
  }
}

TEST(ParseRow, FormatOfTheAnswer) {
  RowDefaults given = defaults();
  given.answer.format = {.kind = AnswerFormat::Kind::kRegex, .source = "a+"};
  EXPECT_EQ(parsed(R"({"prompt": "x"})", given).format.source, "a+");
  const Request own = parsed(R"({"prompt": "x", "guided_choice": ["b"]})", given);
  EXPECT_EQ(own.format.kind, AnswerFormat::Kind::kChoice);
  EXPECT_EQ(own.format.choices, std::vector<std::string>{"b"});
  EXPECT_TRUE(
      parsed(R"({"prompt": "x", "response_format": {"type": "text"}})", given).format.is_free());
  EXPECT_THROW(static_cast<void>(parsed(R"({"prompt": "x", "regex": ""})", given)), Error);
}

TEST(ParseRow, PenaltiesBiasesAndEnds) {
  RowDefaults given = defaults();
  given.answer.sampling.repetition_penalty = 1.5f;
  given.answer.logit_bias = {{7, -1.0f}};
  given.answer.min_tokens = 2;
  given.answer.stop_token_ids = {5};
  given.answer.bad_words = {"no"};
  const Request plain = parsed(R"({"prompt": "x"})", given);
  EXPECT_EQ(plain.sampling.repetition_penalty, 1.5f);
  ASSERT_EQ(plain.logit_bias.size(), 1u);
  EXPECT_EQ(plain.logit_bias[0].token, 7);
  EXPECT_EQ(plain.min_tokens, 2);
  EXPECT_EQ(plain.stop_token_ids, (std::vector<int32_t>{5}));
  EXPECT_EQ(plain.bad_words, (std::vector<std::string>{"no"}));
  const Request own = parsed(
      R"({"prompt": "x", "repetition_penalty": 0.5, "frequency_penalty": 0.25,
          "presence_penalty": -1.5, "logit_bias": {"3": 1.5, "12": -100}, "min_tokens": 4,
          "stop_token_ids": [8, 9], "bad_words": ["a", "b"], "top_logprobs": 5,
          "prompt_logprobs": true})",
      given);
  EXPECT_EQ(own.sampling.repetition_penalty, 0.5f);
  EXPECT_EQ(own.sampling.frequency_penalty, 0.25f);
  EXPECT_EQ(own.sampling.presence_penalty, -1.5f);
  ASSERT_EQ(own.logit_bias.size(), 2u);
  EXPECT_EQ(own.logit_bias[0].token, 3);
  EXPECT_EQ(own.logit_bias[0].bias, 1.5f);
  EXPECT_EQ(own.logit_bias[1].bias, -100.0f);
  EXPECT_EQ(own.min_tokens, 4);
  EXPECT_EQ(own.top_logprobs, 5);
  EXPECT_TRUE(own.prompt_logprobs);
  EXPECT_EQ(parsed(R"({"prompt": "x", "max_tokens": 0})").max_tokens, 0);
  EXPECT_EQ(own.stop_token_ids, (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(own.bad_words, (std::vector<std::string>{"a", "b"}));
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

TEST(ParseRow, ACacheSaltIsATextThatIsNotEmpty) {
  EXPECT_EQ(parsed(R"({"prompt": "x", "cache_salt": "a\u00e9"})").cache_salt, "a\u00e9");
  EXPECT_EQ(parsed(R"({"prompt": "x", "cache_salt": null})").cache_salt, "");
  EXPECT_EQ(parsed(R"({"prompt": "x"})").cache_salt, "");
  testing::expect_invalid({"line: cache_salt is empty, expected a text or null"},
                          [] { (void)parsed(R"({"prompt": "x", "cache_salt": ""})"); });
  testing::expect_invalid({"line: cache_salt is number, expected a string"},
                          [] { (void)parsed(R"({"prompt": "x", "cache_salt": 7})"); });
}

TEST(ParseRow, RowsDrawWithSeedsOfTheirOwn) {
  Row row{.index = 5};
  parse_row(R"({"prompt": "x"})", "line", defaults(), row);
  EXPECT_EQ(row.request.sampling.seed, 45);
}

std::string with_messages(const std::string& messages, const std::string& fields = "") {
  return R"({"messages": )" + messages + fields + "}";
}

TEST(ParseRow, MessagesOfTextAloneAreTurns) {
  const Request request = parsed(
      with_messages(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])"));
  ASSERT_EQ(request.messages.size(), 2u);
  EXPECT_EQ(request.messages[1].role, "user");
  EXPECT_EQ(request.messages[1].content, "u");
  EXPECT_TRUE(request.messages_json.empty());
}

TEST(ParseRow, MessagesWithOtherFieldsAndPartsStayJson) {
  for (const std::string messages :
       {R"([{"role":"user","content":[{"type":"text","text":"é"},{"type":"text","text":""}]}])",
        R"([{"role":"user","content":"a","name":"Ann"}])",
        R"([{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function",)"
        R"("function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1",)"
        R"("content":"2"}])",
        R"([{"role":"assistant","content":"a","reasoning_content":"r"}])"}) {
    const Request request = parsed(with_messages(messages));
    EXPECT_EQ(request.messages_json.text(), messages);
    EXPECT_TRUE(request.messages.empty());
  }
}

TEST(ParseRow, MessagesTakeOneFormOfThoseThatClientsSend) {
  const std::string calls = R"("tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}])";
  for (const std::string content : {R"("content":null,)", ""}) {
    EXPECT_EQ(parsed(with_messages(R"([{"role":"assistant",)" + content + calls + "}]"))
                  .messages_json.text(),
              R"([{"role":"assistant",)" + calls + R"(,"content":""}])");
  }
  const Request plain = parsed(
      with_messages(R"([{"role":"assistant","content":null,"refusal":null,"tool_calls":[]}])"));
  ASSERT_EQ(plain.messages.size(), 1u);
  EXPECT_EQ(plain.messages[0].content, "");
  EXPECT_EQ(parsed(with_messages(R"([{"role":"user","content":["a",{"type":"refusal",)"
                                 R"("refusal":"b"},{"type":"output_text","text":"c"}]}])"))
                .messages_json.text(),
            R"([{"role":"user","content":[{"type":"text","text":"a"},)"
            R"({"type":"text","text":"b"},{"type":"text","text":"c"}]}])");
}

TEST(ParseRow, APrefixIsWhatTheAnswerGoesOnWith) {
  const std::string messages =
      R"([{"role":"user","content":"u"},{"role":"assistant","content":"a","prefix":true}])";
  const Request request = parsed(with_messages(messages));
  EXPECT_TRUE(request.continue_final_message);
  EXPECT_FALSE(request.add_generation_prompt);
  ASSERT_EQ(request.messages.size(), 2u);
  EXPECT_EQ(request.messages[1].content, "a");
  testing::expect_invalid({"line: add_generation_prompt is true"}, [&] {
    (void)parsed(with_messages(messages, R"(, "add_generation_prompt": true)"));
  });
  testing::expect_invalid({"messages[0]: prefix is true"}, [] {
    (void)parsed(with_messages(R"([{"role":"user","content":"u","prefix":true}])"));
  });
  EXPECT_FALSE(parsed(with_messages(R"([{"role":"assistant","content":"a","prefix":false}])"))
                   .continue_final_message);
}

TEST(ParseRow, WholeNumbersMayHaveAPoint) {
  EXPECT_EQ(parsed(R"({"prompt": "x", "max_tokens": 4.0})").max_tokens, 4);
  testing::expect_invalid({"line: max_tokens is 4.5, expected an integer"},
                          [] { (void)parsed(R"({"prompt": "x", "max_tokens": 4.5})"); });
  testing::expect_invalid({"line: max_tokens is -1.0, expected 0 to "},
                          [] { (void)parsed(R"({"prompt": "x", "max_tokens": -1.0})"); });
  testing::expect_invalid({"expected an integer"},
                          [] { (void)parsed(R"({"prompt": "x", "max_tokens": 1e300})"); });
}

TEST(ParseRow, FieldsOfConversations) {
  const Request request = parsed(
      R"({"prompt": "x", "tools": [{"b": 1, "a": 2}], "documents": [{"title": "t"}],)"
      R"("chat_template_kwargs": {"enable_thinking": false}, "add_generation_prompt": false})");
  EXPECT_EQ(request.messages.size(), 1u);
  EXPECT_EQ(request.tools_json.text(), R"([{"b":1,"a":2}])");
  EXPECT_EQ(request.documents_json.text(), R"([{"title":"t"}])");
  EXPECT_EQ(request.template_kwargs_json.text(), R"({"enable_thinking":false})");
  EXPECT_FALSE(request.add_generation_prompt);
  const Request plain = parsed(R"({"prompt": "x", "tools": null})");
  for (const JsonValue& value :
       {plain.tools_json, plain.documents_json, plain.template_kwargs_json}) {
    EXPECT_TRUE(value.empty());
  }
  EXPECT_TRUE(plain.add_generation_prompt);
}

TEST(ParseRow, SystemMessagesStandInFrontOfEitherForm) {
  RowDefaults given;
  given.answer.system = "s";
  EXPECT_EQ(
      parsed(with_messages(R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])"),
             given)
          .messages_json.text(),
      R"([{"role":"system","content":"s"},)"
      R"({"role":"user","content":[{"type":"text","text":"a"}]}])");
  const std::string own = R"([{"role":"system","content":[]},{"role":"user","content":"a"}])";
  EXPECT_EQ(parsed(with_messages(own), given).messages_json.text(), own);
  EXPECT_EQ(parsed(R"({"prompt": "x"})", given).messages[0].content, "s");
}

TEST(ParseRow, RefusesMessagesOfOtherFormsByName) {
  const auto expect_refused = [](std::initializer_list<const char*> parts,
                                 const std::string& message) {
    testing::expect_invalid(parts, [&] { (void)parsed(with_messages("[" + message + "]")); });
  };
  expect_refused({"line: messages[0].content[1] is of type \"image_url\"", "\"text\""},
                 R"({"role": "user", "content": [{"type": "text", "text": "a"},)"
                 R"({"type": "image_url", "image_url": {"url": "x"}}]})");
  expect_refused({"messages[0].content[0]: field text is missing"},
                 R"({"role": "user", "content": [{"type": "text"}]})");
  expect_refused({"messages[0].content[0] is number, expected an object"},
                 R"({"role": "user", "content": [1]})");
  expect_refused({"messages[0]: content is object"}, R"({"role": "user", "content": {}})");
  expect_refused({"messages[0]: field content is missing"}, R"({"role": "user"})");
  expect_refused({"messages[0]: unknown field \"images\""},
                 R"({"role": "user", "content": "a", "images": []})");
  expect_refused({"messages[0]: name is number"}, R"({"role": "user", "content": "a", "name": 1})");
  expect_refused({"messages[0].tool_calls is object, expected an array"},
                 R"({"role": "assistant", "tool_calls": {}})");
  expect_refused({"messages[0].tool_calls[0]: field function is missing"},
                 R"({"role": "assistant", "tool_calls": [{"id": "1"}]})");
  expect_refused({"messages[0].tool_calls[0] is of type \"custom\""},
                 R"({"role": "assistant", "tool_calls": [{"type": "custom"}]})");
  expect_refused({"messages[0].tool_calls[0].function: field name is missing"},
                 R"({"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]})");
  expect_refused({"messages[0].tool_calls[0].function: arguments is array"},
                 R"({"role": "assistant", "tool_calls": [{"function": {"name": "f",)"
                 R"("arguments": []}}]})");
}

TEST(ParseRow, RefusesFieldsOfConversationsOfOtherTypes) {
  const auto expect_refused = [](std::initializer_list<const char*> parts, const std::string& field,
                                 const RowDefaults& given = {}) {
    testing::expect_invalid(parts,
                            [&] { (void)parsed(R"({"prompt": "x", )" + field + "}", given); });
  };
  expect_refused({"line: tools is object, expected an array"}, R"("tools": {})");
  expect_refused({"line: tools[1] is number, expected an object"}, R"("tools": [{}, 1])");
  expect_refused({"line: documents is string"}, R"("documents": "a")");
  expect_refused({"line: chat_template_kwargs is array"}, R"("chat_template_kwargs": [])");
  expect_refused({"line: add_generation_prompt is 1"}, R"("add_generation_prompt": 1)");
  for (const std::string name : {"messages", "tools", "documents", "add_generation_prompt"}) {
    expect_refused({"line: chat_template_kwargs holds", name.c_str()},
                   R"("chat_template_kwargs": {")" + name + R"(": 1})");
  }
  for (const std::string field : {"tools", "documents", "chat_template_kwargs"}) {
    expect_refused({"field ", field.c_str(), "--raw"}, "\"" + field + "\": []", {.raw = true});
  }
}

TEST(ParseRow, RefusesWhatIsOutOfBounds) {
  for (const std::string field : {R"("top_p": 0)",
                                  R"("top_p": 1.5)",
                                  R"("min_p": -0.1)",
                                  R"("min_p": 1.01)",
                                  R"("temperature": -1)",
                                  R"("top_k": -1)",
                                  R"("top_k": 1.5)",
                                  R"("max_tokens": -1)",
                                  R"("top_logprobs": 101)",
                                  R"("prompt_logprobs": 1)",
                                  R"("seed": 1e300)",
                                  R"("stop": [""])",
                                  R"("stop": 3)",
                                  R"("repetition_penalty": 0)",
                                  R"("frequency_penalty": 2.5)",
                                  R"("presence_penalty": -3)",
                                  R"("logit_bias": [1])",
                                  R"("logit_bias": {"x": 1})",
                                  R"("logit_bias": {"-1": 1})",
                                  R"("logit_bias": {"3": 101})",
                                  R"("min_tokens": -1)",
                                  R"("min_tokens": 257)",
                                  R"("stop_token_ids": 3)",
                                  R"("stop_token_ids": [-1])",
                                  R"("stop_token_ids": ["a"])",
                                  R"("bad_words": "x")",
                                  R"("bad_words": [""])"}) {
    const std::string name = field.substr(1, field.find('"', 1) - 1);
    testing::expect_invalid({"line: ", name.c_str()},
                            [&] { (void)parsed(R"({"prompt": "x", )" + field + "}"); });
  }
}

TEST(ParseRow, AMergeIsOfAList) {
  RowDefaults given = defaults();
  given.adapters = {"sql", "cron"};
  const std::string list = R"([{"name": "sql"}, {"name": "cron"}])";
  const std::pair<std::string, AdapterMerge> merges[] = {
      {R"({"method": "ties", "density": 0.3})",
       {.method = AdapterMerge::Method::kTies, .density = 0.3}},
      {R"({"method": "dare_ties", "density": 1, "majority_sign_method": "frequency", "seed": -3})",
       {.method = AdapterMerge::Method::kDareTies,
        .density = 1,
        .majority_sign = AdapterMerge::MajoritySign::kFrequency,
        .seed = -3}},
      {R"({"method": "linear"})", {}}};
  for (const auto& [merge, want] : merges) {
    for (const std::string& fields :
         {R"("adapters": )" + list, R"("each_adapter": [null, "sql", )" + list + "]"}) {
      Row row;
      parse_row(R"({"prompt": "x", "merge": )" + merge + ", " + fields + "}", "line", given, row);
      EXPECT_EQ(row.request.merge, want) << fields;
    }
  }
  const std::pair<std::string, const char*> wrong[] = {
      {R"("adapter": "sql", "merge": {"method": "ties", "density": 0.5})",
       "line: the row has merge, but no list of two adapters or more"},
      {R"("each_adapter": ["sql", [{"name": "sql"}]], "merge": {"method": "ties"})",
       "line: the row has merge, but no list of two adapters or more"},
      {R"("merge": "ties", "adapters": )" + list,
       "line: merge is string, expected an object with method and density"},
      {R"("merge": {"density": 0.5}, "adapters": )" + list, "line: merge: field method is missing"},
      {R"("merge": {"method": "tie"}, "adapters": )" + list,
       "the method of a merge is 'tie', expected one of linear, ties, dare_linear, "},
      {R"("merge": {"method": "ties", "density": 1.5}, "adapters": )" + list,
       "line: merge: density is 1.5, expected 0 to 1"},
      {R"("merge": {"method": "ties", "majority_sign_method": "most"}, "adapters": )" + list,
       "majority_sign_method is 'most', expected one of total, frequency"},
      {R"("merge": {"method": "ties", "sign": "total"}, "adapters": )" + list,
       "line: merge: unknown field \"sign\""}};
  for (const auto& [fields, message] : wrong) {
    Row row;
    testing::expect_invalid(
        {message}, [&] { parse_row(R"({"prompt": "x", )" + fields + "}", "line", given, row); });
  }
}

TEST(ParseRow, EachAdapterMayBeANameOrAListOrNone) {
  RowDefaults given = defaults();
  given.adapters = {"sql", "cron"};
  given.adapter = "sql";
  Row row;
  parse_row(R"({"prompt": "x", "each_adapter": ["cron", null, "base", {"name": "sql", "scale": 2},)"
            R"( [{"name": "sql"}, {"name": "cron"}]]})",
            "line", given, row);
  ASSERT_EQ(row.each.size(), 5u);
  EXPECT_EQ(row.request.adapter, "");
  EXPECT_EQ(row.each[0].at(0).name, "cron");
  EXPECT_TRUE(row.each[1].empty() && row.each[2].empty());
  EXPECT_EQ(row.each[3].at(0).scale, 2.0f);
  EXPECT_EQ(row.each[4].at(1).name, "cron");
  const std::pair<const char*, const char*> wrong[] = {
      {R"("each_adapter": [])",
       "line: each_adapter is empty, expected an array of at least one adapter"},
      {R"("each_adapter": "sql")", "line: each_adapter is string, expected an array"},
      {R"("each_adapter": [1])", "line: each_adapter[0] is number, expected a name"},
      {R"("each_adapter": [null, "sqk"])", "line: each_adapter[1]: unknown adapter \"sqk\""},
      {R"("each_adapter": [[{"name": "sqk"}]])",
       "line: each_adapter[0][0]: unknown adapter \"sqk\""},
      {R"("each_adapter": ["sql"], "n": 2)",
       "line: the row has each_adapter, and n is 2, expected only one of them"},
      {R"("n": 0)", "line: n is 0"},
      {R"("each_adapter": ["sql"], "model": "base")",
       "line: the row has both each_adapter and model, expected only one of them"}};
  for (const auto& [fields, message] : wrong) {
    const std::string text = R"({"prompt": "x", )" + std::string(fields) + "}";
    testing::expect_invalid({message}, [&] { parse_row(text, "line", given, row); });
  }
}

TEST(ParseRow, AdaptersStandInTheirOrderWithTheirScales) {
  RowDefaults given = defaults();
  given.adapters = {"sql", "cron"};
  given.adapter = "sql";
  const auto with = [&](const std::string& fields) {
    return parsed(R"({"prompt": "x", )" + fields + "}", given);
  };
  const Request both =
      with(R"("adapters": [{"name": "cron", "scale": -0.5}, {"name": "sql", "scale": null}])");
  EXPECT_EQ(both.adapter, "");
  ASSERT_EQ(both.adapters.size(), 2u);
  EXPECT_EQ(both.adapters[0].name, "cron");
  EXPECT_EQ(both.adapters[0].scale, -0.5f);
  EXPECT_EQ(both.adapters[1].name, "sql");
  EXPECT_EQ(both.adapters[1].scale, 1.0f);
  EXPECT_EQ(with(R"("adapters": null)").adapter, "sql");
  EXPECT_EQ(with(R"("adapters": [{"name": "sql"}], "model": "base")").adapters.size(), 1u);
  const std::pair<const char*, const char*> wrong[] = {
      {R"("adapters": [])", "line: adapters is empty, expected an array of at least one object"},
      {R"("adapters": "sql")",
       "line: adapters is string, expected an array of at least one object"},
      {R"("adapters": ["sql"])",
       "line: adapters[0] is string, expected an object with name and scale"},
      {R"("adapters": [{"name": "sql"}, {"scale": 1}])",
       "line: adapters[1]: field name is missing"},
      {R"("adapters": [{"name": "sqk"}])",
       "line: adapters[0]: unknown adapter \"sqk\"; there are sql, cron, base"},
      {R"("adapters": [{"name": "sql", "weight": 1}])",
       "line: adapters[0]: unknown field \"weight\""},
      {R"("adapters": [{"name": "sql", "scale": "1"}])",
       "line: adapters[0]: scale is \"1\", expected a number"},
      {R"("adapters": [{"name": "sql", "scale": 1e39}])", "line: adapters[0]: scale is 1e+39"},
      {R"("adapter": "sql", "adapters": [{"name": "sql"}])",
       "line: the row has both adapter and adapters, expected only one of them"},
      {R"("model": "sql", "adapters": [{"name": "sql"}])",
       "line: adapters is given and model is \"sql\", expected only one of them"}};
  for (const auto& [fields, message] : wrong) {
    testing::expect_invalid({message}, [&] { (void)with(fields); });
  }
}

}  // namespace
}  // namespace heddle::app
