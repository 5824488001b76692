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
}

}  // namespace
}  // namespace heddle
