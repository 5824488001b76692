// Answers of a model that says what the test wants: where they begin and where they end.
#include <gtest/gtest.h>

#include "engine/test/tiny_model.h"
#include "expect_error.h"

namespace heddle {
namespace {

using testing::byte_tokens;
using testing::run_all;

enum : int32_t { kBos = 256, kEos, kEot, kEom, kMark, kVocabSize };

model::ByteTokenizer tokenizer() {
  return {.control_tokens = {"<s>", "</s>", "<|eot|>", "<|eom|>", "<|mark|>"},
          .bos = kBos,
          .eos = kEos,
          .eot = kEot,
          .eom = kEom};
}

/// After a letter the next of the alphabet, after z the letter a; after 1, 2, 3 and 4 the tokens
/// eos, eot, eom and the mark, which ends nothing and is followed by "a".
std::vector<int32_t> alphabet() {
  std::vector<int32_t> next(size_t{kVocabSize}, 'a');
  for (size_t c = 'a'; c < 'z'; ++c) next[c] = static_cast<int32_t>(c + 1);
  next['1'] = kEos;
  next['2'] = kEot;
  next['3'] = kEom;
  next['4'] = kMark;
  return next;
}

Request after(std::string_view prompt, int64_t max_tokens) {
  return testing::request_of(byte_tokens(prompt), max_tokens);
}

Request raw(const std::string& text) {
  Request request;
  request.text = text;
  request.max_tokens = 1;
  return request;
}

class TinyModelAnswers : public ::testing::Test {
 protected:
  testing::TinyModel model{testing::scripted_llama(alphabet()), tokenizer()};
};

TEST_F(TinyModelAnswers, AreWhatTheModelSays) {
  Engine engine = model.engine();
  const Completion answer = run_all(engine, {after("xyzabc", 5)})[0];
  EXPECT_EQ(answer.text, "defgh");
  EXPECT_EQ(answer.token_ids, byte_tokens("defgh"));
  EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  EXPECT_EQ(answer.prompt_tokens, 6);
}

TEST_F(TinyModelAnswers, EndWithAnyOfTheEndTokens) {
  Engine engine = model.engine();
  const auto answers = run_all(
      engine, {after("b1", 4), after("b2", 4), after("b3", 4), after("b4", 4), after("y", 4)});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i].finish_reason, FinishReason::kStop);
    EXPECT_EQ(answers[i].token_ids, std::vector<int32_t>{});
    EXPECT_EQ(answers[i].logprobs.size(), 0u);
    EXPECT_EQ(answers[i].text, "");
  }
  EXPECT_EQ(answers[3].finish_reason, FinishReason::kLength);
  EXPECT_EQ(answers[3].text, "<|mark|>abc");
  EXPECT_EQ(answers[4].text, "zabc");
}

TEST_F(TinyModelAnswers, EndTokensCanBeIgnored) {
  Engine engine = model.engine();
  for (const char* prompt : {"1", "2", "3"}) {
    Request request = after(prompt, 3);
    request.ignore_end = true;
    const Completion answer = run_all(engine, {request})[0];
    EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
    EXPECT_EQ(answer.token_ids.size(), 3u);
  }
}

/// Strings that are met with the same token: the text ends before the one that begins first,
/// however they are listed.
TEST_F(TinyModelAnswers, EndBeforeTheFirstOfSeveralStopStrings) {
  Engine engine = model.engine();
  for (std::vector<std::string> stop :
       {std::vector<std::string>{"efg", "g", "fg"}, {"fg", "efg", "g"}, {"g", "fg", "efg"}}) {
    Request request = after("a", 20);
    request.stop = stop;
    const Completion answer = run_all(engine, {request})[0];
    EXPECT_EQ(answer.text, "bcd") << stop[0];
    EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
  }
  Request request = after("a", 20);
  request.stop = {"xy", "no", "hi"};  // "hi" comes first in the text
  EXPECT_EQ(run_all(engine, {request})[0].text, "bcdefg");
}

/// After "4" the model says the mark, then "abc...".
TEST_F(TinyModelAnswers, EndBeforeAStopStringThatIsASpecialToken) {
  struct Case {
    const char* prompt;
    std::vector<std::string> stop;
    const char *text, *with_stop;
  };
  const Case cases[] = {
      {"3", {"<|eom|>"}, "", "<|eom|>"},  // an end token, which also ends it alone
      {"4", {"<|mark|>"}, "", "<|mark|>"},
      {"4", {"<|mark|>ab"}, "", "<|mark|>ab"},
      {"4", {"rk|>abc"}, "", "rk|>abc"},
      {"4", {"<|mark|>b", "c"}, "ab", "abc"}};
  Engine engine = model.engine();
  for (const auto& [prompt, stop, text, with_stop] : cases) {
    for (const bool includes : {false, true}) {
      for (const bool skips : {false, true}) {
        Request request = after(prompt, 6);
        request.stop = stop;
        request.include_stop = includes;
        request.skip_special_tokens = skips;
        const Completion answer = run_all(engine, {request})[0];
        const std::string shown = !skips && stop[0] == "<|mark|>b" ? "<|mark|>" : "";
        const std::string mark = !skips && stop[0] == "rk|>abc" ? "<|ma" : "";
        EXPECT_EQ(answer.text, shown + mark + (includes ? with_stop : text)) << stop[0];
        EXPECT_EQ(answer.stop, stop.back());
        EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
      }
    }
  }
}

TEST_F(TinyModelAnswers, EndBeforeAStopStringThatGoesIntoTheEndToken) {
  Engine engine = model.engine();
  Request request = after("x", 9);  // "yz" and then "abc..."
  request.stop = {"z<|eot|>"};
  EXPECT_EQ(run_all(engine, {request})[0].text, "yzabcdefg");
  Engine ends = testing::TinyModel(testing::scripted_llama([] {
                                     std::vector<int32_t> next = alphabet();
                                     next['z'] = kEot;
                                     return next;
                                   }()),
                                   tokenizer())
                    .engine();
  const Completion answer = run_all(ends, {request})[0];
  EXPECT_EQ(answer.text, "y") << "the text ends before the stop string, whose end is no text";
  EXPECT_EQ(answer.stop, "z<|eot|>");
  request.stop = {"z<|eom|>"};
  EXPECT_EQ(run_all(ends, {request})[0].text, "yz");
  EXPECT_EQ(run_all(ends, {request})[0].stop, "");
}

TEST_F(TinyModelAnswers, FillTheContextToItsLastToken) {
  for (const int64_t context : {7, 8, 9, 64}) {
    Engine engine = model.engine({.page_size = 4, .max_context = context});
    for (const std::string prompt : {"a", "abcdef"}) {
      const Completion answer = run_all(engine, {after(prompt, 1000)})[0];
      EXPECT_EQ(answer.prompt_tokens + std::ssize(answer.token_ids), context);
      EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
    }
    const std::string full(static_cast<size_t>(context), 'a');
    const Completion refused = run_all(engine, {after(full, 1)})[0];
    EXPECT_EQ(refused.finish_reason, FinishReason::kError);
    const std::string wanted = "the prompt has " + std::to_string(context) + " tokens";
    EXPECT_EQ(refused.error.substr(0, wanted.size()), wanted);
  }
}

TEST_F(TinyModelAnswers, GiveTheirPagesBackHoweverTheyEnd) {
  Engine engine = model.engine({.max_batch = 2, .page_size = 4, .max_context = 16});
  for (int round = 0; round < 20; ++round) {
    Request stopped = after("a", 15);
    stopped.stop = {"de"};
    const auto answers =
        run_all(engine, {after("a", 15), stopped, after("ab1", 13), after("abcdefghijklmno", 1)});
    EXPECT_EQ(answers[0].text, "bcdefghijklmnop");
    EXPECT_EQ(answers[1].text, "bc");
    EXPECT_EQ(answers[2].finish_reason, FinishReason::kStop);
    EXPECT_EQ(answers[3].text, "p");
    const RequestId cancelled = engine.submit(after("abcdefghij", 6));
    (void)engine.step();
    EXPECT_TRUE(engine.cancel(cancelled));
    (void)engine.step();
    ASSERT_EQ(engine.num_unfinished(), 0) << "in round " << round;
  }
}

TEST_F(TinyModelAnswers, AreDrawnAsAGenerationConfigSays) {
  testing::TempFolder folder;
  const std::string path = folder.write(
      "generation_config.json",
      R"({"temperature": 0.6, "top_k": -1, "top_p": 0.95, "max_new_tokens": 7, "num_beams": 4,
          "eos_token_id": [100]})");  // d
  for (const std::string& option : {path, folder.path().string()}) {
    Engine engine = model.engine({.generation_config = option});
    const GenerationDefaults& defaults = engine.model().generation;
    EXPECT_EQ(defaults.path, path);
    EXPECT_EQ(defaults.describe(), "temperature 0.6, top_k 0, top_p 0.95, max_tokens 7");
    EXPECT_EQ(defaults.not_done, std::vector<std::string>{"num_beams is 4"});
    Request request = after("a", 20);
    EXPECT_EQ(run_all(engine, {request})[0].text, "bc") << "the end token of the file";
    request.sampling.min_p = 0.5f;
    defaults.apply(request);
    EXPECT_EQ(request.max_tokens, 7);
    EXPECT_EQ(request.sampling.temperature, 0.6f);
    EXPECT_EQ(request.sampling.top_p, 0.95f);
    EXPECT_EQ(request.sampling.min_p, 0.5f) << "which the file does not say";
    EXPECT_EQ(request.sampling.repetition_penalty, 1.0f);
  }
  for (const char* option : {"", "auto", "none"}) {
    Engine engine = model.engine({.generation_config = option});
    EXPECT_EQ(engine.model().generation.describe(), "");
    EXPECT_EQ(engine.model().generation.path.empty(), option == std::string("none"));
    EXPECT_EQ(run_all(engine, {after("a", 3)})[0].text, "bcd");
  }
  for (const auto& [text, message] :
       {std::pair(R"({"top_p": 1.5})", "top_p is 1.5, expected above 0 and up to 1"),
        std::pair(R"({"temperature": -1})", "temperature is -1, expected a finite number"),
        std::pair(R"({"min_p": 2})", "min_p is 2, expected 0 to 1"),
        std::pair(R"({"repetition_penalty": 0})", "repetition_penalty is 0, expected"),
        std::pair(R"({"top_k": 2.5})", "top_k is 2.5, expected an integer"),
        std::pair(R"({"max_new_tokens": 0})", "max_new_tokens is below 1"),
        std::pair(R"({"temperature": "hot"})", "temperature is \"hot\", expected a number"),
        std::pair("[]", "is an array, expected an object")}) {
    folder.write("generation_config.json", text);
    testing::expect_invalid({(path + ": ").c_str(), message, "--generation-config none"},
                            [&] { (void)model.engine({.generation_config = path}); });
  }
  testing::expect_invalid({"generation_config /nowhere: there is no file"},
                          [&] { (void)model.engine({.generation_config = "/nowhere"}); });
}

TEST(TinyModelPrompts, RawTextBeginsWithBosWhereTheFileSaysSo) {
  const model::ref::Llama alphabet_model = testing::scripted_llama(alphabet());
  for (const bool add_bos : {false, true}) {
    model::ByteTokenizer with_bos = tokenizer();
    with_bos.add_bos = add_bos;
    Engine engine = testing::TinyModel(alphabet_model, with_bos).engine();
    std::vector<int32_t> want = byte_tokens("hi");
    if (add_bos) want.insert(want.begin(), kBos);
    EXPECT_EQ(engine.tokenize(raw("hi")), want);
    EXPECT_EQ(run_all(engine, {raw("hi")})[0].prompt_tokens, std::ssize(want));
    EXPECT_EQ(engine.tokenize(after("hi", 1)), byte_tokens("hi"));
  }
  model::ByteTokenizer no_bos = tokenizer();
  no_bos.add_bos = true;
  no_bos.bos = -1;
  const testing::TinyModel wrong(alphabet_model, no_bos);
  testing::expect_invalid({"bos"}, [&] { (void)wrong.engine(); });
}

TEST(TinyModelPrompts, RawTextMayNameControlTokens) {
  const Engine engine =
      testing::TinyModel(testing::scripted_llama(alphabet()), tokenizer()).engine();
  const std::vector<int32_t> want{kMark, 'h', 'i', kEot};
  EXPECT_EQ(engine.tokenize(raw("<|mark|>hi<|eot|>")), want);
}

TEST(TinyModelPrompts, TokensWithoutARowAreRefusedWhereAPromptHasThem) {
  model::ByteTokenizer larger = tokenizer();
  larger.control_tokens.push_back("<|more|>");
  const testing::TinyModel model(testing::scripted_llama(alphabet()), larger);
  Engine engine = model.engine();
  EXPECT_EQ(testing::run_all(engine, {raw("hi")}).size(), 1u);
  testing::expect_invalid({"token id 261 ('<|more|>' of the tokenizer), the vocabulary has 261"},
                          [&] { engine.check(raw("hi<|more|>")); });
}

TEST(TinyModelPrompts, ConversationsGoThroughTheTemplateOfTheFile) {
  model::ByteTokenizer with_template = tokenizer();
  with_template.add_bos = true;  // of raw text alone: a template says it itself
  with_template.chat_template =
      "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }}"
      "{% endfor %}{% if add_generation_prompt %}>{% endif %}";
  const testing::TinyModel model(testing::scripted_llama(alphabet()), with_template);
  Engine engine = model.engine();
  std::vector<int32_t> want{kBos};
  for (const std::string part : {"s:x", "u:y"}) {
    for (const int32_t token : byte_tokens(part)) want.push_back(token);
    want.push_back(kEos);
  }
  want.push_back('>');
  Request request;
  request.messages = {{"s", "x"}, {"u", "y"}};
  EXPECT_EQ(engine.tokenize(request), want);
  request.messages.clear();
  request.messages_json = R"([{"role": "s", "content": "x"}, {"role": "u", "content": "y"}])";
  EXPECT_EQ(engine.tokenize(request), want);
  request.add_generation_prompt = false;
  want.pop_back();
  EXPECT_EQ(engine.tokenize(request), want);
  // Further variables, and fields that turns do not have, reach the template.
  request.template_kwargs_json = R"({"bos_token": "", "eos_token": "!"})";
  request.messages_json = R"([{"role": "u", "content": ["z"]}])";
  EXPECT_EQ(engine.tokenize(request), byte_tokens("u:['z']!"));
  // Text that is no JSON is an error that names the field.
  const auto expect_refused = [&](std::initializer_list<const char*> parts,
                                  JsonValue Request::*field, const std::string& text) {
    Request wrong = request;
    wrong.*field = text;
    testing::expect_invalid(parts, [&] { (void)engine.tokenize(wrong); });
  };
  expect_refused({"messages_json", "JSON"}, &Request::messages_json, "[{");
  expect_refused({"messages_json", "100"}, &Request::messages_json,
                 std::string(100'000, '[') + std::string(100'000, ']'));
  expect_refused({"tools_json"}, &Request::tools_json, "[");
  expect_refused({"documents_json"}, &Request::documents_json, "a");
  expect_refused({"template_kwargs_json"}, &Request::template_kwargs_json, "{");
}

}  // namespace
}  // namespace heddle
