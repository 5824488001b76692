// Requests that go on with other weights of their adapter: RunningRequests::kSwitch. Their bits are
// given by the token of the switch, whatever else happens to them.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/face/made_engine.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"
#include "small_sizes.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using model::ref::Llama;
using testing::TinyAdapter;

constexpr RunningRequests kSwitch = RunningRequests::kSwitch;

/// Adapter "a" is `first`, and becomes `second`. On the CPU with `as_on_gpu` prompts and drawn
/// tokens have paths of their own, and parked requests go to host memory.
class AdapterSwitches : public ::testing::Test {
 protected:
  Engine engine_with(EngineOptions options, bool as_on_gpu = false) {
    options.page_size = options.page_size == 16 ? 4 : options.page_size;
    options.model_path = model.path();
    options.num_threads = 2;
    options.device = testing::test_device();
    Engine made = open_engine(options, {.as_on_gpu = as_on_gpu});
    (void)made.add_adapter("a", path_of(first));
    (void)made.add_adapter("b", path_of(other));
    return made;
  }
  int64_t page_bytes() {
    const Engine probe = engine_with({.max_batch = 1});
    return probe.options().kv_memory / probe.load().num_pages;
  }
  static std::string path_of(const TinyAdapter& adapter) { return adapter.folder.path().string(); }
  static Request request_of(std::vector<int32_t> tokens, const std::string& adapter = "a",
                            int64_t max_tokens = 20) {
    Request request = testing::endless_request(std::move(tokens), max_tokens);
    request.adapter = adapter;
    return request;
  }
  static Request random_request(int64_t num_tokens, const std::string& adapter = "a",
                                int64_t max_tokens = 20) {
    return request_of(testing::random_tokens(num_tokens), adapter, max_tokens);
  }
  void switch_to(Engine& engine, const TinyAdapter& adapter) {
    (void)engine.replace_adapter("a", path_of(adapter), kSwitch);
  }
  /// Takes the events of one step, of requests with ids from 0 on.
  static void step(Engine& engine, std::vector<testing::Outcome>& outcomes) {
    testing::take(engine.step(), 0, outcomes);
  }
  static void finish(Engine& engine, std::vector<testing::Outcome>& outcomes) {
    for (int i = 0; engine.num_unfinished() > 0; ++i) {
      ASSERT_LT(i, testing::kTooManySteps);
      step(engine, outcomes);
    }
    testing::expect_idle(engine);
  }
  /// Alone, switched where it has computed so many tokens; 0: as `second` from its beginning.
  Completion alone(const Request& request, std::optional<int64_t> position) {
    // A step computes a token. On a GPU the first step of an idle engine is followed by another at
    // once; for a switch between the two it has another request in flight.
    const bool is_busy = !testing::is_on_cpu() && position == 1;
    Engine engine =
        engine_with({.max_batch = is_busy ? 2 : 1, .prefill_chunk = 1, .prefix_cache = false});
    if (position == 0) switch_to(engine, second);
    std::vector<testing::Outcome> outcomes(is_busy ? 2 : 1);
    if (is_busy) {
      (void)engine.submit(request_of({1}, "b", 4));
      step(engine, outcomes);
    }
    (void)engine.submit(request);
    const int64_t ahead = testing::is_on_cpu() || is_busy ? 0 : 1;
    for (int64_t i = 0; i + ahead < position.value_or(0); ++i) step(engine, outcomes);
    if (position.value_or(0) > 0) switch_to(engine, second);
    finish(engine, outcomes);
    return outcomes.back().completion;
  }
  /// It has the bits of one alone with the same token of the switch.
  void expect_as_alone(const Completion& got, const Request& request, const std::string& what) {
    ASSERT_EQ(got.adapter_switches.size(), 1u) << what;
    const auto [position, token] = got.adapter_switches[0];
    const Completion want = alone(request, position);
    testing::expect_same(got, want, what);
    ASSERT_EQ(want.adapter_switches.size(), 1u) << what;
    EXPECT_EQ(want.adapter_switches[0].position, position) << what;
    EXPECT_EQ(token, std::max<int64_t>(position + 1 - got.prompt_tokens, 0)) << what;
  }

  Llama base = model::random_llama(testing::tiny_config(), true);
  TinyAdapter first{base, 3, {llama::kQ, llama::kK, llama::kUp}};
  TinyAdapter second{base, 20, {llama::kV, llama::kDown}};
  TinyAdapter other{base, 2, {llama::kK, llama::kO}};
  testing::TinyModel model{base};
};

/// The base model with what both add.
Llama sum_of(const Llama& base, const Llama& a, const Llama& b) {
  Llama sum = base;
  for (size_t layer = 0; layer < base.layers.size(); ++layer) {
    for (int p = 0; p < llama::kNumSlices; ++p) {
      std::vector<double>& to = sum.layers[layer].projection[p];
      const auto& from_a = a.layers[layer].projection[p];
      const auto& from_b = b.layers[layer].projection[p];
      for (size_t i = 0; i < to.size(); ++i) to[i] = from_a[i] + from_b[i] - to[i];
    }
  }
  return sum;
}

/// Each token is the most likely one of the definition, in which tokens before `position` have the
/// weights of `before`, and the others those of `after`.
void expect_switched(const Completion& answer, std::vector<int32_t> tokens, const Llama& before,
                     const Llama& after) {
  ASSERT_EQ(answer.adapter_switches.size(), 1u);
  ASSERT_EQ(answer.finish_reason, FinishReason::kLength) << answer.error;
  const auto position = static_cast<size_t>(answer.adapter_switches[0].position);
  for (size_t t = 0; t < answer.token_ids.size(); ++t) {
    std::vector<const Llama*> models(tokens.size(), &before);
    for (size_t i = position; i < models.size(); ++i) models[i] = &after;
    const std::vector<double> logits =
        model::ref::logits_of(*models.back(), model::ref::hidden_states(models, tokens).back());
    const double largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const double x : logits) sum += std::exp(x - largest);
    const double logit = logits[static_cast<size_t>(answer.token_ids[t])];
    const double tolerance = testing::logprob_tolerance(logits);
    EXPECT_NEAR(logit, largest, tolerance) << "token " << t;
    EXPECT_NEAR(answer.logprobs[t], logit - largest - std::log(sum), tolerance) << "token " << t;
    tokens.push_back(answer.token_ids[t]);
  }
}

TEST_F(AdapterSwitches, TheNextTokenHasTheNewWeightsOverTheOldKeys) {
  const Llama of_list = sum_of(base, first.merged, other.merged);
  const Llama of_new_list = sum_of(base, second.merged, other.merged);
  for (const bool is_list : {false, true}) {
    for (const int num_steps : {1, 2, 3, 4, 9}) {
      Engine engine = engine_with({.prefill_chunk = 4});
      Request request = random_request(9);
      if (is_list) request.adapter.clear(), request.adapters = {{"a"}, {"b"}};
      std::vector<testing::Outcome> outcomes(1);
      (void)engine.submit(request);
      for (int i = 0; i < num_steps; ++i) step(engine, outcomes);
      switch_to(engine, second);
      EXPECT_EQ(engine.load().num_adapters, 2) << "the old weights are gone";
      finish(engine, outcomes);
      expect_switched(outcomes[0].completion, *request.token_ids, is_list ? of_list : first.merged,
                      is_list ? of_new_list : second.merged);
      if (!testing::is_on_cpu()) continue;
      EXPECT_EQ(outcomes[0].completion.adapter_switches[0].position,
                num_steps < 3 ? 4 * num_steps : 9 + num_steps - 3);
    }
  }
}

/// An adapter that adds nothing, switched within a prompt to one that does, is an aLoRA.
TEST_F(AdapterSwitches, ASwitchWithinAPromptIsAnInvocation) {
  TinyAdapter called{base,
                     2,
                     {llama::kK, llama::kV, llama::kGate},
                     DType::kFloat32,
                     R"(, "alora_invocation_tokens": [7, 8])"};
  const auto folder_with = [&](const std::string& settings) {
    auto folder = std::make_unique<testing::TempFolder>();
    std::filesystem::copy(called.folder.path() / "adapter_model.safetensors", folder->path());
    folder->write("adapter_config.json",
                  R"({"peft_type": "LORA", "r": 2, "target_modules":
                      ["k_proj", "v_proj", "gate_proj"], )" +
                      settings + "}");
    return folder;
  };
  const auto nothing = folder_with(R"("lora_alpha": 0.0)"),
             plain = folder_with(R"("lora_alpha": 3.0)");
  std::vector<int32_t> prompt(14, 50);
  for (int32_t& id : prompt) id = static_cast<int32_t>(testing::random_int(9, 255));
  prompt[8] = 7, prompt[9] = 8;
  Engine engine = engine_with({.prefill_chunk = 4, .prefix_cache = false});
  (void)engine.add_adapter("called", path_of(called));
  const Completion want = testing::run_all(engine, {request_of(prompt, "called")})[0];
  (void)engine.replace_adapter("a", nothing->path().string());
  std::vector<testing::Outcome> outcomes(2);
  const RequestId id = engine.submit(request_of(prompt));
  ASSERT_EQ(id, 1);
  while (engine.stats().prefill_tokens < 14 + 8) step(engine, outcomes);
  (void)engine.replace_adapter("a", plain->path().string(), kSwitch);
  finish(engine, outcomes);
  const Completion& got = outcomes[1].completion;
  ASSERT_EQ(got.adapter_switches.size(), 1u);
  if (!testing::is_on_cpu()) return;  // a step more is in flight there
  EXPECT_EQ(got.adapter_switches[0].position, 8);
  EXPECT_EQ(got.adapter_switches[0].token, 0);
  testing::expect_same(got, want, "an aLoRA");
}

/// Requests that wait, prefill, decode, are parked and are paused, among others, in engines of all
/// kinds.
TEST_F(AdapterSwitches, BitsAreThoseOfTheTokenOfTheSwitch) {
  const int64_t bytes = page_bytes();
  int64_t num_switched = 0, num_parkings = 0;
  for (int round = 0; round < testing::small_or(16, 24); ++round) {
    const bool as_on_gpu = round % 4 >= 2;
    const bool is_tight = round % 3 != 0;
    Engine engine = engine_with({.max_batch = static_cast<int>(testing::random_int(1, 9)),
                                 .prefill_chunk = static_cast<int>(testing::random_int(1, 40)),
                                 .kv_memory = is_tight ? 20 * bytes : 0,
                                 .prefix_cache = round % 2 == 0,
                                 .kv_host_memory = as_on_gpu ? 200 * bytes : -1},
                                as_on_gpu);
    const std::vector<int32_t> shared = testing::random_tokens(20);
    std::vector<Request> requests;
    for (int i = 0; i < 10; ++i) {
      std::vector<int32_t> prompt(shared.begin(), shared.begin() + testing::random_int(1, 20));
      const std::vector<int32_t> own = testing::random_tokens(testing::random_int(0, 6));
      prompt.insert(prompt.end(), own.begin(), own.end());
      const char* const adapters[] = {"a", "a", "b", ""};
      requests.push_back(
          request_of(prompt, adapters[testing::random_int(0, 3)], testing::random_int(1, 30)));
      requests.back().sampling = {.temperature = 1.0f, .seed = i};
    }
    std::vector<testing::Outcome> outcomes(requests.size());
    for (const Request& request : requests) (void)engine.submit(request);
    const int64_t num_steps = testing::random_int(0, 40);
    for (int64_t i = 0; i < num_steps; ++i) step(engine, outcomes);
    const RequestId paused = testing::random_int(0, 9);
    const bool is_paused = engine.set_paused(paused, true);
    for (int i = 0; i < 3; ++i) step(engine, outcomes);
    std::vector<bool> had_ended;
    for (const testing::Outcome& each : outcomes) had_ended.push_back(each.num_completions > 0);
    switch_to(engine, second);
    for (int i = 0; i < 5; ++i) step(engine, outcomes);
    if (is_paused) (void)engine.set_paused(paused, false);
    finish(engine, outcomes);
    num_parkings += engine.stats().parkings;
    for (size_t i = 0; i < requests.size(); ++i) {
      const Completion& got = outcomes[i].completion;
      const std::string what = "round " + std::to_string(round) + ", request " + std::to_string(i);
      if (!got.adapter_switches.empty()) {
        EXPECT_EQ(requests[i].adapter, "a") << what;
        ++num_switched;
        expect_as_alone(got, requests[i], what);
        continue;
      }
      // It ended before, or on a GPU with a step that was in flight; or it began after.
      const bool began_after = requests[i].adapter == "a" && !had_ended[i];
      const Completion old = alone(requests[i], {});
      const bool is_old = !began_after || got.logprobs == old.logprobs;
      testing::expect_same(got, is_old ? old : alone(requests[i], 0), what);
    }
  }
  EXPECT_GT(num_switched, testing::small_or(3, 8));
  EXPECT_GT(num_parkings, testing::small_or(0, 2));
}

/// Two requests in a cache for little more than one; the younger is parked before or after.
TEST_F(AdapterSwitches, ParkedRequestsGetBackWhatTheyHad) {
  const int64_t bytes = page_bytes();
  for (const bool as_on_gpu : {false, true}) {
    for (const bool is_parked_before : {false, true}) {
      for (const bool prefix_cache : {false, true}) {
        Engine engine = engine_with({.max_batch = 2,
                                     .kv_memory = 14 * bytes,
                                     .prefix_cache = prefix_cache,
                                     .kv_host_memory = as_on_gpu ? 40 * bytes : -1},
                                    as_on_gpu);
        const std::vector<Request> requests{random_request(9, "b", 40),
                                            random_request(10, "a", 34)};
        std::vector<testing::Outcome> outcomes(2);
        for (const Request& request : requests) (void)engine.submit(request);
        const auto has_happened = [&] {
          return is_parked_before ? engine.load().num_parked == 1
                                  : engine.stats().generated_tokens >= 8;
        };
        while (!has_happened()) {
          ASSERT_GT(engine.num_unfinished(), 0);
          step(engine, outcomes);
        }
        EXPECT_EQ(engine.stats().parkings, is_parked_before ? 1 : 0);
        switch_to(engine, second);
        finish(engine, outcomes);
        EXPECT_GE(engine.stats().parkings, 1);
        const std::string what = std::string(as_on_gpu ? "as on a GPU" : "as on a CPU") +
                                 (is_parked_before ? ", parked before" : ", parked after");
        testing::expect_same(outcomes[0].completion, alone(requests[0], {}), what);
        expect_as_alone(outcomes[1].completion, requests[1], what);
      }
    }
  }
}

TEST_F(AdapterSwitches, WithoutMemoryForACopyAParkedRequestEndsWithAnError) {
  Engine engine =
      engine_with({.max_batch = 2, .kv_memory = 14 * page_bytes(), .kv_host_memory = 0}, true);
  const std::vector<Request> requests{random_request(9, "b", 40), random_request(10, "a", 34)};
  std::vector<testing::Outcome> outcomes(2);
  for (const Request& request : requests) (void)engine.submit(request);
  while (engine.stats().generated_tokens < 8) step(engine, outcomes);
  switch_to(engine, second);
  finish(engine, outcomes);
  testing::expect_same(outcomes[0].completion, alone(requests[0], {}), "the other one");
  EXPECT_EQ(outcomes[1].completion.error_code, RequestError::kOutOfMemory);
  EXPECT_NE(outcomes[1].completion.error.find("a larger kv_memory"), std::string::npos);
}

TEST_F(AdapterSwitches, NoOtherRequestFindsPagesOfBothWeights) {
  Engine engine = engine_with({.prefill_chunk = 4});
  const Request request = random_request(18, "a", 12);
  std::vector<testing::Outcome> outcomes(1);
  (void)engine.submit(request);
  while (engine.stats().prefill_tokens < 8) step(engine, outcomes);
  switch_to(engine, second);
  finish(engine, outcomes);
  const auto position = outcomes[0].completion.adapter_switches.at(0).position;
  ASSERT_LT(position, 18);
  std::vector<int32_t> tokens = *request.token_ids;
  const std::vector<int32_t>& answer = outcomes[0].completion.token_ids;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  const Request later = request_of(tokens, "a", 4);
  Completion got = testing::run_all(engine, {later})[0];
  EXPECT_EQ(got.cached_tokens, 0);
  testing::expect_same(got, alone(later, 0), "with the new weights");
  (void)engine.replace_adapter("a", path_of(first));
  got = testing::run_all(engine, {later})[0];
  // On a GPU a step was in flight at the switch, whose page is not kept.
  EXPECT_EQ(got.cached_tokens, testing::is_on_cpu() ? position : position - 4)
      << "what was computed before";
  testing::expect_same(got, alone(later, {}), "with the old weights");
}

/// A request that is paused goes through any number of switches, and none of the weights stay.
TEST_F(AdapterSwitches, NeitherWaitsForTheOther) {
  Engine engine = engine_with({.max_batch = 1});
  const std::vector<Request> requests{random_request(5), random_request(7)};
  std::vector<testing::Outcome> outcomes(2);
  for (const Request& request : requests) (void)engine.submit(request);
  for (int i = 0; i < 8; ++i) step(engine, outcomes);
  EXPECT_TRUE(engine.set_paused(0, true));
  const int64_t bytes = engine.load().adapter_bytes;
  for (int i = 0; i < 30; ++i) {
    switch_to(engine, i % 2 == 0 ? second : first);
    EXPECT_EQ(engine.load().num_adapters, 2) << "\"b\" is the other one";
    step(engine, outcomes);
  }
  EXPECT_EQ(engine.load().adapter_bytes, bytes);
  switch_to(engine, second);
  EXPECT_TRUE(engine.set_paused(0, false));
  finish(engine, outcomes);
  expect_as_alone(outcomes[0].completion, requests[0], "paused");
  EXPECT_TRUE(outcomes[1].completion.adapter_switches.empty()) << "it had not begun";
  testing::expect_same(outcomes[1].completion, alone(requests[1], 0), "waited");
}

/// Later switches are reported, too; a request that an earlier replacement left alone stays so.
TEST_F(AdapterSwitches, EachSwitchIsToldAndFinishIsForGood) {
  Engine engine = engine_with({.max_batch = 2});
  const std::vector<Request> requests{random_request(5), random_request(5)};
  std::vector<testing::Outcome> outcomes(2);
  (void)engine.submit(requests[0]);
  for (int i = 0; i < 3; ++i) step(engine, outcomes);
  (void)engine.replace_adapter("a", path_of(other));
  (void)engine.submit(requests[1]);
  for (int i = 0; i < 3; ++i) step(engine, outcomes);
  switch_to(engine, second);
  for (int i = 0; i < 3; ++i) step(engine, outcomes);
  switch_to(engine, first);
  finish(engine, outcomes);
  testing::expect_same(outcomes[0].completion, alone(requests[0], {}), "left with what it had");
  const std::vector<AdapterSwitch>& switches = outcomes[1].completion.adapter_switches;
  ASSERT_EQ(switches.size(), 2u);
  EXPECT_EQ(switches[1].position, switches[0].position + 3);
  EXPECT_EQ(switches[1].token, switches[0].token + 3);
  const auto digest_of = [&](const TinyAdapter& adapter) {
    (void)engine.replace_adapter("a", path_of(adapter));
    return testing::run_all(engine, {random_request(3)})[0].adapter_digest;
  };
  EXPECT_EQ(outcomes[1].completion.earlier_digests, digest_of(other) + ' ' + digest_of(second));
  EXPECT_EQ(outcomes[1].completion.adapter_digest, digest_of(first));
  EXPECT_EQ(outcomes[0].completion.adapter_digest, digest_of(first));
}

TEST_F(AdapterSwitches, AnAdapterThatMakesOtherTokensIsRefused) {
  TinyAdapter called{base, 2, {llama::kK}, DType::kFloat32, R"(, "alora_invocation_tokens": [7])"};
  TinyAdapter later{base, 2, {llama::kK}, DType::kFloat32, R"(, "alora_invocation_tokens": [8])"};
  testing::WideAdapter wide{base, 300};
  Engine engine = engine_with({});
  const auto refused = [&](const std::string& path, const char* what) {
    testing::expect_invalid({what, "running \"finish\""},
                            [&] { (void)engine.replace_adapter("a", path, kSwitch); });
  };
  refused(path_of(called), "other alora_invocation_tokens");
  refused(wide.folder.path().string(), "an embedding of more or fewer tokens");
  const Request request = random_request(6);
  testing::expect_same(testing::run_all(engine, {request})[0], alone(request, {}), "the old one");
  (void)engine.replace_adapter("a", path_of(called));
  refused(path_of(later), "other alora_invocation_tokens");
  (void)engine.replace_adapter("new", path_of(second), kSwitch);
  EXPECT_TRUE(engine.has_adapter("new")) << "no request could have had it";
}

/// Its keys are computed again in a longer sequence.
TEST(EngineWithDynamicRotation, RefusesASwitch) {
  Engine engine = make_engine(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1,
      "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 300, "rms_norm_eps": 1e-06,
      "max_position_embeddings": 12, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})",
                              1, {.device = testing::test_device()});
  model::DecoderConfig config = testing::tiny_config(300);
  config.num_layers = 1, config.hidden_size = 64, config.intermediate_size = 96;
  config.num_q_heads = 4, config.num_kv_heads = 2, config.head_dim = 16;
  const TinyAdapter adapter{model::random_llama(config, true), 2, {llama::kQ}};
  (void)engine.add_adapter("a", adapter.folder.path().string());
  testing::expect_unsupported({"depends on the length of a sequence", "\"finish\""}, [&] {
    (void)engine.replace_adapter("a", adapter.folder.path().string(), kSwitch);
  });
}

}  // namespace
}  // namespace heddle
