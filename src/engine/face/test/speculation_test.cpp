// Speculation: whatever is drafted, every answer has the bits that it has without.
#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "engine/face/made_engine.h"
#include "engine/rows/row_drafts.h"
#include "engine/rules/grammar/grammar_library.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"

namespace heddle {
namespace {

using testing::random_int;
using testing::run_whole;

constexpr int32_t kEnd = 256;
using Draft = decltype(EngineHooks::draft);

model::DecoderConfig config() {
  model::DecoderConfig config = testing::tiny_config(257);
  config.context_length = 96;
  return config;
}

/// Answers that are known, by their prompts: drafts are made of them.
class KnownAnswers {
 public:
  void add(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer) {
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    texts_.push_back({prompt.size(), std::move(all)});
  }
  /// What follows `tokens` in the one answer that begins so; empty where there is none.
  [[nodiscard]] std::span<const int32_t> after(std::span<const int32_t> tokens) const {
    for (const auto& [prompt, all] : texts_) {
      const bool fits = tokens.size() >= prompt && tokens.size() < all.size() &&
                        std::ranges::equal(tokens, std::span(all).first(tokens.size()));
      if (fits) return std::span(all).subspan(tokens.size());
    }
    return {};
  }

 private:
  struct Text {
    size_t prompt;
    std::vector<int32_t> all;
  };
  std::vector<Text> texts_;
};

using Answers = std::shared_ptr<const KnownAnswers>;

void take_right(const KnownAnswers& answers, std::span<const int32_t> tokens, int64_t count,
                std::vector<int32_t>& drafts) {
  const auto right = answers.after(tokens);
  const auto num = std::min(right.size(), static_cast<size_t>(count));
  drafts.assign(right.begin(), right.begin() + static_cast<ptrdiff_t>(num));
}

/// All kinds of drafts that there are to be.
const std::vector<std::pair<const char*, std::function<Draft(Answers)>>> kDrafts = {
    {"right",
     [](Answers answers) {
       return [answers](std::span<const int32_t> tokens, int64_t count, std::vector<int32_t>& to) {
         take_right(*answers, tokens, count, to);
       };
     }},
    {"wrong",
     [](Answers answers) {
       return [answers](std::span<const int32_t> tokens, int64_t count, std::vector<int32_t>& to) {
         take_right(*answers, tokens, count, to);
         for (int32_t& token : to) token = (token + 1) % 257;
       };
     }},
    {"right up to somewhere",
     [](Answers answers) {
       return [answers](std::span<const int32_t> tokens, int64_t count, std::vector<int32_t>& to) {
         take_right(*answers, tokens, random_int(0, count), to);
         while (std::ssize(to) < count && random_int(0, 3) > 0) {
           to.push_back(static_cast<int32_t>(random_int(0, 256)));
         }
       };
     }},
    {"random",
     [](Answers /*answers*/) {
       return [](std::span<const int32_t>, int64_t count, std::vector<int32_t>& to) {
         to = testing::random_tokens(random_int(0, count), 257);
       };
     }},
    {"the end",
     [](Answers /*answers*/) {
       return [](std::span<const int32_t>, int64_t count, std::vector<int32_t>& to) {
         to.assign(static_cast<size_t>(count), kEnd);
       };
     }},
    {"hostile", [](Answers answers) {
       return [answers](std::span<const int32_t> tokens, int64_t count, std::vector<int32_t>& to) {
         take_right(*answers, tokens, random_int(0, count), to);
         for (const int32_t token : {-1, 257, std::numeric_limits<int32_t>::max(),
                                     std::numeric_limits<int32_t>::min(), 40}) {
           to.push_back(token);
         }
         to.resize(100, 7);
       };
     }}};

class SpeculationTest : public ::testing::Test {
 protected:
  Engine engine(Draft draft, EngineOptions options = {}, bool as_on_gpu = false) {
    options.model_path = model_.path();
    options.num_threads = 2;
    if (options.device.empty()) options.device = testing::test_device();
    if (draft) options.speculation = {.method = "ngram", .max_drafts = kMaxRowDrafts};
    Engine engine = open_engine(
        options, {.as_on_gpu = as_on_gpu, .steps_as_on_gpu = as_on_gpu, .draft = std::move(draft)});
    (void)engine.add_adapter("one", one_.folder.path().string());
    (void)engine.add_adapter("two", two_.folder.path().string());
    return engine;
  }

  /// Requests with everything that a request may have, of prompts that differ.
  static std::vector<Request> requests(int64_t count) {
    std::vector<Request> all;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<int32_t> prompt = testing::random_tokens(random_int(2, 30));
      prompt.front() = static_cast<int32_t>(i);
      Request request = testing::request_of(std::move(prompt), random_int(1, 50));
      if (i % 3 != 0) request.sampling = {.temperature = 1.2f, .seed = random_int(0, 1 << 20)};
      if (i % 2 == 0) request.ignore_end = true;
      if (i % 4 == 1) request.adapter = "one";
      if (i % 4 == 2) request.adapters = {{"one", 0.5f}, {"two", 2.0f}};
      if (i % 5 == 1) request.sampling.presence_penalty = 1.5f;
      if (i % 5 == 2) request.sampling.repetition_penalty = 1.3f;
      if (i % 5 == 3) request.min_tokens = std::min<int64_t>(request.max_tokens, 6);
      if (i % 6 == 3) request.bad_words = {"a", "bc"};
      if (i % 6 == 4) request.logit_bias = {{kEnd, 4.0f}, {65, 2.0f}};
      if (i % 7 == 3) request.stop = {"e", "Q"};
      if (i % 7 == 4) request.stop_token_ids = {100, 101, 102, 103, 104, 105, 106};
      if (i % 4 == 3) request.top_logprobs = 3;
      if (i % 5 == 4) request.prompt_logprobs = true;
      request.tell_tokens = i % 3 == 1;
      all.push_back(std::move(request));
    }
    return all;
  }

  static Answers known(const std::vector<Request>& requests,
                       const std::vector<Completion>& answers) {
    auto known = std::make_shared<KnownAnswers>();
    for (size_t i = 0; i < requests.size(); ++i) {
      known->add(*requests[i].token_ids, answers[i].token_ids);
    }
    return known;
  }

  static void expect_same(const std::vector<Completion>& got, const std::vector<Completion>& want,
                          const std::string& what) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const std::string name = what + ", request " + std::to_string(i);
      testing::expect_same(got[i], want[i], name);
      EXPECT_EQ(got[i].stop, want[i].stop) << name;
      EXPECT_EQ(got[i].stop_token, want[i].stop_token) << name;
      EXPECT_EQ(got[i].top_token_ids, want[i].top_token_ids) << name;
      EXPECT_TRUE(testing::same_bits<float>(got[i].top_logprobs, want[i].top_logprobs)) << name;
      EXPECT_TRUE(testing::same_bits<float>(got[i].prompt_logprobs, want[i].prompt_logprobs))
          << name;
    }
  }

  model::ref::Llama base_ = model::random_llama(config(), true);
  testing::TinyModel model_{base_, {.control_tokens = {"<|end|>"}, .eos = kEnd}};
  testing::TinyAdapter one_{base_, 3, {model::llama::kQ, model::llama::kDown}};
  testing::TinyAdapter two_{base_, 5, {model::llama::kV, model::llama::kGate}};
};

TEST_F(SpeculationTest, NoDraftChangesAnyBit) {
  const std::vector<Request> all = requests(15);
  const int num_rounds = testing::is_on_cpu() ? 1 : 2;  // as calls, and as graphs
  const EngineOptions options{.max_batch = 6, .page_size = 4, .prefill_chunk = 7};
  for (const bool as_on_gpu : {false, true}) {
    Engine plain = engine({}, options, as_on_gpu);
    const std::vector<Completion> want = run_whole(plain, all);
    for (const auto& [name, make] : kDrafts) {
      Engine drafting = engine(make(known(all, want)), options, as_on_gpu);
      for (int round = 0; round < num_rounds; ++round) {
        expect_same(run_whole(drafting, all), want, name);
      }
      EXPECT_GT(drafting.stats().drafts.drafted, 0) << name;
      EXPECT_EQ(drafting.stats().generated_tokens, num_rounds * plain.stats().generated_tokens)
          << name;
    }
  }
}

/// Right drafts are all taken, in as few steps as their number allows; wrong ones never.
TEST_F(SpeculationTest, RightDraftsSaveStepsAndWrongOnesDoNot) {
  std::vector<Request> all = {testing::request_of({5, 6, 7}, 49)};
  all[0].ignore_end = true;
  const std::vector<Completion> want = [&] {
    Engine plain = engine({});
    return run_whole(plain, all);
  }();
  Engine right = engine(kDrafts[0].second(known(all, want)));
  (void)run_whole(right, all);
  // The prompt draws one, then each step takes 15 drafts and one more.
  EXPECT_EQ(right.stats().decode_steps, 3);
  EXPECT_EQ(right.stats().drafts.accepted, right.stats().drafts.drafted);
  EXPECT_EQ(right.stats().decode_tokens, 48);
  Engine wrong = engine(kDrafts[1].second(known(all, want)));
  (void)run_whole(wrong, all);
  EXPECT_EQ(wrong.stats().decode_steps, 48);
  EXPECT_EQ(wrong.stats().drafts.accepted, 0);
  EXPECT_GT(wrong.stats().drafts.drafted, 300);
}

/// Rows are parked while they draft, and share pages of the prefix cache.
TEST_F(SpeculationTest, PagesThatRunOutChangeNoBit) {
  std::vector<Request> all = requests(12);
  for (size_t i = 1; i < all.size(); i += 2) {  // prompts that go on like the one before
    all[i].token_ids = *all[i - 1].token_ids;
    all[i].token_ids->push_back(9);
  }
  int64_t num_parkings = 0;
  for (const bool as_on_gpu : {false, true}) {
    const EngineOptions roomy{.max_batch = 8, .page_size = 4, .prefill_chunk = 7};
    Engine plain = engine({}, roomy, as_on_gpu);
    const std::vector<Completion> want = run_whole(plain, all);
    for (const auto& [name, make] : kDrafts) {
      EngineOptions narrow = roomy;
      narrow.kv_memory = plain.options().kv_memory / plain.load().num_pages * 26;
      Engine drafting = engine(make(known(all, want)), narrow, as_on_gpu);
      expect_same(run_whole(drafting, all), want, name);
      num_parkings += drafting.stats().parkings;
    }
  }
  EXPECT_GT(num_parkings, 0);
}

TEST_F(SpeculationTest, FormatsKeepTheirBitsAndWhatTheyForceIsDrafted) {
  if (!grammar::has_library()) GTEST_SKIP() << "built without structured output";
  std::vector<Request> all = requests(20);
  const std::vector<AnswerFormat> formats = {
      {.kind = AnswerFormat::Kind::kRegex, .source = "the answer is [0-9]{2}, and nothing else"},
      {.kind = AnswerFormat::Kind::kChoice, .choices = {"yes", "no", "neither of them"}},
      {.kind = AnswerFormat::Kind::kJson},
      {.kind = AnswerFormat::Kind::kJsonSchema,
       .source = R"({"type": "object", "additionalProperties": false, "required": ["customer"],
                     "properties": {"customer": {"enum": ["first", "second"]}}})"}};
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].ignore_end = false;
    all[i].max_tokens = 50;
    all[i].bad_words.clear();
    all[i].min_tokens = 0;
    all[i].stop_token_ids.clear();
    all[i].format = formats[i % formats.size()];
  }
  Engine plain = engine({}, {.max_batch = 5});
  const std::vector<Completion> want = run_whole(plain, all);
  for (const auto& [name, make] : kDrafts) {
    Engine drafting = engine(make(known(all, want)), {.max_batch = 5});
    expect_same(run_whole(drafting, all), want, name);
  }
  Engine forced = engine([](auto...) {}, {.max_batch = 5});
  std::vector<Request> of_text = {all[0]};
  of_text[0].stop.clear();
  const Completion text = testing::run_all(forced, of_text).front();
  EXPECT_EQ(text.text.substr(0, 14), "the answer is ");
  EXPECT_GE(forced.stats().drafts.accepted, 30);
  EXPECT_EQ(forced.stats().drafts.accepted, forced.stats().drafts.drafted);
  EngineOptions few;
  few.speculation = {.method = "ngram", .max_drafts = 3};
  Engine bounded = engine({}, few);
  testing::expect_same(run_whole(bounded, of_text).front(), text, "three drafts");
  EXPECT_GT(bounded.stats().drafts.drafted, 0);
  EXPECT_EQ(bounded.stats().draft_stats.by_place[3].drafted, 0) << "max_drafts is 3";
}

TEST_F(SpeculationTest, EventsHaveAllTokensOfAStep) {
  std::vector<Request> all = {testing::request_of({5, 6, 7}, 40)};
  all[0].ignore_end = true;
  all[0].tell_tokens = true;
  all[0].top_logprobs = 2;
  Engine plain = engine({});
  const std::vector<Completion> want = run_whole(plain, all);
  Engine drafting = engine(kDrafts[0].second(known(all, want)));
  (void)drafting.submit(all[0]);
  DrawnTokens told;
  int num_events = 0;
  while (drafting.num_unfinished() > 0) {
    for (const Event& event : drafting.step()) {
      ++num_events;
      const auto add = [](auto& to, const auto& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      EXPECT_EQ(event.tokens.ids.size() * 2, event.tokens.top_ids.size());
      add(told.ids, event.tokens.ids);
      add(told.logprobs, event.tokens.logprobs);
      add(told.top_ids, event.tokens.top_ids);
      add(told.top_logprobs, event.tokens.top_logprobs);
    }
  }
  EXPECT_LE(num_events, 5);
  EXPECT_EQ(told.ids, want[0].token_ids);
  EXPECT_TRUE(testing::same_bits<float>(told.logprobs, want[0].logprobs));
  EXPECT_EQ(told.top_ids, want[0].top_token_ids);
  EXPECT_TRUE(testing::same_bits<float>(told.top_logprobs, want[0].top_logprobs));
}

/// Cancelled and paused between two steps, and adapters that change, come and go.
TEST_F(SpeculationTest, WhatHappensBetweenStepsHappensAsWithout) {
  std::vector<Request> all = requests(8);
  for (Request& request : all) {
    request.ignore_end = true;
    request.max_tokens = 40;
    request.min_tokens = 0;
    request.stop.clear();
    request.stop_token_ids.clear();
  }
  Engine plain = engine({});
  const std::vector<Completion> want = run_whole(plain, all);
  for (const auto& [name, make] : kDrafts) {
    Engine drafting = engine(make(known(all, want)));
    std::vector<testing::Outcome> outcomes(all.size());
    for (const Request& request : all) (void)drafting.submit(request);
    int64_t step = 0;
    for (; drafting.num_unfinished() > 0 && step < testing::kTooManySteps; ++step) {
      testing::take(drafting.step(), 0, outcomes);
      if (step == 2) {
        EXPECT_TRUE(drafting.cancel(3)) << name;
        EXPECT_TRUE(drafting.set_paused(4, true)) << name;
      }
      if (step == 9) {
        EXPECT_TRUE(drafting.set_paused(4, false)) << name;
      }
      if (step == 3) drafting.reset_prefix_cache();
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const Completion& got = outcomes[i].completion;
      if (i == 3) {
        EXPECT_EQ(got.finish_reason, FinishReason::kCancelled) << name;
        EXPECT_LE(got.token_ids.size(), want[i].token_ids.size());
        EXPECT_TRUE(std::ranges::equal(got.token_ids,
                                       std::span(want[i].token_ids).first(got.token_ids.size())));
      } else {
        testing::expect_same(got, want[i], name);
      }
    }
    testing::expect_idle(drafting);
  }
}

/// Rows that go on with other weights of their adapter while they draft: as one alone that does so
/// at the same token.
TEST_F(SpeculationTest, AdaptersThatSwitchHaveTheBitsOfTheTokenOfTheSwitch) {
  std::vector<Request> all(3);
  for (Request& request : all) {
    request = testing::endless_request(testing::random_tokens(random_int(4, 9)), 30);
    request.adapter = "one";
  }
  all[1].sampling = {.temperature = 1.2f, .seed = 7};
  const auto switch_weights = [this](Engine& engine) {
    (void)engine.replace_adapter("one", two_.folder.path().string(), RunningRequests::kSwitch);
  };
  const auto finish = [](Engine& engine, std::vector<testing::Outcome>& outcomes) {
    for (int i = 0; engine.num_unfinished() > 0 && i < testing::kTooManySteps; ++i) {
      testing::take(engine.step(), 0, outcomes);
    }
  };
  Engine plain = engine({});
  const std::vector<Completion> before = run_whole(plain, all);
  for (const size_t kind : {0u, 2u, 3u}) {
    const auto& [name, make] = kDrafts[kind];
    Engine drafting = engine(make(known(all, before)));
    std::vector<testing::Outcome> outcomes(all.size());
    for (const Request& request : all) (void)drafting.submit(request);
    for (int step = 0; step < 2; ++step) testing::take(drafting.step(), 0, outcomes);
    switch_weights(drafting);
    finish(drafting, outcomes);
    for (size_t i = 0; i < all.size(); ++i) {
      const Completion& got = outcomes[i].completion;
      ASSERT_EQ(got.adapter_switches.size(), 1u) << name;
      // A step of it computes a token; on a GPU another one is in flight.
      Engine alone = engine({}, {.max_batch = 1, .prefill_chunk = 1, .prefix_cache = false});
      std::vector<testing::Outcome> its(1);
      (void)alone.submit(all[i]);
      const int64_t num_steps = got.adapter_switches[0].position - (testing::is_on_cpu() ? 0 : 1);
      for (int64_t step = 0; step < num_steps; ++step) testing::take(alone.step(), 0, its);
      switch_weights(alone);
      finish(alone, its);
      testing::expect_same(got, its[0].completion, name);
      EXPECT_EQ(got.adapter_switches[0].position, its[0].completion.adapter_switches[0].position);
    }
    EXPECT_GT(drafting.stats().drafts.drafted, 0) << name;
  }
}

/// With their own costs, too, which differ from run to run.
TEST_F(SpeculationTest, MethodsChangeNoBit) {
  std::vector<Request> all = requests(12);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i % 2 == 0) all[i].prediction = "abc abc abd";
    if (i % 3 == 0) all[i].sampling.temperature = 0;
  }
  std::vector<Request> bare = all;
  for (Request& request : bare) request.prediction.clear();
  for (const bool as_on_gpu : {false, true}) {
    EngineOptions options{.max_batch = 4};
    Engine plain = engine({}, options, as_on_gpu);
    const std::vector<Completion> want = run_whole(plain, bare);
    for (const std::string method : {"ngram", "suffix"}) {
      options.speculation = {.method = method, .min_ngram = 1};
      Engine drafting = engine({}, options, as_on_gpu);
      for (int round = 0; round < 3; ++round) {
        expect_same(run_whole(drafting, all), want, method);
      }
      EXPECT_GT(drafting.stats().drafts.drafted, 0) << method;
    }
  }
}

TEST_F(SpeculationTest, WhatIsWrongIsNamed) {
  const auto error_of = [&](const SpeculationOptions& speculation) {
    try {
      (void)model_.engine({.speculation = speculation});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(
      error_of({.method = "ngram", .memory = 5}),
      "speculation memory (--draft-memory) is 5, but speculation is ngram; it takes some with "
      "suffix or model");
  EXPECT_EQ(error_of({.method = "magic"}),
            "speculation is 'magic', expected off, ngram, suffix, model, heads or eagle3");
  EXPECT_EQ(error_of({.method = "ngram", .max_drafts = 16}), "max_drafts is 16, expected 0 to 15");
  EXPECT_EQ(error_of({.method = "ngram", .min_ngram = 5, .max_ngram = 3}),
            "min_ngram is 5, expected at most max_ngram = 3");
  Engine plain = engine({});
  Request request = testing::request_of({5, 6, 7}, 4);
  request.speculation = "ngram";
  const Completion refused = testing::run_all(plain, {request}).front();
  EXPECT_EQ(refused.error, "speculation is ngram, but the engine has none (--speculate off)");
  Engine of_ngrams = engine([](auto...) {});
  request.speculation = "suffix";
  EXPECT_EQ(testing::run_all(of_ngrams, {request}).front().error,
            "speculation is suffix, but the engine has ngram (--speculate ngram)");
}

}  // namespace
}  // namespace heddle
