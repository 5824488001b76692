// The engine through C: what comes back has the bits of the C++ engine, and nothing throws.
#include "heddle/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_engine.h"

#include "engine/bindings/test/c_engine_case.h"
#include "engine/test/engine_cases.h"
#include "engine/test/model_files.h"

namespace heddle {
namespace {

using testing::Answer, testing::c_string, testing::CEngine, testing::expect_failure;
using testing::take, testing::take_all, testing::text_of;

TEST_F(CEngine, AnswersByPollAndByCallbackHaveTheBitsOfCpp) {
  const std::vector<Request> all = requests();
  const std::vector<Completion> want = expected(all, first);
  std::vector<Answer> called(all.size());
  std::map<int64_t, size_t> index_of;
  for (size_t i = 0; i < all.size(); ++i) {
    heddle_engine_request request = c_request(all[i]);
    index_of[submit(request)] = i;
    request.on_event = take_all;
    request.user_data = &called[i];
    (void)submit(request);
  }
  for (const auto& [id, answer] : poll(all.size())) {
    Completion got = answer.completion;
    const bool stops = answer.reason == HEDDLE_FINISH_STOP;  // at a token of stop_token_ids
    EXPECT_TRUE(stops || answer.reason == HEDDLE_FINISH_LENGTH);
    got.finish_reason = stops ? FinishReason::kStop : FinishReason::kLength;
    EXPECT_EQ(got.prompt_tokens, 3);
    testing::expect_same(got, want[index_of.at(id)], "polled");
    const Completion& same = want[index_of.at(id)];
    EXPECT_EQ(got.top_token_ids, same.top_token_ids);
    EXPECT_TRUE(testing::same_bits<float>(got.top_logprobs, same.top_logprobs));
    EXPECT_TRUE(testing::same_bits<float>(got.prompt_logprobs, same.prompt_logprobs));
    EXPECT_EQ(got.prompt_top_token_ids, same.prompt_top_token_ids);
    EXPECT_TRUE(testing::same_bits<float>(got.prompt_top_logprobs, same.prompt_top_logprobs));
  }
  heddle_engine_destroy(std::exchange(engine, nullptr));  // what still runs is cancelled
  for (size_t i = 0; i < all.size(); ++i) {
    const auto length = static_cast<std::ptrdiff_t>(called[i].completion.token_ids.size());
    EXPECT_TRUE(called[i].reason == HEDDLE_FINISH_LENGTH ||
                called[i].reason == HEDDLE_FINISH_STOP ||
                called[i].reason == HEDDLE_FINISH_CANCELLED);
    EXPECT_TRUE(std::equal(want[i].token_ids.begin(), want[i].token_ids.begin() + length,
                           called[i].completion.token_ids.begin()));
  }
}

TEST_F(CEngine, VariantsOfARequestHaveTheBitsOfCpp) {
  Request request = testing::endless_request({1, 2, 3, 4, 5, 6}, 8);
  request.sampling = {.temperature = 1.0f, .seed = 5};
  const heddle_engine_adapter half{c_string(name), 0.5f};
  const heddle_engine_variant variants[] = {{nullptr, 0, 0}, {nullptr, 0, 3}, {&half, 1, 1}};
  std::vector<Request> alone(3, request);
  alone[1].sampling.seed = 8;
  alone[2].sampling.seed = 6;
  alone[2].adapters = {{name, 0.5f}};
  const std::vector<Completion> want = expected(alone, first);
  int64_t ids[3];
  const heddle_engine_request given = c_request(request);
  ASSERT_EQ(heddle_engine_submit_each(engine, &given, variants, 3, ids), HEDDLE_OK);
  auto answers = poll(3);
  for (size_t i = 0; i < 3; ++i) {
    Completion got = answers.at(ids[i]).completion;
    got.finish_reason = FinishReason::kLength;
    testing::expect_same(got, want[i], "variant");
  }
  struct Told {
    std::map<int64_t, Answer> answers;
    std::promise<void> all;
  } told;
  heddle_engine_request called = given;
  called.user_data = &told;
  called.on_event = [](void* data, const heddle_engine_event* event) {
    Told& to = *static_cast<Told*>(data);
    take(*event, to.answers[event->request]);
    const auto has_ended = [](const auto& entry) {
      return entry.second.reason != HEDDLE_FINISH_NONE;
    };
    if (event->finish_reason == HEDDLE_FINISH_NONE) return;
    if (std::ranges::count_if(to.answers, has_ended) == 3) to.all.set_value();
  };
  ASSERT_EQ(heddle_engine_submit_each(engine, &called, variants, 3, ids), HEDDLE_OK);
  told.all.get_future().wait();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(told.answers.at(ids[i]).completion.token_ids, want[i].token_ids);
  }
  EXPECT_EQ(heddle_engine_submit_each(engine, &given, nullptr, 0, nullptr), HEDDLE_OK);
  expect_failure("variants is NULL, but it has 1 elements",
                 heddle_engine_submit_each(engine, &given, nullptr, 1, ids));
  expect_failure("ids is NULL", heddle_engine_submit_each(engine, &given, variants, 3, nullptr));
}

TEST_F(CEngine, ARequestThatCannotRunEndsWithItsErrorAndItsCode) {
  const auto expect_error = [&](const Request& request, heddle_request_error code,
                                const std::string& says) {
    const int64_t id = submit(c_request(request));
    const Answer answer = poll(1).at(id);
    EXPECT_EQ(answer.reason, HEDDLE_FINISH_ERROR);
    EXPECT_EQ(answer.error_code, code) << says;
    EXPECT_NE(answer.completion.error.find(says), std::string::npos) << answer.completion.error;
  };
  Request request = testing::endless_request({1}, 2);
  request.adapter = "missing";
  expect_error(request, HEDDLE_ERROR_UNKNOWN_ADAPTER, "unknown adapter \"missing\"");
  request.adapter.clear();
  request.max_tokens = -1;
  expect_error(request, HEDDLE_ERROR_INVALID_ARGUMENT, "max_tokens is -1");

  heddle_engine_destroy(std::exchange(engine, nullptr));
  heddle_engine_options options = small_options();
  const std::string folder = std::filesystem::path(first).parent_path().string();
  options.adapter_dir = c_string(folder);
  options.adapter_memory = 1;
  ASSERT_EQ(heddle_engine_create(&engine, c_string(path), &options), HEDDLE_OK)
      << heddle_engine_last_error();
  request.max_tokens = 1;
  request.adapter = std::filesystem::path(first).filename().string();
  expect_error(request, HEDDLE_ERROR_OUT_OF_MEMORY, "bytes of adapter memory, there are 1 ");
}

TEST_F(CEngine, ACancelledRequestEndsAndTheOthersKeepTheirBits) {
  const Request kept = testing::endless_request({3, 4}, 40);
  std::vector<Completion> want = expected({kept}, first);
  const int64_t kept_id = submit(c_request(kept));
  // By the engine's thread, between two steps: the request cannot end by itself before.
  struct Late {
    heddle_engine* engine;
    heddle_engine_request request;
    int64_t id = -1;
    bool was = false;
  };
  const Request cancelled = testing::endless_request({5}, 60);
  Late late{.engine = engine, .request = c_request(cancelled)};
  const Request tiny = testing::endless_request({6}, 1);
  heddle_engine_request starter = c_request(tiny);
  starter.on_event = [](void* data, const heddle_engine_event* event) {
    if (event->finish_reason == HEDDLE_FINISH_NONE) return;
    Late& to = *static_cast<Late*>(data);
    EXPECT_EQ(heddle_engine_submit(to.engine, &to.request, &to.id), HEDDLE_OK);
    EXPECT_EQ(heddle_engine_cancel(to.engine, to.id, &to.was), HEDDLE_OK);
  };
  starter.user_data = &late;
  (void)submit(starter);
  auto answers = poll(2);
  const int64_t id = late.id;
  bool was = late.was;
  EXPECT_TRUE(was);
  EXPECT_EQ(answers.at(id).reason, HEDDLE_FINISH_CANCELLED);
  answers.at(kept_id).completion.finish_reason = FinishReason::kLength;
  testing::expect_same(answers.at(kept_id).completion, want[0], "concurrently");
  EXPECT_EQ(heddle_engine_cancel(engine, id, &was), HEDDLE_OK);
  EXPECT_FALSE(was);
  EXPECT_EQ(heddle_engine_cancel(engine, 99, nullptr), HEDDLE_OK);
  heddle_engine_load load;
  EXPECT_EQ(heddle_engine_get_load(engine, &load), HEDDLE_OK);
  EXPECT_EQ(load.num_running, 0);
  EXPECT_EQ(load.num_free_pages, load.num_pages);
}

TEST_F(CEngine, TellsWhatOfAPromptThePrefixCacheHad) {
  const auto cached = [&](const std::string& salt, heddle_engine* of) {
    std::swap(engine, of);
    Request request = testing::endless_request({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 3);
    request.cache_salt = salt;
    const int64_t id = submit(c_request(request));
    const Completion completion = poll(1).at(id).completion;
    std::swap(engine, of);
    EXPECT_EQ(completion.prompt_tokens, 10);
    return completion.cached_tokens;
  };
  EXPECT_EQ(cached("", engine), 0);
  constexpr int64_t kFound = 9;  // two pages of 4 tokens, and the next token
  EXPECT_EQ(cached("", engine), kFound);
  EXPECT_EQ(cached("a", engine), 0);
  EXPECT_EQ(cached("a", engine), kFound);
  heddle_engine_stats stats;
  ASSERT_EQ(heddle_engine_get_stats(engine, &stats), HEDDLE_OK);
  EXPECT_EQ(stats.prefix_tokens, 40);
  EXPECT_EQ(stats.cached_tokens, 2 * kFound);
  EXPECT_EQ(stats.prefill_tokens, 40 - 2 * kFound);
  EXPECT_EQ(stats.generated_tokens, 12);
  EXPECT_EQ(stats.parkings, 0);
  heddle_engine_load load;
  ASSERT_EQ(heddle_engine_get_load(engine, &load), HEDDLE_OK);
  EXPECT_GE(load.num_cached_pages, 4);
  EXPECT_EQ(load.num_free_pages, load.num_pages);
  EXPECT_EQ(load.num_parked, 0);
  EXPECT_EQ(heddle_engine_reset_prefix_cache(engine), HEDDLE_OK);
  ASSERT_EQ(heddle_engine_get_load(engine, &load), HEDDLE_OK);
  EXPECT_EQ(load.num_cached_pages, 0);
  EXPECT_EQ(cached("", engine), 0);

  heddle_engine_options options = small_options();
  EXPECT_TRUE(options.prefix_cache);
  options.prefix_cache = false;
  heddle_engine* without = nullptr;
  ASSERT_EQ(heddle_engine_create(&without, c_string(path), &options), HEDDLE_OK);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cached("", without), 0);
  heddle_engine_destroy(without);
}

TEST_F(CEngine, AdmitsNowOrForTheLongestAnswer) {
  heddle_engine_options options = small_options();
  EXPECT_EQ(options.admit.data, nullptr);
  heddle_engine* other = nullptr;
  for (const std::string admit : {"now", "longest"}) {
    options.admit = c_string(admit);
    ASSERT_EQ(heddle_engine_create(&other, c_string(path), &options), HEDDLE_OK);
    heddle_engine_destroy(other);
  }
  const std::string wrong = "later";
  options.admit = c_string(wrong);
  expect_failure("admit is 'later', expected now or longest",
                 heddle_engine_create(&other, c_string(path), &options));
}

/// What was submitted before keeps its adapter, even if it has not begun.
TEST_F(CEngine, AdaptersComeAndGoBesideRows) {
  std::vector<Request> rows;
  for (int i = 0; i < 8; ++i) {
    rows.push_back(testing::endless_request({1 + i}, 12));
    rows.back().adapter = "first";
  }
  for (const Request& row : rows) (void)submit(c_request(row));
  add("first", second, true);
  for (const Request& row : rows) (void)submit(c_request(row));
  EXPECT_EQ(heddle_engine_remove_adapter(engine, c_string("first")), HEDDLE_OK);
  bool has = true;
  EXPECT_EQ(heddle_engine_has_adapter(engine, c_string("first"), &has), HEDDLE_OK);
  EXPECT_FALSE(has);
  expect_failure("unknown adapter \"first\"",
                 heddle_engine_remove_adapter(engine, c_string("first")));
  auto answers = poll(2 * rows.size());
  const std::vector<Completion> old = expected(rows, first), fresh = expected(rows, second);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto id = static_cast<int64_t>(i);
    EXPECT_EQ(answers.at(id).completion.token_ids, old[i].token_ids);
    EXPECT_EQ(answers.at(id + 8).completion.token_ids, fresh[i].token_ids);
    EXPECT_TRUE(
        testing::same_bits<float>(answers.at(id + 8).completion.logprobs, fresh[i].logprobs));
  }
}

TEST_F(CEngine, WhatIsOddAboutAnAdapterIsToldOrAnError) {
  const std::string odd = model.adapter_folder("odd", 3);
  const std::string file = odd + "/adapter_config.json";
  std::string config;
  std::getline(std::ifstream(file), config, '\0');
  config.insert(1, R"("rank_patern": {}, )");
  std::ofstream(file) << config;
  const testing::TempFolder folder;
  const std::string plain = folder.write("plain.gguf", plain_file());
  std::vector<std::string> told;
  heddle_engine_options options = small_options();
  options.user_data = &told;
  options.on_warning = [](void* to, heddle_string warning) {
    static_cast<std::vector<std::string>*>(to)->push_back(text_of(warning));
  };
  heddle_engine* other = nullptr;
  ASSERT_EQ(heddle_engine_create(&other, c_string(plain), &options), HEDDLE_OK);
  EXPECT_EQ(heddle_engine_add_adapter(other, c_string("first"), c_string(first), false), HEDDLE_OK);
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(heddle_engine_add_adapter(other, c_string("odd"), c_string(odd), false), HEDDLE_OK);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("'rank_patern' is a field that heddle does not know"), std::string::npos);
  heddle_engine_destroy(other);
  options.strict = true;
  ASSERT_EQ(heddle_engine_create(&other, c_string(plain), &options), HEDDLE_OK);
  expect_failure("did you mean rank_pattern?",
                 heddle_engine_add_adapter(other, c_string("odd"), c_string(odd), false));
  EXPECT_EQ(told.size(), 1u);
  heddle_engine_destroy(other);
}

TEST_F(CEngine, WhatIsOddAboutTheModelIsToldOrAnError) {
  const testing::TempFolder folder;
  const std::string file = folder.write("g.json", R"({"temperature": 0.5, "num_beams": 4})");
  std::vector<std::string> told;
  heddle_engine_options options = small_options();
  options.generation_config = c_string(file);
  options.user_data = &told;
  options.on_warning = [](void* to, heddle_string warning) {
    static_cast<std::vector<std::string>*>(to)->push_back(text_of(warning));
  };
  heddle_engine* other = nullptr;
  ASSERT_EQ(heddle_engine_create(&other, c_string(path), &options), HEDDLE_OK);
  heddle_engine_destroy(std::exchange(other, nullptr));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].find(path + ": has no tokenizer.ggml.pre, "), 0u) << told[0];
  const std::string says = file + ": num_beams is 4, which heddle does not support";
  EXPECT_EQ(told[1], says);
  options.strict = true;
  const std::string plain = folder.write("plain.gguf", plain_file());
  for (const auto& [model, sentence] : {std::pair(path, told[0]), {plain, says}}) {
    expect_failure(sentence.c_str(), heddle_engine_create(&other, c_string(model), &options));
    EXPECT_EQ(other, nullptr);
  }
  EXPECT_EQ(told.size(), 2u);
}

TEST_F(CEngine, WrongArgumentsAreNamed) {
  heddle_engine* none = engine;
  expect_failure("model is empty", heddle_engine_create(&none, {nullptr, 0}, nullptr));
  EXPECT_EQ(none, nullptr);
  expect_failure("engine is NULL", heddle_engine_create(nullptr, c_string(path), nullptr));
  expect_failure("/nonexistent", heddle_engine_create(&none, c_string("/nonexistent"), nullptr));
  expect_failure("model holds a NUL byte", heddle_engine_create(&none, {"a\0b", 3}, nullptr));
  expect_failure("model has 5000 bytes, expected at most 4096",
                 heddle_engine_create(&none, c_string(std::string(5000, 'x')), nullptr));
  heddle_engine_options options;
  heddle_engine_options_init(&options);
  options.max_batch = 0;
  expect_failure("max_batch is 0", heddle_engine_create(&none, c_string(path), &options));
  heddle_engine_options_init(&options);
  const std::string unknown_type = "q8_0";
  options.kv_type = c_string(unknown_type);
  expect_failure("kv_type is 'q8_0', expected one of f32, f16, bf16, fp8",
                 heddle_engine_create(&none, c_string(path), &options));
  heddle_engine_options_init(&options);
  options.activations = c_string(unknown_type);
  expect_failure("activations is 'q8_0', expected f32 or int8",
                 heddle_engine_create(&none, c_string(path), &options));
  heddle_engine_options_init(&options);
  options.speculation.method = c_string(unknown_type);
  expect_failure("speculation is 'q8_0', expected off, ngram, suffix, model, heads or eagle3",
                 heddle_engine_create(&none, c_string(path), &options));
  options.speculation = {{nullptr, 0}, 0, 4, 2, 0, {nullptr, 0}};
  expect_failure("min_ngram is 4, expected at most max_ngram = 2",
                 heddle_engine_create(&none, c_string(path), &options));
  expect_failure("adapter name \"first\" is given twice",
                 heddle_engine_add_adapter(engine, c_string("first"), c_string(second), false));
  expect_failure(
      "name has 1025 bytes, expected at most 1024",
      heddle_engine_add_adapter(engine, c_string(std::string(1025, 'x')), c_string(second), false));
  expect_failure("/nonexistent/adapter_config.json",
                 heddle_engine_add_adapter(engine, c_string("b"), c_string("/nonexistent"), true));
  heddle_engine_request request;
  heddle_engine_request_init(&request);
  int64_t id = 0;
  request.text = {nullptr, 4};
  expect_failure("text.data is NULL, but it has 4 bytes",
                 heddle_engine_submit(engine, &request, &id));
  request.text = {nullptr, 0};
  request.num_token_ids = 3;
  expect_failure("token_ids is NULL, but it has 3 elements",
                 heddle_engine_submit(engine, &request, &id));
  expect_failure("request is NULL", heddle_engine_submit(engine, nullptr, &id));
  expect_failure("engine is NULL", heddle_engine_cancel(nullptr, 0, nullptr));
  expect_failure("engine is NULL", heddle_engine_reset_prefix_cache(nullptr));
  expect_failure("stats is NULL", heddle_engine_get_stats(engine, nullptr));
  request.num_token_ids = 0;
  request.cache_salt = {nullptr, 2};
  expect_failure("cache_salt.data is NULL, but it has 2 bytes",
                 heddle_engine_submit(engine, &request, &id));
  request.cache_salt = {nullptr, 0};
  request.prediction = {nullptr, 2};
  expect_failure("prediction.data is NULL, but it has 2 bytes",
                 heddle_engine_submit(engine, &request, &id));
  request.prediction = {nullptr, 0};
  request.format.kind = HEDDLE_FORMAT_STRUCTURAL_TAG + 1;
  expect_failure("format.kind is 8, expected 0 to 7", heddle_engine_submit(engine, &request, &id));
  request.format = {HEDDLE_FORMAT_CHOICE, {nullptr, 0}, nullptr, 1};
  expect_failure("format.choices is NULL, but it has 1 elements",
                 heddle_engine_submit(engine, &request, &id));
  heddle_engine_event* event = nullptr;
  EXPECT_EQ(heddle_engine_poll(engine, 1, &event), HEDDLE_OK);
  EXPECT_EQ(event, nullptr);
  heddle_engine_event_destroy(nullptr);
  heddle_engine_destroy(nullptr);
}

TEST_F(CEngine, TellsVersionsAndTheModel) {
  EXPECT_EQ(heddle_engine_abi_version(), HEDDLE_ENGINE_ABI_VERSION);
  EXPECT_NE(std::string(heddle_engine_version()), "");
  heddle_engine_model told;
  ASSERT_EQ(heddle_engine_get_model(engine, &told), HEDDLE_OK);
  EXPECT_EQ(text_of(told.architecture), "llama");
  EXPECT_EQ(text_of(told.path), path);
  EXPECT_EQ(told.vocab_size, testing::RandomModel::kVocabSize);
  EXPECT_EQ(told.max_context, testing::kTinyContext);
  const bool on_cpu = device == "cpu";
  EXPECT_EQ(text_of(told.device), on_cpu ? "cpu" : "cuda:0");
  EXPECT_EQ(text_of(told.device_name).empty(), on_cpu);
  EXPECT_EQ(text_of(told.activations), on_cpu ? "f32" : "bf16");
}

TEST_F(CEngine, GivesTheDefaultsOfAGenerationConfig) {
  heddle_engine_request request;
  heddle_engine_request_init(&request);
  ASSERT_EQ(heddle_engine_apply_defaults(engine, &request), HEDDLE_OK);
  EXPECT_EQ(request.temperature, 0.0f) << "the model's file says nothing";
  EXPECT_EQ(request.max_tokens, 256);
  const testing::TempFolder folder;
  const std::string file =
      folder.write("g.json", R"({"temperature": 0.5, "top_p": 0.75, "max_new_tokens": 9})");
  heddle_engine_options options = small_options();
  options.generation_config = c_string(file);
  heddle_engine* other = nullptr;
  ASSERT_EQ(heddle_engine_create(&other, c_string(path), &options), HEDDLE_OK)
      << heddle_engine_last_error();
  request.top_k = 3;
  ASSERT_EQ(heddle_engine_apply_defaults(other, &request), HEDDLE_OK);
  EXPECT_EQ(request.temperature, 0.5f);
  EXPECT_EQ(request.top_p, 0.75f);
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.top_k, 3) << "which the file does not say";
  EXPECT_EQ(request.repetition_penalty, 1.0f);
  EXPECT_EQ(heddle_engine_apply_defaults(other, nullptr), HEDDLE_INVALID_ARGUMENT);
  EXPECT_EQ(heddle_engine_apply_defaults(nullptr, &request), HEDDLE_INVALID_ARGUMENT);
  heddle_engine_destroy(other);
  const std::string nowhere = "/nowhere";
  options.generation_config = c_string(nowhere);
  EXPECT_EQ(heddle_engine_create(&other, c_string(path), &options), HEDDLE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(heddle_engine_last_error()).find("no file /nowhere"), std::string::npos);
}

TEST_F(CEngine, MergesHaveTheBitsOfCpp) {
  const std::string of_rank_3 = model.adapter_folder("of_rank_3", 3);
  add("other", of_rank_3);
  Request request = testing::endless_request({1, 2, 3, 4}, 6);
  request.adapters = {{"first", 0.5f}, {"other"}};
  request.merge = {.method = AdapterMerge::Method::kDareTies,
                   .density = 0.5,
                   .majority_sign = AdapterMerge::MajoritySign::kFrequency,
                   .seed = 3};
  Engine cpp({.model_path = path, .device = device, .max_batch = 1, .num_threads = 1});
  (void)cpp.add_adapter("first", first);
  (void)cpp.add_adapter("other", of_rank_3);
  const Completion want = testing::run_all(cpp, {request}).front();
  heddle_engine_request given = c_request(request);
  given.merge = {HEDDLE_MERGE_DARE_TIES, 0.5, HEDDLE_SIGN_FREQUENCY, 3};
  int64_t id = -1;
  ASSERT_EQ(heddle_engine_submit(engine, &given, &id), HEDDLE_OK);
  const Answer got = poll(1).at(id);
  EXPECT_EQ(got.reason, HEDDLE_FINISH_LENGTH);
  EXPECT_EQ(got.completion.token_ids, want.token_ids);
  EXPECT_TRUE(testing::same_bits<float>(got.completion.logprobs, want.logprobs));
  given.merge.method = 5;
  expect_failure("merge.method is 5, expected 0 to 4", heddle_engine_submit(engine, &given, &id));
  given.merge = {HEDDLE_MERGE_TIES, 0.5, 2, 0};
  expect_failure("merge.majority_sign is 2, expected 0 or 1",
                 heddle_engine_submit(engine, &given, &id));
}

/// Many threads at once: submitting, cancelling, polling, and adapters that change.
TEST_F(CEngine, ManyThreadsMayCall) {
  constexpr int kThreads = 4, kRows = 30;
  const Request row = testing::endless_request({7, 8}, 6);
  const std::vector<Completion> want = expected({row}, first);
  std::atomic<int> num_ended = 0, num_cancelled = 0, num_wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "own" + std::to_string(t);
      for (int i = 0; i < kRows; ++i) {
        if (i % 10 == 0) add(name, i % 20 == 0 ? second : first, true);
        const int64_t id = submit(c_request(row));
        if (i % 5 == 4) (void)heddle_engine_cancel(engine, id, nullptr);
      }
      while (num_ended < kThreads * kRows) {
        heddle_engine_event* event = nullptr;
        if (heddle_engine_poll(engine, 5, &event) != HEDDLE_OK) ++num_wrong;
        if (event == nullptr) continue;
        if (event->finish_reason == HEDDLE_FINISH_CANCELLED) {
          ++num_cancelled;
        } else if (event->finish_reason == HEDDLE_FINISH_LENGTH) {
          const std::vector<int32_t> ids(event->token_ids, event->token_ids + event->num_tokens);
          if (ids != want[0].token_ids) ++num_wrong;
        }
        if (event->finish_reason != HEDDLE_FINISH_NONE) ++num_ended;
        heddle_engine_event_destroy(event);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_ended, kThreads * kRows);
  EXPECT_EQ(num_wrong, 0);
  EXPECT_LE(num_cancelled, kThreads * kRows / 5);
}

}  // namespace
}  // namespace heddle
