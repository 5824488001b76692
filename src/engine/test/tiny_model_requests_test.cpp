// What an engine refuses, counts and reports of a cancelled request, on a small random model.
#include <gtest/gtest.h>

#include "engine/test/tiny_model.h"
#include "expect_error.h"

namespace heddle {
namespace {

using testing::byte_tokens;
using testing::request_of;
using testing::run_all;

/// A model that answers each letter with the next.
model::ref::Llama alphabet() {
  std::vector<int32_t> next(256, 'a');
  for (size_t c = 'a'; c < 'z'; ++c) next[c] = static_cast<int32_t>(c + 1);
  return testing::scripted_llama(next);
}

class TinyModelRequests : public ::testing::Test {
 protected:
  testing::TinyModel model{alphabet()};
  Engine engine = model.engine({.max_batch = 2, .page_size = 4, .prefill_chunk = 4});

  /// `submit` ends the request with the error that `check` throws.
  void expect_refused(const Request& request, const char* says,
                      RequestError code = RequestError::kInvalidArgument) {
    testing::expect_invalid({says}, [&] { engine.check(request); });
    const Completion completion = run_all(engine, {request})[0];
    EXPECT_EQ(completion.finish_reason, FinishReason::kError);
    EXPECT_EQ(completion.error_code, code);
    EXPECT_NE(completion.error.find(says), std::string::npos) << completion.error;
    EXPECT_TRUE(completion.token_ids.empty());
  }
};

TEST_F(TinyModelRequests, AreRefusedInOneSentence) {
  expect_refused(Request{}, "a request has 0 of messages, text and token_ids, expected one");
  Request two = request_of({'a'});
  two.text = "a";
  expect_refused(two, "a request has 2 of messages, text and token_ids");
  expect_refused(request_of({'a', 256}), "token id 256, the vocabulary has 256");
  expect_refused(request_of({-1}), "token id -1");
  expect_refused(request_of({}), "the prompt has no tokens");
  expect_refused(request_of({'a'}, -1), "max_tokens is -1, expected at least 0");
  Request other = request_of({'a'});
  other.adapter = "nobody";
  expect_refused(other, "unknown adapter \"nobody\"", RequestError::kUnknownAdapter);
  Request chat;
  chat.messages = {{"user", "hi"}};
  expect_refused(chat, "the model has no chat template");
  chat.messages_json = "[]";
  expect_refused(chat, "a request has messages and messages_json");
  for (const auto& [change, field] :
       {std::pair<void (*)(Request&), const char*>{[](Request& r) { r.tools_json = "[]"; },
                                                   "tools_json"},
        {[](Request& r) { r.documents_json = "[]"; }, "documents_json"},
        {[](Request& r) { r.template_kwargs_json = "{}"; }, "template_kwargs_json"},
        {[](Request& r) { r.add_generation_prompt = false; }, "add_generation_prompt = false"}}) {
    Request plain = request_of({'a'});
    change(plain);
    expect_refused(plain, field);
  }
}

TEST_F(TinyModelRequests, TheContextIsWithinTheModels) {
  const auto with = [&](const EngineOptions& options) {
    return testing::message_of([&] { (void)model.engine(options); });
  };
  EXPECT_EQ(with({.max_context = 65}).substr(0, 18), "max_context is 65,");
  EXPECT_EQ(with({.max_context = -1}).substr(0, 18), "max_context is -1,");
  EXPECT_EQ(model.engine().options().max_context, 64);
}

/// What may become a stop string is held until the answer ends, then reported.
TEST_F(TinyModelRequests, HeldTextIsToldAtTheEnd) {
  Request request = request_of({'a'}, 4);
  request.stop = {"dezzz"};
  EXPECT_EQ(run_all(engine, {request})[0].text, "bcde");
  request.max_tokens = 20;
  const RequestId id = engine.submit(request);
  std::string text;
  for (int step = 0; step < 4; ++step) {
    for (const Event& event : engine.step()) text += event.text;
  }
  EXPECT_EQ(text, "bc");
  EXPECT_TRUE(engine.cancel(id));
  EXPECT_FALSE(engine.cancel(id));
  const std::vector<Event> events = engine.step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].request, id);
  EXPECT_EQ(events[0].text, "de");
  ASSERT_TRUE(events[0].completion);
  EXPECT_EQ(events[0].completion->text, "bcde");
  EXPECT_EQ(events[0].completion->token_ids, byte_tokens("bcde"));
  EXPECT_EQ(events[0].completion->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(engine.num_unfinished(), 0);
}

/// A token comes with the event of its step, also where its text is held back.
TEST_F(TinyModelRequests, TellTheirTokensWhenTheyAreDrawn) {
  Request request = request_of({'a'}, 4);
  request.stop = {"cdz"};
  request.tell_tokens = true;
  request.top_logprobs = 2;
  (void)engine.submit(request);
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  while (engine.num_unfinished() > 0) {
    const std::vector<Event> events = engine.step();
    ASSERT_EQ(events.size(), 1u);
    const DrawnTokens& drawn = events[0].tokens;
    ASSERT_EQ(drawn.ids.size(), 1u);
    EXPECT_EQ(drawn.top_ids.size(), 2u);
    EXPECT_EQ(drawn.top_ids[0], drawn.ids[0]);
    EXPECT_EQ(drawn.top_logprobs[0], drawn.logprobs[0]);
    tokens.push_back(drawn.ids[0]);
    logprobs.push_back(drawn.logprobs[0]);
    if (!events[0].completion) continue;
    const Completion& answer = *events[0].completion;
    EXPECT_EQ(tokens, answer.token_ids);
    EXPECT_EQ(logprobs, answer.logprobs);
    EXPECT_EQ(answer.prompt_token_ids, byte_tokens("a"));
    EXPECT_EQ(answer.token_texts->bytes(tokens[0]), "b");
    EXPECT_EQ(answer.token_texts->bytes(-1), "");
    EXPECT_FALSE(answer.token_texts->is_special(tokens[0]));
  }
  EXPECT_EQ(tokens, byte_tokens("bcde"));
}

/// It keeps its place and loses nothing; the others go on.
TEST_F(TinyModelRequests, MayBePaused) {
  const Request request = request_of({'a'}, 6);
  std::vector<testing::Outcome> outcomes(2);
  const RequestId first = engine.submit(request), second = engine.submit(request);
  testing::take(engine.step(), first, outcomes);
  EXPECT_TRUE(engine.set_paused(first, true));
  for (int step = 0; step < 20; ++step) testing::take(engine.step(), first, outcomes);
  EXPECT_EQ(outcomes[0].num_completions, 0);
  // On a GPU a second step was in flight.
  EXPECT_EQ(outcomes[0].streamed, testing::is_on_cpu() ? "b" : "bc");
  EXPECT_EQ(outcomes[1].num_completions, 1);
  EXPECT_EQ(engine.load().num_running, 1);
  EXPECT_TRUE(engine.set_paused(first, false));
  while (engine.num_unfinished() > 0) testing::take(engine.step(), first, outcomes);
  EXPECT_EQ(outcomes[0].completion.text, "bcdefg");
  testing::expect_same(outcomes[0].completion, outcomes[1].completion, "paused");
  EXPECT_FALSE(engine.set_paused(second, true)) << "it has ended";
}

TEST_F(TinyModelRequests, DrawAllowedTokensAlone) {
  Request request = request_of({'a'}, 3);
  request.allowed_token_ids = byte_tokens("xy");
  const Completion answer = run_all(engine, {request})[0];
  EXPECT_EQ(answer.text.find_first_not_of("xy"), std::string::npos);
  EXPECT_EQ(answer.token_ids.size(), 3u);
  request.logit_bias = {{byte_tokens("b")[0], 100.0f}};
  EXPECT_EQ(run_all(engine, {request})[0].text, answer.text) << "a bias allows nothing";
  request.allowed_token_ids = {-1};
  EXPECT_NE(run_all(engine, {request})[0].error.find("allowed_token_ids"), std::string::npos);
}

TEST_F(TinyModelRequests, AreCutToTheirLastTokens) {
  Request request = request_of({'x', 'y', 'a'}, 2);
  request.truncate_prompt_tokens = 1;
  const Completion answer = run_all(engine, {request})[0];
  EXPECT_EQ(answer.prompt_tokens, 1);
  EXPECT_EQ(answer.text, "bc");
  request.truncate_prompt_tokens = 4;
  EXPECT_EQ(run_all(engine, {request})[0].prompt_tokens, 3);
  request.truncate_prompt_tokens = -1;
  EXPECT_NE(run_all(engine, {request})[0].error.find("truncate_prompt_tokens"), std::string::npos);
}

TEST_F(TinyModelRequests, TellWhatEndedThem) {
  Request request = request_of({'a'}, 9);
  request.stop = {"zz", "d"};
  Completion answer = run_all(engine, {request})[0];
  EXPECT_EQ(answer.text + "|" + answer.stop, "bc|d");
  request.include_stop = true;
  EXPECT_EQ(run_all(engine, {request})[0].text, "bcd");
  request.stop = {};
  request.stop_token_ids = byte_tokens("e");
  answer = run_all(engine, {request})[0];
  EXPECT_EQ(answer.stop_token, byte_tokens("e")[0]);
  EXPECT_EQ(answer.stop, "");
}

TEST_F(TinyModelRequests, AreCounted) {
  // Prompts of 5 and 3 tokens with 4 in a step: 4 of the first, its last and 3, then decode steps.
  (void)run_all(engine, {request_of(byte_tokens("abcde"), 4), request_of(byte_tokens("abc"), 2)});
  const EngineStats& stats = engine.stats();
  EXPECT_EQ(stats.prefill_tokens, 8);
  EXPECT_EQ(stats.prefill_steps, 2);
  EXPECT_EQ(stats.generated_tokens, 6);
  EXPECT_EQ(stats.decode_tokens, 4);
  EXPECT_EQ(stats.decode_steps, 3);
  EXPECT_GT(stats.prefill_seconds, 0.0);
  EXPECT_GT(stats.decode_seconds, 0.0);
  EXPECT_EQ(stats.lora_seconds, 0.0);
}

TEST_F(TinyModelRequests, TheModelIsToldAsItIs) {
  const ModelInfo& info = engine.model();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.num_layers, 1);
  EXPECT_EQ(info.hidden_size, 256);
  EXPECT_EQ(info.intermediate_size, 40);
  EXPECT_EQ(info.num_q_heads, 6);
  EXPECT_EQ(info.num_kv_heads, 2);
  EXPECT_EQ(info.head_dim, 8);
  EXPECT_EQ(info.vocab_size, 256);
  EXPECT_EQ(info.context_length, 64);
  const bool on_cpu = engine.options().device == "cpu";
  EXPECT_EQ(info.device_name.empty(), on_cpu);
  EXPECT_EQ(info.activations, on_cpu ? "f32" : "bf16");
  // Embedding and head, three norms; q, o, k, v; gate, up, down.
  EXPECT_EQ(info.num_parameters,
            2 * 256 * 256 + 3 * 256 + 256 * (48 + 48 + 16 + 16) + 3 * 256 * 40);
}

/// An answer goes on while a prompt is prefilled: its token is no prompt's, nor of a decode step.
TEST_F(TinyModelRequests, AreCountedWhereAPromptMeetsAnAnswer) {
  (void)run_all(engine, {request_of(byte_tokens("a"), 3), request_of(byte_tokens("abcdef"), 2)});
  // 1 and 4 tokens of prompts; one of the answer and 2; one of each answer.
  const EngineStats& stats = engine.stats();
  EXPECT_EQ(stats.prefill_tokens, 7);
  EXPECT_EQ(stats.prefill_steps, 2);
  EXPECT_EQ(stats.generated_tokens, 5);
  EXPECT_EQ(stats.decode_tokens, 2);
  EXPECT_EQ(stats.decode_steps, 1);
}

TEST(TinyModelOptions, AStepOfMoreTokensThanAnIndexCountsIsRefused) {
  model::ref::Llama long_model = alphabet();
  long_model.config.context_length = int64_t{1} << 30;
  const testing::TinyModel model(long_model);
  const auto made = [&] {
    return model.engine({.max_batch = 2, .prefill_chunk = 2147483647, .kv_memory = 1 << 20});
  };
  if (!testing::is_on_cpu()) {
    EXPECT_EQ(made().options().prefill_chunk, 65536);
    return;
  }
  testing::expect_invalid(
      {"prefill_chunk is 2147483647, expected at most 2147483645 with max_batch = 2"},
      [&] { (void)made(); });
}

}  // namespace
}  // namespace heddle
