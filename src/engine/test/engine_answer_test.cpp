// What an answer says, with models that say what the test wants: ends, stop strings, characters of
// several tokens, draws.
#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "heddle/engine/engine.h"

#include "engine/test/engine_cases.h"
#include "engine/test/model_files.h"
#include "engine/test/test_device.h"
#include "expect_error.h"

namespace heddle {
namespace {

using testing::ScriptedModel;

EngineOptions options_for(const ScriptedModel& model) {
  return {.model_path = model.path(),
          .device = testing::test_device(),
          .max_batch = 8,
          .num_threads = 1,
          .kv_memory = 1 << 20};
}

Request answer_to(int32_t token, int64_t max_tokens, std::vector<std::string> stop = {}) {
  Request request;
  request.token_ids = {token};
  request.max_tokens = max_tokens;
  request.stop = std::move(stop);
  return request;
}

/// A model that goes on with the next of these pieces, over and over.
class Speaker {
 public:
  explicit Speaker(const testing::TinyVocabulary& vocabulary)
      : model_(vocabulary, testing::one_after_another(vocabulary.tokens.size())),
        last_(static_cast<int32_t>(vocabulary.tokens.size()) - 1),
        engine_(options_for(model_)) {}

  /// What is said from the first piece on.
  Completion say(int64_t max_tokens, std::vector<std::string> stop = {}) {
    return testing::run_all(engine_, {answer_to(last_, max_tokens, std::move(stop))}).front();
  }
  [[nodiscard]] Engine& engine() { return engine_; }

 private:
  ScriptedModel model_;
  int32_t last_;
  Engine engine_;
};

void expect_answer(const Completion& answer, const std::string& text, size_t num_tokens,
                   FinishReason reason) {
  EXPECT_EQ(answer.text, text);
  EXPECT_EQ(answer.token_ids.size(), num_tokens) << text;
  EXPECT_EQ(answer.finish_reason, reason) << text;
}

TEST(EngineAnswer, EndsBeforeAStopStringThatSeveralTokensMake) {
  Speaker speaker({.tokens = {"on", "e", "st", "op", "two"}});
  expect_answer(speaker.say(5), "onestoptwo", 5, FinishReason::kLength);
  expect_answer(speaker.say(5, {"stop"}), "one", 4, FinishReason::kStop);
  expect_answer(speaker.say(5, {"nest"}), "o", 3, FinishReason::kStop);
  expect_answer(speaker.say(5, {"ptwoo"}), "onestoptwo", 5, FinishReason::kLength);
}

TEST(EngineAnswer, EndsBeforeTheFirstInTheTextOfSeveralStopStrings) {
  Speaker speaker({.tokens = {"abcdef", "g"}});
  for (const std::vector<std::string>& stop :
       {std::vector<std::string>{"c", "e"}, {"e", "c"}, {"ef", "zz", "cd"}, {"cdef", "f"}}) {
    expect_answer(speaker.say(2, stop), "ab", 1, FinishReason::kStop);
  }
  expect_answer(speaker.say(2, {"abc", "bc"}), "", 1, FinishReason::kStop);
}

TEST(EngineAnswer, GivesTextThatWasHeldForAStopStringWhenItEnds) {
  Speaker speaker({.tokens = {"on", "e", "st", "op", "<end>"}, .ends = {{"eos", 4}}});
  expect_answer(speaker.say(3, {"stopped"}), "onest", 3, FinishReason::kLength);
  expect_answer(speaker.say(9, {"stopped"}), "onestop", 4, FinishReason::kStop);
  const RequestId id = speaker.engine().submit(answer_to(4, 9, {"stopped"}));
  for (int i = 0; i < 3; ++i) (void)speaker.engine().step();
  EXPECT_TRUE(speaker.engine().cancel(id));
  const std::vector<Event> events = speaker.engine().step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "st");
  expect_answer(*events[0].completion, "onest", 3, FinishReason::kCancelled);
}

TEST(EngineAnswer, PutsACharacterOfTwoTokensTogetherInOneEvent) {
  // 0xC3 0xA9 in the alphabet of byte-level BPE: an e with an acute accent.
  Speaker speaker({.tokens = {"a", "\u00C3", "\u00A9", "b"}});
  const RequestId id = speaker.engine().submit(answer_to(3, 4));
  std::vector<std::string> texts;
  while (speaker.engine().num_unfinished() > 0) {
    for (const Event& event : speaker.engine().step()) {
      EXPECT_EQ(event.request, id);
      texts.push_back(event.text);
    }
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"a", "\xC3\xA9", "b"}));
  expect_answer(speaker.say(2), "a\xEF\xBF\xBD", 2, FinishReason::kLength);
}

TEST(EngineAnswer, EndsAtEveryEndTokenUnlessItIsToldNotTo) {
  for (const char* const which : {"eos", "eot"}) {
    testing::TinyVocabulary vocabulary{.tokens = {"a", "b", "c", "<eos>", "d", "<eot>"},
                                       .ends = {{"eos", 3}, {"eot", 5}}};
    // From the last token on: up to "c", and up to "d" where the answer begins after <eos>.
    const ScriptedModel model(vocabulary, testing::one_after_another(6));
    Engine engine(options_for(model));
    const bool is_eos = std::string(which) == "eos";
    const Request request = answer_to(is_eos ? 5 : 3, 9);
    expect_answer(testing::run_all(engine, {request}).front(), is_eos ? "abc" : "d", is_eos ? 3 : 1,
                  FinishReason::kStop);
    Request with_tops = request;
    with_tops.top_logprobs = 2;
    const Completion ended = testing::run_all(engine, {with_tops}).front();
    EXPECT_EQ(ended.top_token_ids.size(), 2 * ended.token_ids.size()) << "none of the end token's";
    EXPECT_EQ(ended.top_logprobs.size(), 2 * ended.token_ids.size());
    Request endless = request;
    endless.ignore_end = true;
    expect_answer(testing::run_all(engine, {endless}).front(),
                  is_eos ? "abc<eos>d<eot>abc" : "d<eot>abc<eos>d<eot>a", 9, FinishReason::kLength);
  }
}

TEST(EngineAnswer, IsNotEndedBeforeItsLeastLength) {
  const testing::TinyVocabulary vocabulary{.tokens = {"a", "b", "<eos>", "c", "d"},
                                           .ends = {{"eos", 2}}};
  const ScriptedModel model(vocabulary, testing::one_after_another(5));
  Engine engine(options_for(model));
  const auto say = [&](const Request& request) {
    return testing::run_all(engine, {request}).front();
  };
  Request request = answer_to(4, 8);
  expect_answer(say(request), "ab", 2, FinishReason::kStop);
  request.min_tokens = 2;
  expect_answer(say(request), "ab", 2, FinishReason::kStop);
  request.min_tokens = 3;  // <eos> is not drawn as the third, and what comes instead goes on
  EXPECT_GE(say(request).token_ids.size(), 3u);
  EXPECT_EQ(std::ranges::count(say(request).token_ids, 2), 0);
  // stop_token_ids end as <eos> does, and so they are not drawn before either.
  request = answer_to(4, 8);
  request.stop_token_ids = {1};
  expect_answer(say(request), "a", 1, FinishReason::kStop);
  request.ignore_end = true;
  expect_answer(say(request), "a", 1, FinishReason::kStop);
  request.min_tokens = 2;
  EXPECT_NE(say(request).token_ids.at(1), 1);
}

TEST(EngineAnswer, LooksForStopStringsBehindItsLeastLength) {
  Speaker speaker({.tokens = {"on", "e", "st", "op"}});
  Request request = answer_to(3, 8, {"on"});
  const auto say = [&] { return testing::run_all(speaker.engine(), {request}).front(); };
  expect_answer(say(), "", 1, FinishReason::kStop);
  request.min_tokens = 1;
  expect_answer(say(), "onestop", 5, FinishReason::kStop);
  request.min_tokens = 6;
  expect_answer(say(), "onestoponestop", 8, FinishReason::kLength);
}

TEST(EngineAnswer, HasNoBadWord) {
  Speaker speaker({.tokens = {"a", "b", "c", "d"}});
  Request request = answer_to(3, 4);
  const auto say = [&] { return testing::run_all(speaker.engine(), {request}).front(); };
  expect_answer(say(), "abcd", 4, FinishReason::kLength);
  request.bad_words = {"bc"};
  const Completion answer = say();
  EXPECT_EQ(answer.text.substr(0, 2), "ab");
  EXPECT_EQ(answer.text.find("bc"), std::string::npos) << answer.text;
  request.bad_words = {"c", "da"};  // a token alone; a word that does not come
  EXPECT_EQ(say().text.find('c'), std::string::npos);
  // Of the prompt nothing counts.
  request.token_ids = {0};
  request.max_tokens = 1;
  request.bad_words = {"ab"};
  expect_answer(say(), "b", 1, FinishReason::kLength);
}

/// A model that says "a bcd" over and over, in which "b" is a token of its own within a word.
ScriptedModel alphabet() {
  // In the alphabet of byte-level BPE a space is U+0120.
  const testing::TinyVocabulary vocabulary{.tokens = {"a", "\u0120b", "c", "d", "b", "\u0120"},
                                           .merges = {"\u0120 b"}};
  ScriptedModel::Logits logits = testing::one_after_another(4);
  logits.push_back({{2, 0.0f}});  // "bc"
  logits.push_back({{4, 0.0f}});  // a space, then "b"
  return {vocabulary, logits};
}

/// A word is forbidden as the answer's beginning, within it and after a space, where it is another
/// token; and nothing else is that only begins like it.
TEST(EngineAnswer, HasNoBadWordBehindASpace) {
  const ScriptedModel model = alphabet();
  Engine engine(options_for(model));
  const auto next = [&](int32_t after, std::vector<std::string> words) {
    Request request = answer_to(after, 1);
    request.bad_words = std::move(words);
    return testing::run_all(engine, {request}).front().token_ids.front();
  };
  EXPECT_EQ(next(0, {}), 1);
  EXPECT_EQ(next(5, {}), 4);
  for (const char* word : {"b", " b", "  b"}) {
    EXPECT_NE(next(0, {word}), 1) << "after a space";
    EXPECT_NE(next(5, {word}), 4) << "within a word";
    EXPECT_EQ(next(1, {word}), 2) << "what follows it";
    EXPECT_NE(next(0, {"d", word}), 1) << "not the first of them alone";
  }
  EXPECT_NE(next(3, {"a"}), 0) << "at the answer's beginning";
  EXPECT_EQ(next(3, {"ab", "cb"}), 0) << "a beginning of it alone is none";
  EXPECT_EQ(next(0, {"ab"}), 1) << "of the prompt nothing counts";
}

TEST(EngineAnswer, HasNoBadWordOfSeveralTokens) {
  const ScriptedModel model = alphabet();
  Engine engine(options_for(model));
  const auto say = [&](std::vector<std::string> words) {
    Request request = answer_to(3, 5);
    request.bad_words = std::move(words);
    return testing::run_all(engine, {request}).front();
  };
  expect_answer(say({}), "a bcda", 5, FinishReason::kLength);
  for (const char* word : {"bc", " bc"}) {  // " b" is a token that "bc" has none of
    const Completion answer = say({word});
    EXPECT_EQ(answer.text.substr(0, 3), "a b") << word;
    EXPECT_NE(answer.token_ids[2], 2) << word;
  }
  const Completion three = say({"bcd"});
  EXPECT_EQ(three.text.substr(0, 4), "a bc");
  EXPECT_NE(three.token_ids[3], 3);
  expect_answer(say({"acd", "dbc", "bcb", "bb"}), "a bcda", 5, FinishReason::kLength);
}

/// Of several stop strings the one that begins first ends the text; of those that begin in one
/// place the one that is given first.
TEST(EngineAnswer, KeepsTheStopStringThatEndsIt) {
  Speaker speaker({.tokens = {"abcdef", "gh", "i"}});
  Request request = answer_to(2, 9);
  request.include_stop = true;
  const auto say = [&](std::vector<std::string> stop) {
    request.stop = std::move(stop);
    return testing::run_all(speaker.engine(), {request}).front();
  };
  struct Case {
    std::vector<std::string> stop;
    const char *text, *met;
  };
  const Case cases[] = {{{"ef", "cd"}, "abcd", "cd"},       {{"cd", "ef"}, "abcd", "cd"},
                        {{"zz", "f", "de"}, "abcde", "de"}, {{"a", "abcdef"}, "a", "a"},
                        {{"cdef", "cd"}, "abcdef", "cdef"}, {{"i", "fg"}, "abcdefg", "fg"},
                        {{"ghi", "hi"}, "abcdefghi", "ghi"}};
  for (const auto& [stop, text, met] : cases) {
    const Completion answer = say(stop);
    EXPECT_EQ(answer.text, text);
    EXPECT_EQ(answer.stop, met) << text;
    EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
    request.include_stop = false;
    const std::string whole = text;
    EXPECT_EQ(say(stop).text, whole.substr(0, whole.size() - std::string(met).size()));
    request.include_stop = true;
  }
}

TEST(EngineAnswer, RefusesPenaltiesAndEndsOfNoMeaning) {
  Speaker speaker({.tokens = {"a", "b"}});
  const auto refusal = [&](const auto& change) {
    Request request = answer_to(0, 3);
    change(request);
    return testing::message_of([&] { speaker.engine().check(request); });
  };
  EXPECT_EQ(refusal([](Request&) {}), "no error");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.repetition_penalty = 0; }),
            "repetition_penalty is 0, expected a finite number above 0 (1: off)");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.presence_penalty = 2.5f; }),
            "presence_penalty is 2.5, expected -2 to 2 (0: off)");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.frequency_penalty = -3; }),
            "frequency_penalty is -3, expected -2 to 2 (0: off)");
  EXPECT_EQ(refusal([](Request& r) {
              r.logit_bias = {{1, 101.0f}};
            }),
            "logit_bias of token 1 is 101, expected -100 to 100");
  EXPECT_EQ(refusal([](Request& r) {
              r.logit_bias = {{1, 1.0f}, {0, 0.0f}, {1, 2.0f}};
            }),
            "logit_bias has token 1 twice");
  EXPECT_EQ(refusal([](Request& r) {
              r.logit_bias = {{2, 1.0f}};
            }),
            "logit_bias has token 2, the vocabulary has 2");
  EXPECT_EQ(refusal([](Request& r) {
              r.logit_bias = {{-1, 1.0f}};
            }),
            "logit_bias has token -1, expected at least 0");
  EXPECT_EQ(refusal([](Request& r) { r.stop_token_ids = {7}; }),
            "stop_token_ids has token 7, the vocabulary has 2");
  EXPECT_EQ(refusal([](Request& r) { r.top_logprobs = 101; }),
            "top_logprobs is 101, expected 0 to 100");
  EXPECT_EQ(refusal([](Request& r) { r.top_logprobs = 3; }),
            "top_logprobs is 3, the vocabulary has 2");
  EXPECT_EQ(refusal([](Request& r) { r.min_tokens = 4; }),
            "min_tokens is 4, expected 0 to max_tokens = 3");
  EXPECT_EQ(refusal([](Request& r) {
              r.bad_words = {"a", ""};
            }),
            "bad_words[1] is empty, expected at least one character");
  EXPECT_EQ(refusal([](Request& r) { r.bad_words = {" "}; }), "bad_words[0] has no tokens");
}

/// A model that draws each token anew: 0 to 3 with these shares, whatever was before.
constexpr double kShares[] = {0.5, 0.3, 0.15, 0.05};

ScriptedModel dice() {
  ScriptedModel::Logits logits(4);
  for (auto& follow : logits) {
    for (int t = 0; t < 4; ++t) follow[t] = static_cast<float>(std::log(kShares[t]));
  }
  return {{.tokens = {"a", "b", "c", "d"}}, logits};
}

/// What ten rows of 40 draws show, each drawn with a seed of its own.
std::set<int32_t> drawn_with(Engine& engine, SamplingOptions sampling) {
  std::vector<Request> requests;
  for (int i = 0; i < 10; ++i) {
    requests.push_back(answer_to(0, 40));
    requests.back().sampling = sampling;
    requests.back().sampling.seed = i;
  }
  std::set<int32_t> tokens;
  for (const Completion& answer : testing::run_all(engine, requests)) {
    tokens.insert(answer.token_ids.begin(), answer.token_ids.end());
    for (size_t i = 0; i < answer.token_ids.size(); ++i) {
      const double share = kShares[static_cast<size_t>(answer.token_ids[i])];
      // On a GPU the logits, log(share), are rounded once, and so is each in their sum.
      const double largest = -std::log(kShares[3]);
      const double tolerance =
          testing::is_on_cpu() ? 1e-4 : 2 * testing::kRounding<bfloat16> * largest;
      EXPECT_NEAR(answer.logprobs[i], std::log(share), tolerance)
          << "without temperature and filters";
    }
  }
  return tokens;
}

TEST(EngineSampling, HeedsEachFilterOfARequest) {
  const ScriptedModel model = dice();
  Engine engine(options_for(model));
  using Tokens = std::set<int32_t>;
  EXPECT_EQ(drawn_with(engine, {}), Tokens{0});
  EXPECT_EQ(drawn_with(engine, {.temperature = 1.0f}), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(drawn_with(engine, {.temperature = 1.0f, .top_k = 3}), (Tokens{0, 1, 2}));
  EXPECT_EQ(drawn_with(engine, {.temperature = 1.0f, .top_p = 0.7f}), (Tokens{0, 1}));
  EXPECT_EQ(drawn_with(engine, {.temperature = 1.0f, .min_p = 0.2f}), (Tokens{0, 1, 2}));
  EXPECT_EQ(drawn_with(engine, {.temperature = 0.05f}), Tokens{0}) << "cold";
  EXPECT_EQ(drawn_with(engine, {.temperature = 9.0f, .top_k = 2}), (Tokens{0, 1}));
}

TEST(EngineSampling, ADrawDependsOnSeedAndPlaceInTheAnswerAlone) {
  const ScriptedModel model = dice();
  Engine engine(options_for(model));
  std::vector<Request> requests(4, answer_to(0, 40));
  for (Request& request : requests) request.sampling = {.temperature = 1.0f, .seed = 7};
  requests[1].token_ids = {0, 1, 2, 3, 0, 1, 2};  // a longer prompt
  requests[2].max_tokens = 20;
  requests[3].sampling.seed = 8;
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  EXPECT_EQ(answers[1].token_ids, answers[0].token_ids);
  EXPECT_TRUE(std::equal(answers[2].token_ids.begin(), answers[2].token_ids.end(),
                         answers[0].token_ids.begin()));
  EXPECT_NE(answers[3].token_ids, answers[0].token_ids);
  EXPECT_GT(std::set<int32_t>(answers[0].token_ids.begin(), answers[0].token_ids.end()).size(), 1u)
      << "draws of one row differ";
}

}  // namespace
}  // namespace heddle
