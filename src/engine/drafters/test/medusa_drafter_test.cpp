// Medusa heads in the engine: they change no bit of an answer, and save the steps that they should.
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/face/made_engine.h"
#include "engine/rows/row_drafts.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"
#include "model/adapters/medusa/test/medusa_cases.h"

namespace heddle {
namespace {

using testing::MedusaCase;
using testing::run_whole;

constexpr int32_t kEnd = 256, kVocab = 257;

/// A step of 16 tokens costs little more than one of a single token.
const std::vector<StepCost> kCheapDrafts = {{1, 1e-3}, {16, 1.1e-3}, {64, 2e-3}};

std::string folder_of(const testing::TempFolder& folder, const std::string& name) {
  return (folder.path() / name).string();
}

/// A model that counts to 200, one row of its hidden state for each token: heads that look `more`
/// tokens beyond what they should are always wrong.
class CountingModel {
 public:
  static constexpr int32_t kCount = 200;

  static MedusaCase heads(int64_t num_heads, int32_t more = 0, bool has_outputs = false) {
    MedusaCase heads(kVocab, kVocab, num_heads, 1, has_outputs);
    for (int64_t head = 0; head < num_heads; ++head) {
      const auto i = static_cast<size_t>(head);
      for (int32_t token = 0; token < kCount; ++token) {
        const auto at = [&](int64_t ahead) {
          return static_cast<size_t>((token + ahead + more) % kCount * kVocab + token);
        };
        // The hidden state of the token before, twice as large as that of this one; or no change.
        if (has_outputs) {
          heads.outputs[i][at(head + 2)] = 1;
        } else {
          heads.weights[i][at(head + 1)] = 2;
        }
      }
    }
    return heads;
  }

  CountingModel() {
    std::vector<int32_t> next(kVocab);
    for (int32_t t = 0; t < kVocab; ++t) next[static_cast<size_t>(t)] = (t + 1) % kCount;
    model_.emplace(testing::scripted_llama(next),
                   model::ByteTokenizer{.control_tokens = {"<|end|>"}, .eos = kEnd});
  }

  [[nodiscard]] EngineOptions options(const std::string& method, const std::string& folder = "") {
    EngineOptions options{.model_path = model_->path(), .device = testing::test_device()};
    options.num_threads = 2;
    options.speculation = {.method = method, .draft_model = folder};
    return options;
  }
  [[nodiscard]] Engine engine(const EngineOptions& options, bool as_on_gpu = false) {
    return open_engine(
        options,
        {.as_on_gpu = as_on_gpu, .steps_as_on_gpu = as_on_gpu, .step_costs = kCheapDrafts});
  }
  [[nodiscard]] Completion plain(const Request& request) {
    if (!plain_) plain_.emplace(engine(options("off")));
    Request bare = request;
    bare.adapter.clear();
    return run_whole(*plain_, {bare}).front();
  }

 private:
  std::optional<testing::TinyModel> model_;
  std::optional<Engine> plain_;
};

TEST(MedusaDrafter, HeadsThatAreRightSaveStepsAndOthersDoNot) {
  CountingModel model;
  const std::vector<Request> all = {testing::request_of({5, 6, 7}, 49),
                                    testing::request_of({90}, 49)};
  for (const bool has_outputs : {false, true}) {
    for (const bool as_on_gpu : {false, true}) {
      testing::TempFolder folder;
      CountingModel::heads(4, 0, has_outputs).write(folder);
      Engine right = model.engine(model.options("heads", folder.path().string()), as_on_gpu);
      const std::vector<Completion> got = run_whole(right, all);
      for (size_t i = 0; i < all.size(); ++i) {
        testing::expect_same(got[i], model.plain(all[i]), "right");
        EXPECT_EQ(got[i].drafts.accepted, got[i].drafts.drafted);
        EXPECT_GE(got[i].drafts.accepted, 35);
      }
      // The prompt draws one, then each step takes up to 4 drafts and one more.
      EXPECT_LE(right.stats().decode_steps, 13);
      const DraftStats& counts = right.stats().draft_stats;
      EXPECT_EQ(counts.by_source[static_cast<size_t>(DraftSource::kHeads)].accepted,
                right.stats().drafts.accepted);
      EXPECT_GT(counts.by_place[3].accepted, 0);
      EXPECT_EQ(counts.by_place[4].drafted, 0) << "there are four heads";
      CountingModel::heads(4, 1, has_outputs).write(folder);
      Engine wrong = model.engine(model.options("heads", folder.path().string()), as_on_gpu);
      testing::expect_same(run_whole(wrong, {all[0]})[0], model.plain(all[0]), "wrong");
      EXPECT_EQ(wrong.stats().decode_steps, 48);
      EXPECT_EQ(wrong.stats().drafts.accepted, 0);
      EXPECT_GT(wrong.stats().drafts.drafted, 0);
    }
  }
}

/// Two adapters with heads, one without, and the model, which has heads of its own or none.
TEST(MedusaDrafter, RowsOfABatchDraftWithTheHeadsOfTheirAdapters) {
  CountingModel model;
  testing::TempFolder folder;
  const auto write = [&](const std::string& name, int64_t num_heads) {
    std::filesystem::create_directory(folder_of(folder, name));
    CountingModel::heads(num_heads).write(folder, name + "/");
  };
  write("two", 2);
  write("four", 4);
  write("base", 3);
  std::vector<Request> all;
  for (const char* adapter : {"two", "", "four", "two"}) {
    Request request = testing::request_of({static_cast<int32_t>(20 * all.size())}, 40);
    request.adapter = adapter;
    all.push_back(request);
  }
  for (const bool has_base : {false, true}) {
    Engine engine = model.engine(model.options("heads", has_base ? folder_of(folder, "base") : ""));
    std::vector<std::string> warnings;
    for (const char* name : {"two", "four"}) {
      warnings = engine.add_adapter(name, folder_of(folder, name)).warnings;
      EXPECT_TRUE(warnings.empty()) << warnings.front();
    }
    const std::vector<Completion> got = run_whole(engine, all);
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(i);
      testing::expect_same(got[i], model.plain(all[i]), "answer");
      EXPECT_EQ(got[i].drafts.accepted, got[i].drafts.drafted);
      EXPECT_EQ(got[i].drafts.drafted > 0, has_base || i != 1);
    }
    const auto& places = engine.stats().draft_stats.by_place;
    EXPECT_GT(places[3].accepted, 0);
    EXPECT_GT(places[1].accepted, places[2].accepted);
    EXPECT_GT(places[2].accepted, has_base ? places[3].accepted : places[3].accepted - 1);
    EXPECT_EQ(places[4].drafted, 0);
  }
  Engine without = model.engine(model.options("ngram"));
  EXPECT_NE(without.add_adapter("two", folder_of(folder, "two"))
                .warnings.at(0)
                .find("has Medusa heads alone"),
            std::string::npos);
}

/// Adapters of a folder bring their heads and take them along, within the memory for adapters.
TEST(MedusaDrafter, HeadsComeAndGoWithTheirAdapters) {
  CountingModel model;
  testing::TempFolder folder;
  for (const std::string name : {"a", "b", "c"}) {
    std::filesystem::create_directory(folder_of(folder, name));
    CountingModel::heads(1).write(folder, name + "/");
  }
  const int64_t bytes_of_one = kVocab * kVocab * (testing::is_on_cpu() ? 4 : 2);
  EngineOptions options = model.options("heads");
  options.adapter_dir = folder.path().string();
  options.adapter_memory = bytes_of_one * 3 / 2;  // packed rows are padded
  Engine engine = model.engine(options);
  for (const char* adapter : {"a", "b", "a", "c"}) {
    Request request = testing::request_of({3}, 20);
    request.adapter = adapter;
    const Completion got = run_whole(engine, {request}).front();
    testing::expect_same(got, model.plain(request), adapter);
    EXPECT_GT(got.drafts.accepted, 0) << adapter;
    EXPECT_EQ(got.drafts.accepted, got.drafts.drafted) << adapter;
    EXPECT_GE(engine.load().adapter_bytes, bytes_of_one);
    EXPECT_LE(engine.load().adapter_bytes, options.adapter_memory);
  }
  EXPECT_EQ(engine.stats().adapter_evictions, 3);
}

/// With the costs of steps and of heads as they are here.
TEST(MedusaDrafter, WhatHeadsCostIsMeasured) {
  CountingModel model;
  testing::TempFolder folder;
  CountingModel::heads(2).write(folder);
  const Request request = testing::request_of({7}, 30);
  for (const std::string& path : {folder.path().string(), std::string()}) {
    Engine engine(model.options("heads", path));
    const Completion got = run_whole(engine, {request}).front();
    testing::expect_same(got, model.plain(request), path);
    EXPECT_EQ(got.drafts.accepted, got.drafts.drafted);
    if (path.empty()) {
      EXPECT_EQ(got.drafts.drafted, 0);
    }
  }
}

class MedusaAnswersTest : public ::testing::Test {
 protected:
  static model::DecoderConfig config() {
    model::DecoderConfig config = testing::tiny_config(kVocab);
    config.context_length = 96;
    return config;
  }
  MedusaCase heads(int64_t num_heads, int64_t num_layers = 1, bool has_outputs = false) const {
    return MedusaCase(base_.config.hidden_size, kVocab, num_heads, num_layers, has_outputs)
        .random();
  }
  Engine engine(const std::string& method, bool as_on_gpu) {
    EngineOptions options{
        .model_path = model_.path(), .max_batch = 4, .page_size = 4, .prefill_chunk = 9};
    options.num_threads = 2;
    options.device = testing::test_device();
    options.speculation.method = method;
    if (method == "heads") options.speculation.draft_model = of_base_.path().string();
    Engine engine = open_engine(
        options,
        {.as_on_gpu = as_on_gpu, .steps_as_on_gpu = as_on_gpu, .step_costs = kCheapDrafts});
    (void)engine.add_adapter("one", one_.folder.path().string());
    (void)engine.add_adapter("two", two_.folder.path().string());
    (void)engine.add_adapter("wide", wide_.folder.path().string());
    return engine;
  }

  model::ref::Llama base_ = model::random_llama(config(), true);
  testing::TinyModel model_{base_, {.control_tokens = {"<|end|>"}, .eos = kEnd}};
  testing::TempFolder of_base_;
  testing::TinyAdapter one_{base_, 3, {model::llama::kQ, model::llama::kDown}};
  testing::TinyAdapter two_{base_, 5, {model::llama::kV, model::llama::kGate}};
  testing::WideAdapter wide_{base_, kVocab + 4};
};

/// Random heads, of the model, of adapters with LoRA in the same folder, and of one with a head of
/// its own; rows that are sampled and penalised, and lists of adapters.
TEST_F(MedusaAnswersTest, NoBitOfAnAnswerDependsOnThem) {
  heads(3).write(of_base_);
  heads(2, 2).write(one_.folder);
  heads(4, 1, true).write(two_.folder);
  heads(2).write(wide_.folder);
  std::vector<Request> all;
  for (int64_t i = 0; i < 14; ++i) {
    Request request = testing::request_of(testing::random_tokens(testing::random_int(2, 30)), 30);
    request.ignore_end = true;
    if (i % 3 != 0) request.sampling = {.temperature = 0.7f, .seed = i};
    if (i % 5 == 1) request.adapter = "one";
    if (i % 5 == 2) request.adapter = "two";
    if (i % 5 == 3) request.adapter = "wide";
    if (i % 5 == 4) request.adapters = {{"one", 0.5f}, {"two", 2.0f}};
    if (i % 4 == 1) request.sampling.presence_penalty = 1.5f;
    if (i % 4 == 2) request.top_logprobs = 2;
    all.push_back(std::move(request));
  }
  for (const bool as_on_gpu : {false, true}) {
    Engine plain = engine("off", as_on_gpu), drafting = engine("heads", as_on_gpu);
    const std::vector<Completion> want = run_whole(plain, all), got = run_whole(drafting, all);
    for (size_t i = 0; i < all.size(); ++i) {
      testing::expect_same(got[i], want[i], "request " + std::to_string(i));
      // Rows after the first ones of an adapter know that its heads are wrong.
      if (i < 5) {
        EXPECT_GT(got[i].drafts.drafted, 0) << i;
      }
    }
  }
}

TEST_F(MedusaAnswersTest, WhatDoesNotFitIsNamed) {
  const auto start = [&] { (void)engine("heads", false); };
  testing::expect_invalid({"has no config.json with medusa_num_heads"}, start);
  MedusaCase(base_.config.hidden_size + 1, kVocab, 2).write(of_base_);
  testing::expect_invalid({"tensor '0.0.linear.weight' is [25, 25], expected [24, 24]"}, start);
  heads(2).write(of_base_);
  MedusaCase wrong = heads(2);
  wrong.biases[1][3] = NAN;
  wrong.write(one_.folder);
  testing::expect_invalid({"'1.0.linear.bias' has NaN at [0, 3]"}, start);
  // In one file with the adapter's own tensors, as LoRAX may have them.
  testing::SafetensorsBuilder both;
  heads(2).add_tensors(both);
  const std::string zeros(24 * 3 * sizeof(float), '\0');
  const std::string prefix = "base_model.model.model.layers.0.self_attn.q_proj.";
  both.tensor(prefix + "lora_A.weight", "F32", {3, 24}, zeros);
  both.tensor(prefix + "lora_B.weight", "F32", {48, 3}, zeros + zeros);
  one_.folder.write("adapter_model.safetensors", both.build());
  testing::expect_unsupported({"0.0.linear.weight", "is not lora_A or lora_B"}, start);
  std::filesystem::remove(one_.folder.path() / "medusa_lm_head.safetensors");
  Engine works = engine("heads", false);
  EXPECT_EQ(works.adapter_receipt("one", ReceiptNorms::kAsKnown)->tensors_given, 2);
}

}  // namespace
}  // namespace heddle
