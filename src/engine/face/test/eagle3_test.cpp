// Speculation by an EAGLE-3 drafter: no answer changes, and a drafter that knows the model saves
// its steps.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/face/made_engine.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"
#include "model/eagle3/test/eagle3_files.h"

namespace heddle {
namespace {

using model::Eagle3Ref;
using testing::run_whole;

constexpr int32_t kEnd = 256;
constexpr int32_t kVocabSize = 257;
constexpr int32_t kPeriod = 200;

/// A step of 16 tokens costs little more than one of a single token.
const std::vector<StepCost> kCheapDrafts = {{1, 1e-3}, {16, 1.1e-3}, {64, 2e-3}};

/// Token t is followed by the next one, and the last one by 0.
int32_t next_of(int32_t token) { return (token + 1) % kPeriod; }

/// A model of three layers that add nothing, which counts.
model::ref::Llama counting_llama() {
  std::vector<int32_t> next;
  for (int32_t t = 0; t < kVocabSize; ++t) next.push_back(next_of(t));
  model::ref::Llama model = testing::scripted_llama(next);
  model.config.num_layers = 3;
  model.layers.resize(3, model.layers.front());
  return model;
}

/// A drafter that knows it: of the hidden state of token t, a one, it makes that of token t + 1,
/// and its head counts as the model's does.
Eagle3Ref counting_drafter(const model::ref::Llama& target) {
  Eagle3Ref drafter(target, {.hidden_size = kVocabSize,
                             .intermediate_size = kVocabSize,
                             .draft_vocab_size = kPeriod,
                             .has_embedding = false});
  constexpr auto n = static_cast<size_t>(kVocabSize);
  for (auto& [name, values] : drafter.weights) {
    values.assign(values.size(), name.ends_with("norm.weight") ? 1.0 : 0.0);
  }
  auto& fuse = drafter.weights.at("fc.weight");
  auto& gate = drafter.weights.at("midlayer.mlp.gate_proj.weight");
  auto& up = drafter.weights.at("midlayer.mlp.up_proj.weight");
  auto& down = drafter.weights.at("midlayer.mlp.down_proj.weight");
  auto& head = drafter.weights.at("lm_head.weight");
  for (size_t t = 0; t < n; ++t) {
    const auto next = static_cast<size_t>(next_of(static_cast<int32_t>(t)));
    fuse[t * 3 * n + t] = 1.0;
    // After the norm the one is sqrt(n), so the gated product is n.
    gate[t * n + t] = up[t * n + t] = 1.0;
    down[next * n + t] += 1.0 / kVocabSize;
    down[t * n + t] -= 1.0 / kVocabSize;
    head[next * n + t] = 1.0;
  }
  for (auto& offset : drafter.offsets) offset = 0;
  return drafter;
}

class Eagle3Test : public ::testing::Test {
 protected:
  Eagle3Test() { counting_drafter(base_).write(folder_); }

  Engine engine(const std::string& method, EngineOptions options = {}, bool as_on_gpu = false) {
    options.model_path = model_.path();
    options.num_threads = 2;
    options.device = testing::test_device();
    options.speculation.method = method;
    if (method == "eagle3") options.speculation.draft_model = folder_.path().string();
    Engine engine = open_engine(
        options,
        {.as_on_gpu = as_on_gpu, .steps_as_on_gpu = as_on_gpu, .step_costs = kCheapDrafts});
    (void)engine.add_adapter("one", one_.folder.path().string());
    (void)engine.add_adapter("wide", wide_.folder.path().string());
    return engine;
  }

  static std::vector<Request> requests(int64_t count) {
    std::vector<Request> all;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<int32_t> prompt;
      const auto first = static_cast<int32_t>(i % 3 * 30);  // several go on like others
      for (int32_t t = 0; t < 5 + i; ++t) prompt.push_back(first + t);
      Request request = testing::endless_request(std::move(prompt), 12 + i % 5 * 5);
      if (i % 4 == 1) request.sampling = {.temperature = 7.0f, .seed = i};
      if (i % 4 == 2) request.adapter = "one";
      if (i % 7 == 3) request.speculation = "off";
      if (i % 7 == 5) request.speculation = "ngram";
      if (i % 8 == 7) {
        request.adapter = "wide";  // more tokens than the drafter has
        request.token_ids->push_back(kVocabSize + 1);
        request.token_ids->push_back(3);
      }
      all.push_back(std::move(request));
    }
    return all;
  }

  static void expect_same(const std::vector<Completion>& got, const std::vector<Completion>& want,
                          const std::string& what) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      testing::expect_same(got[i], want[i], what + ", request " + std::to_string(i));
    }
  }

  model::ref::Llama base_ = counting_llama();
  testing::TinyModel model_{base_, {.control_tokens = {"<|end|>"}, .eos = kEnd}};
  testing::TinyAdapter one_{base_, 3, {model::llama::kQ, model::llama::kV, model::llama::kDown}};
  testing::WideAdapter wide_{base_, kVocabSize + 3};
  testing::TempFolder folder_;
};

TEST_F(Eagle3Test, ADrafterThatKnowsTheModelSavesItsSteps) {
  const Request request = testing::endless_request({0, 1, 2}, 55);
  Engine plain = engine("off");
  Engine drafting = engine("eagle3");
  const Completion got = run_whole(drafting, {request}).front();
  testing::expect_same(got, run_whole(plain, {request}).front(), "eagle3");
  EXPECT_EQ(plain.stats().decode_steps, 54);
  EXPECT_LE(drafting.stats().decode_steps, 10);
  EXPECT_EQ(drafting.stats().drafts.accepted, drafting.stats().drafts.drafted);
  const auto source = static_cast<size_t>(DraftSource::kEagle3);
  EXPECT_EQ(drafting.stats().draft_stats.by_source[source].accepted, got.drafts.accepted);
  EXPECT_GE(got.drafts.accepted, 44);
}

/// What drafts and steps cost is measured, and differs from run to run.
TEST_F(Eagle3Test, MeasuredCostsChangeNoAnswer) {
  const Request request = testing::endless_request({0, 1, 2}, 40);
  Engine plain = engine("off");
  Engine drafting =
      model_.engine({.speculation = {.method = "eagle3", .draft_model = folder_.path().string()}});
  testing::expect_same(run_whole(drafting, {request}).front(), run_whole(plain, {request}).front(),
                       "measured");
}

TEST_F(Eagle3Test, NoAnswerChanges) {
  const std::vector<Request> all = requests(16);
  const EngineOptions options{.max_batch = 5, .page_size = 4, .prefill_chunk = 7};
  for (const bool as_on_gpu : {false, true}) {
    Engine plain = engine("off", options, as_on_gpu);
    std::vector<Request> bare = all;
    for (Request& request : bare) request.speculation = "";
    const std::vector<Completion> want = run_whole(plain, bare);
    Engine drafting = engine("eagle3", options, as_on_gpu);
    for (int round = 0; round < 2; ++round) {  // the second one finds its prompts in the cache
      expect_same(run_whole(drafting, all), want, "round " + std::to_string(round));
    }
    EXPECT_GT(drafting.stats().cached_tokens, plain.stats().cached_tokens);
    EXPECT_GT(drafting.stats().drafts.accepted, 150);
    EXPECT_GT(drafting.stats().drafts.drafted, drafting.stats().drafts.accepted + 20);
  }
}

/// Rows are parked while the drafter has keys of them, and paused and cancelled between steps.
TEST_F(Eagle3Test, RowsThatComeAndGoChangeNoAnswer) {
  std::vector<Request> all = requests(12);
  for (Request& request : all) request.max_tokens = 40;
  const EngineOptions roomy{.max_batch = 6, .page_size = 4, .prefill_chunk = 7};
  std::vector<Request> bare = all;
  for (Request& request : bare) request.speculation = "";
  Engine plain = engine("off", roomy);
  const std::vector<Completion> want = run_whole(plain, bare);
  EngineOptions narrow = roomy;
  narrow.kv_memory = plain.options().kv_memory / plain.load().num_pages * 26;
  Engine drafting = engine("eagle3", narrow);
  std::vector<testing::Outcome> outcomes(all.size());
  for (const Request& request : all) (void)drafting.submit(request);
  for (int step = 0; drafting.num_unfinished() > 0 && step < testing::kTooManySteps; ++step) {
    testing::take(drafting.step(), 0, outcomes);
    if (step == 2) {
      EXPECT_TRUE(drafting.cancel(1));
      EXPECT_TRUE(drafting.set_paused(0, true));
    }
    if (step == 6) {
      EXPECT_TRUE(drafting.set_paused(0, false));
    }
    if (step == 4) drafting.reset_prefix_cache();
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == 1) continue;
    testing::expect_same(outcomes[i].completion, want[i], "request " + std::to_string(i));
  }
  testing::expect_idle(drafting);
  EXPECT_GT(drafting.stats().parkings, 0);
  EXPECT_GT(drafting.stats().drafts.accepted, 40);
}

TEST_F(Eagle3Test, AFolderThatDoesNotFitIsRefused) {
  folder_.write("config.json", "{}");
  EXPECT_EQ(testing::message_of([&] { (void)engine("eagle3"); }),
            folder_.path().string() +
                "/config.json: architectures is missing, expected LlamaForCausalLMEagle3, an "
                "EAGLE-3 drafter as vLLM and SGLang take it");
  nlohmann::json config = counting_drafter(base_).config();
  config["swiglu"] = true;
  folder_.write("config.json", config.dump());
  const std::vector<std::string> notes = engine("eagle3").model().notes;
  EXPECT_NE(
      std::ranges::find(notes, folder_.path().string() + "/config.json: nothing reads swiglu"),
      notes.end());
}

}  // namespace
}  // namespace heddle
