// A smaller model that drafts: every answer has the bits that it has without, and what the model
// itself would draw is always right.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "engine/face/made_engine.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"

namespace heddle {
namespace {

using testing::expect_same;
using testing::random_int;
using testing::run_whole;

namespace fs = std::filesystem;

const model::ByteTokenizer kTokens{.control_tokens = {"<|end|>"}, .eos = 256};

/// A step of 16 tokens costs little more than one of a single token.
const std::vector<StepCost> kCheapDrafts = {{1, 1e-3}, {16, 1.1e-3}, {64, 2e-3}};

model::DecoderConfig config(int64_t num_layers = 2, int64_t vocab_size = 257) {
  model::DecoderConfig config = testing::tiny_config(vocab_size);
  config.num_layers = num_layers;
  config.context_length = 96;
  return config;
}

/// The sum of what was drafted for the answers.
DraftCounts drafts_of(const std::vector<Completion>& answers) {
  DraftCounts sum;
  for (const Completion& answer : answers) {
    sum.drafted += answer.drafts.drafted;
    sum.accepted += answer.drafts.accepted;
  }
  return sum;
}

class DraftModelTest : public ::testing::Test {
 protected:
  /// draft: the path of the model that drafts; empty: none does.
  Engine engine(const std::string& draft, EngineOptions options = {}, bool as_on_gpu = false) {
    options.model_path = model_.path();
    options.num_threads = 2;
    if (options.device.empty()) options.device = testing::test_device();
    if (!draft.empty()) {
      options.speculation.method = "model";
      options.speculation.draft_model = draft;
    }
    Engine engine =
        open_engine(options, {.steps_as_on_gpu = as_on_gpu, .step_costs = kCheapDrafts});
    (void)engine.add_adapter("one", one_.folder.path().string());
    return engine;
  }

  static std::vector<Request> requests(int64_t count) {
    std::vector<Request> all;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<int32_t> prompt = testing::random_tokens(random_int(2, 30));
      prompt.front() = static_cast<int32_t>(i);
      Request request = testing::endless_request(std::move(prompt), random_int(20, 50));
      if (i % 3 == 1) request.sampling = {.temperature = 1.2f, .seed = random_int(0, 1 << 20)};
      if (i % 4 == 1) request.adapter = "one";
      if (i % 8 == 3) request.adapters = {{"one", 0.5f}};
      if (i % 5 == 2) request.ignore_end = false;
      all.push_back(std::move(request));
    }
    return all;
  }
  static std::vector<Request> greedy(const std::vector<int64_t>& prompts,
                                     const std::string& adapter = {}) {
    std::vector<Request> all;
    for (const int64_t length : prompts) {
      all.push_back(testing::endless_request(testing::random_tokens(length), 40));
      all.back().adapter = adapter;
    }
    return all;
  }
  static void expect_all_same(const std::vector<Completion>& got,
                              const std::vector<Completion>& want, const std::string& what) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      expect_same(got[i], want[i], what + ", request " + std::to_string(i));
    }
  }
  /// Answers of a round in which something was drafted: until the adapter of the draft model has
  /// been read its rows do not draft.
  static std::vector<Completion> answers_with_drafts(Engine& engine,
                                                     const std::vector<Request>& requests) {
    std::vector<Completion> answers;
    for (int round = 0; round < 1000 && drafts_of(answers).drafted == 0; ++round) {
      answers = run_whole(engine, requests);
    }
    return answers;
  }
  /// A `draft` folder of the adapter's with the files of this adapter.
  void give_draft(const testing::TinyAdapter& of) {
    const fs::path folder = one_.folder.path() / "draft";
    fs::create_directory(folder);
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
      fs::copy_file(of.folder.path() / file, folder / file);
    }
  }

  model::ref::Llama base_ = model::random_llama(config(), true);
  testing::TinyModel model_{base_, kTokens};
  testing::TinyModel small_{model::random_llama(config(1), true), kTokens};
  testing::TinyAdapter one_{base_, 3, {model::llama::kQ, model::llama::kDown}};
};

TEST_F(DraftModelTest, NoDraftChangesAnyBit) {
  const std::vector<Request> all = requests(12);
  const EngineOptions options{.max_batch = 5, .page_size = 4, .prefill_chunk = 7};
  for (const bool as_on_gpu : {false, true}) {
    Engine plain = engine({}, options, as_on_gpu);
    const std::vector<Completion> want = run_whole(plain, all);
    for (const auto* draft : {&model_, &small_}) {
      Engine drafting = engine(draft->path(), options, as_on_gpu);
      expect_all_same(run_whole(drafting, all), want, draft->path());
      EXPECT_GT(drafting.stats().drafts.drafted, 0);
      const auto source = static_cast<size_t>(DraftSource::kModel);
      EXPECT_EQ(drafting.stats().draft_stats.by_source[source].drafted,
                drafting.stats().drafts.drafted);
    }
  }
}

/// Drafts of the model itself. On a GPU it has computed some tokens as prompts that were drawn,
/// whose keys differ in their last bits then.
void expect_right(const DraftCounts& counts, const std::string& what) {
  if (testing::is_on_cpu()) {
    EXPECT_EQ(counts.accepted, counts.drafted) << what;
  } else {
    EXPECT_GE(10 * counts.accepted, 9 * counts.drafted) << what;
  }
}

/// Prompts of one token and more, some of which are computed over several proposals.
TEST_F(DraftModelTest, WhatTheModelItselfDraftsIsRight) {
  const std::vector<Request> all = greedy({1, 2, 9, 17, 40});
  for (const bool as_on_gpu : {false, true}) {
    for (const int chunk : {3, 7, 64}) {
      Engine drafting = engine(model_.path(), {.page_size = 4, .prefill_chunk = chunk}, as_on_gpu);
      (void)run_whole(drafting, all);
      const DraftCounts& counts = drafting.stats().drafts;
      expect_right(counts, std::to_string(chunk));
      EXPECT_GT(counts.drafted, chunk == 3 ? 60 : 120) << chunk;
    }
  }
}

TEST_F(DraftModelTest, ItTakesFewerSteps) {
  const std::vector<Request> one = greedy({5});
  Engine drafting = engine(model_.path());
  (void)run_whole(drafting, one);
  // The prompt draws one; each step but the last takes 8 drafts and one more.
  EXPECT_LE(drafting.stats().decode_steps, 7);
}

/// Of the draft model, whose rows give up theirs, and of the model, whose rows are parked.
TEST_F(DraftModelTest, PagesThatRunOutChangeNoBit) {
  const std::vector<Request> all = requests(12);
  EngineOptions options{.max_batch = 6, .page_size = 4, .prefill_chunk = 7};
  Engine plain = engine({}, options);
  const std::vector<Completion> want = run_whole(plain, all);
  const int64_t page = plain.options().kv_memory / plain.load().num_pages;
  for (const auto& [of_model, of_draft] : {std::pair(26, 200), {200, 30}, {26, 16}, {200, 1}}) {
    const std::string what = std::to_string(of_model) + " " + std::to_string(of_draft);
    EngineOptions narrow = options;
    narrow.kv_memory = of_model * page;
    narrow.speculation.memory = of_draft * page;
    Engine drafting = engine(model_.path(), narrow);
    EXPECT_LE(drafting.options().speculation.memory, of_draft * page);
    const std::vector<Completion> got = run_whole(drafting, all);
    expect_all_same(got, want, what);
    EXPECT_EQ(drafting.stats().parkings > 0, of_model == 26) << what;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool never_fits = of_draft == 1 && std::ssize(*all[i].token_ids) >= options.page_size;
      if (never_fits) {
        EXPECT_EQ(got[i].drafts.drafted, 0) << what;
      }
    }
    if (of_draft > 1) {
      EXPECT_GT(drafting.stats().drafts.drafted, 0) << what;
    }
  }
}

TEST_F(DraftModelTest, RowsThatEndOrPauseBetweenStepsAreNoHarm) {
  std::vector<Request> all = requests(8);
  for (Request& request : all) request.max_tokens = 40;
  Engine plain = engine({});
  const std::vector<Completion> want = run_whole(plain, all);
  for (const bool as_on_gpu : {false, true}) {
    Engine drafting = engine(small_.path(), {}, as_on_gpu);
    std::vector<testing::Outcome> outcomes(all.size());
    for (const Request& request : all) (void)drafting.submit(request);
    for (int64_t step = 0; drafting.num_unfinished() > 0; ++step) {
      ASSERT_LT(step, testing::kTooManySteps);
      testing::take(drafting.step(), 0, outcomes);
      if (step == 2) {
        EXPECT_TRUE(drafting.cancel(0));
        EXPECT_TRUE(drafting.set_paused(4, true));
      }
      if (step == 9) {
        EXPECT_TRUE(drafting.set_paused(4, false));
      }
    }
    for (size_t i = 1; i < all.size(); ++i) {
      expect_same(outcomes[i].completion, want[i], std::to_string(i));
    }
    testing::expect_idle(drafting);
    for (const Request& request : all) (void)drafting.submit(request);
    for (int step = 0; step < 4; ++step) (void)drafting.step();  // and ends with rows that run
  }
}

TEST_F(DraftModelTest, RowsOfAnAdapterDraftWithItsDraftFolder) {
  const std::vector<Request> all = greedy({3, 8, 14}, "one");
  Engine plain = engine({});
  const std::vector<Completion> want = run_whole(plain, all);
  const auto drafted = [&](const std::string& what) {
    Engine drafting = engine(model_.path());
    const std::vector<Completion> got = answers_with_drafts(drafting, all);
    expect_all_same(got, want, what);
    return drafts_of(got);
  };
  const DraftCounts without = drafted("without");
  EXPECT_LT(without.accepted, without.drafted);
  give_draft(one_);
  const DraftCounts with = drafted("with");
  expect_right(with, "with");
  EXPECT_GT(with.drafted, 0);
}

/// A request that goes on with another adapter drafts with that one's folder.
TEST_F(DraftModelTest, AdaptersMayChangeWhileTheyDraft) {
  const testing::TinyAdapter two(base_, 5, {model::llama::kV, model::llama::kGate});
  give_draft(one_);
  const std::vector<Request> all = greedy({5}, "one");
  const auto run = [&](Engine& engine, int64_t switch_at) {
    std::vector<testing::Outcome> outcomes(1);
    const RequestId id = engine.submit(all[0]);
    for (int step = 0; engine.num_unfinished() > 0 && step < testing::kTooManySteps; ++step) {
      const std::vector<RowProgress> rows = engine.row_progress(1);
      if (switch_at >= 0 && !rows.empty() && rows[0].answer_tokens >= switch_at) {
        (void)engine.replace_adapter("one", two.folder.path().string(), RunningRequests::kSwitch);
        switch_at = -1;
      }
      testing::take(engine.step(), id, outcomes);
    }
    return std::move(outcomes[0].completion);
  };
  Engine drafting = engine(model_.path());
  (void)answers_with_drafts(drafting, all);  // with the first adapter's folder
  const Completion got = run(drafting, 10);
  ASSERT_EQ(got.adapter_switches.size(), 1U);
  EXPECT_GT(got.drafts.drafted, 0);
  // On a GPU a step of the other engine is in flight where it switches.
  const int64_t token = got.adapter_switches[0].token;
  Engine plain = engine({});
  expect_same(got, run(plain, token - (testing::is_on_cpu() ? 0 : 1)), "switched");
}

/// An error where the adapter is added, and a warning where it is found in a folder of adapters.
TEST_F(DraftModelTest, AWrongDraftFolderIsTold) {
  std::vector<Request> all = greedy({3, 8}, "one");
  Engine plain = engine({});
  const std::vector<Completion> want = run_whole(plain, all);
  const testing::TinyAdapter deep(model::random_llama(config(3), true), 2, {model::llama::kQ});
  give_draft(deep);
  const std::string folder = one_.folder.path().string(), draft = folder + "/draft";
  try {
    (void)engine(model_.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(draft), std::string::npos) << error.what();
  }
  std::vector<std::string> warnings;
  EngineOptions options{.model_path = model_.path(), .device = testing::test_device()};
  options.num_threads = 2;
  options.adapter_dir = one_.folder.path().parent_path().string();
  options.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  options.speculation = {.method = "model", .draft_model = model_.path()};
  Engine drafting = open_engine(options, {.step_costs = kCheapDrafts});
  for (Request& request : all) request.adapter = one_.folder.path().filename().string();
  expect_all_same(run_whole(drafting, all), want, "wrong");
  EXPECT_GT(drafting.stats().drafts.drafted, 0);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find(options.adapter_dir), 0U) << warnings[0];
  EXPECT_NE(warnings[0].find("its rows draft with the draft model alone"), std::string::npos);
}

/// A shorter context, and fewer tokens: rows beyond them do not draft.
TEST_F(DraftModelTest, RowsBeyondTheDraftModelDoNotDraft) {
  model::DecoderConfig shorter = config(1);
  shorter.context_length = 32;
  const testing::TinyModel brief(model::random_llama(shorter, true), kTokens);
  std::vector<Request> all = greedy({3, 40});
  Engine plain = engine({});
  const std::vector<Completion> want = run_whole(plain, all);
  Engine drafting = engine(brief.path());
  const std::vector<Completion> got = run_whole(drafting, all);
  expect_all_same(got, want, "short");
  EXPECT_GT(got[0].drafts.drafted, 0);
  EXPECT_EQ(got[1].drafts.drafted, 0) << "its prompt is longer than the context";

  const testing::TinyModel more(model::random_llama(config(1, 260), true),
                                {.control_tokens = {"<|end|>", "<|a|>", "<|b|>", "<|c|>"}});
  all = {testing::endless_request({1, 2, 3}, 40), testing::endless_request({1, 258, 3}, 40)};
  EngineOptions options{.model_path = more.path(), .device = testing::test_device()};
  options.num_threads = 2;
  Engine without = open_engine(options, {});
  options.speculation = {.method = "model", .draft_model = small_.path()};
  Engine with = open_engine(options, {.step_costs = kCheapDrafts});
  const std::vector<Completion> wide = run_whole(with, all);
  expect_all_same(wide, run_whole(without, all), "more tokens");
  EXPECT_GT(wide[0].drafts.drafted, 0);
  EXPECT_EQ(wide[1].drafts.drafted, 0);
}

TEST_F(DraftModelTest, CostsAreMeasured) {
  EngineOptions options{.model_path = model_.path(), .device = testing::test_device()};
  options.num_threads = 2;
  options.speculation = {.method = "model", .draft_model = small_.path()};
  Engine measured(options);
  const std::vector<std::string>& notes = measured.model().notes;
  EXPECT_TRUE(std::ranges::any_of(notes, [&](const std::string& note) {
    return note.starts_with(small_.path() + " drafts, with ") &&
           note.find(" tokens: a draft takes ") != std::string::npos && note.ends_with(" ms");
  }));
  const std::vector<Request> all = requests(3);
  for (Request request : all) {
    if (!request.adapter.empty() || !request.adapters.empty()) continue;
    Engine plain(EngineOptions{.model_path = model_.path(), .device = testing::test_device()});
    expect_same(run_whole(measured, {request})[0], run_whole(plain, {request})[0], "measured");
  }
}

TEST_F(DraftModelTest, WhatIsWrongIsNamed) {
  const auto error_of = [&](const std::string& path) {
    try {
      (void)engine(path);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const testing::TinyModel other(model::random_llama(config(1), true),
                                 {.control_tokens = {"<|stop|>"}, .eos = 256});
  EXPECT_EQ(error_of(other.path()),
            "draft_model (--draft-model): " + other.path() + " has another vocabulary than " +
                model_.path() +
                ": token 256 is '<|stop|>' there and '<|end|>' here; a draft model needs the "
                "tokens of the model");
  const std::string missing = one_.folder.path().string() + "/missing";
  EXPECT_NE(error_of(missing).find(missing), std::string::npos);
  const std::string folder = one_.folder.path().string();  // an adapter's
  EXPECT_NE(error_of(folder).find(folder), std::string::npos);
}

}  // namespace
}  // namespace heddle
