#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_engine.h"
#include "heddle/engine/engine.h"

#include "engine/test/engine_cases.h"
#include "engine/test/model_files.h"
#include "engine/test/test_device.h"

namespace heddle::testing {

inline heddle_string c_string(const std::string& text) { return {text.data(), text.size()}; }
inline std::string text_of(heddle_string text) {
  EXPECT_EQ(text.data[text.size], '\0');
  return {text.data, text.size};
}

/// What a request has become, from its events.
struct Answer {
  std::string streamed{};
  Completion completion{};
  heddle_finish_reason reason = HEDDLE_FINISH_NONE;
  heddle_request_error error_code = HEDDLE_ERROR_NONE;
};

inline void take(const heddle_engine_event& event, Answer& answer) {
  EXPECT_EQ(answer.reason, HEDDLE_FINISH_NONE) << "an event after the last one";
  answer.streamed += text_of(event.text);
  answer.reason = event.finish_reason;
  if (event.finish_reason == HEDDLE_FINISH_NONE) return;
  answer.completion.text = text_of(event.answer);
  answer.completion.token_ids.assign(event.token_ids, event.token_ids + event.num_tokens);
  answer.completion.logprobs.assign(event.logprobs, event.logprobs + event.num_tokens);
  const auto copy = [](auto& to, const auto* from, size_t count) { to.assign(from, from + count); };
  Completion& to = answer.completion;
  copy(to.top_token_ids, event.top_token_ids, event.num_top_logprobs);
  copy(to.top_logprobs, event.top_logprobs, event.num_top_logprobs);
  copy(to.prompt_logprobs, event.prompt_logprobs, event.num_prompt_logprobs);
  copy(to.prompt_top_token_ids, event.prompt_top_token_ids, event.num_prompt_top_logprobs);
  copy(to.prompt_top_logprobs, event.prompt_top_logprobs, event.num_prompt_top_logprobs);
  answer.completion.prompt_tokens = event.prompt_tokens;
  answer.completion.cached_tokens = event.cached_tokens;
  to.earlier_digests = text_of(event.earlier_digests);
  for (size_t i = 0; i < event.num_adapter_switches; ++i) {
    const heddle_adapter_switch& each = event.adapter_switches[i];
    to.adapter_switches.push_back({.position = each.position, .token = each.token});
  }
  answer.completion.error = text_of(event.error);
  answer.error_code = event.error_code;
  EXPECT_EQ(answer.error_code != HEDDLE_ERROR_NONE, answer.reason == HEDDLE_FINISH_ERROR);
  EXPECT_EQ(answer.streamed, answer.completion.text);
}

inline void take_all(void* user_data, const heddle_engine_event* event) {
  take(*event, *static_cast<Answer*>(user_data));
}

/// An engine made through C, of a small random model that has adapter "first".
class CEngine : public ::testing::Test {
 protected:
  const std::string device = test_device();
  CEngine() {
    const heddle_engine_options options = small_options();
    EXPECT_EQ(heddle_engine_create(&engine, c_string(path), &options), HEDDLE_OK)
        << heddle_engine_last_error();
    add("first", first);
  }
  ~CEngine() override { heddle_engine_destroy(engine); }

  heddle_engine_options small_options() const {
    heddle_engine_options options;
    heddle_engine_options_init(&options);
    options.max_batch = 4;
    options.num_threads = 1;
    options.page_size = 4;
    options.device = c_string(device);
    return options;
  }

  /// A model's file in which nothing is odd: that of `path` names no pre-tokenizer.
  static std::string plain_file() {
    std::vector<std::string> tokens;
    for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
    GgufBuilder file;
    file.value("tokenizer.ggml.model", "gpt2")
        .value("tokenizer.ggml.pre", "gpt-2")
        .array("tokenizer.ggml.tokens", tokens)
        .array("tokenizer.ggml.merges", std::vector<std::string>());
    const model::ref::Llama weights =
        model::random_llama(tiny_config(16, RandomModel::kVocabSize), true);
    model::LlamaFileWriter(file, weights).write();
    return file.build();
  }

  void add(const std::string& name, const std::string& folder, bool replace = false) {
    EXPECT_EQ(heddle_engine_add_adapter(engine, c_string(name), c_string(folder), replace),
              HEDDLE_OK)
        << heddle_engine_last_error();
  }

  /// The request in C, until the next call; it points into `request`.
  heddle_engine_request c_request(const Request& request) {
    heddle_engine_request c;
    heddle_engine_request_init(&c);
    c.token_ids = request.token_ids->data();
    c.num_token_ids = request.token_ids->size();
    c.adapter = c_string(request.adapter);
    c.cache_salt = c_string(request.cache_salt);
    c.tenant = c_string(request.tenant);
    c.tenant_weight = request.tenant_weight;
    c.priority = request.priority;
    list.clear();
    for (const auto& [name, scale] : request.adapters) list.push_back({c_string(name), scale});
    c.adapters = list.data();
    c.num_adapters = list.size();
    c.max_tokens = request.max_tokens;
    c.ignore_end = request.ignore_end;
    c.temperature = request.sampling.temperature;
    c.seed = request.sampling.seed;
    c.repetition_penalty = request.sampling.repetition_penalty;
    c.presence_penalty = request.sampling.presence_penalty;
    c.frequency_penalty = request.sampling.frequency_penalty;
    static const heddle_token_bias bias{7, 2.5f};
    static const heddle_string word{"b", 1};
    c.logit_bias = &bias;
    c.num_logit_bias = request.logit_bias.size();
    c.min_tokens = request.min_tokens;
    c.top_logprobs = request.top_logprobs;
    c.prompt_logprobs = request.prompt_logprobs;
    c.stop_token_ids = request.stop_token_ids.data();
    c.num_stop_token_ids = request.stop_token_ids.size();
    c.bad_words = &word;
    c.num_bad_words = request.bad_words.size();
    return c;
  }
  int64_t submit(const heddle_engine_request& request) {
    int64_t id = -1;
    EXPECT_EQ(heddle_engine_submit(engine, &request, &id), HEDDLE_OK) << heddle_engine_last_error();
    return id;
  }
  /// Polls until so many requests have ended.
  std::map<int64_t, Answer> poll(size_t num_requests) {
    std::map<int64_t, Answer> answers;
    for (size_t num_ended = 0; num_ended < num_requests;) {
      heddle_engine_event* event = nullptr;
      EXPECT_EQ(heddle_engine_poll(engine, -1, &event), HEDDLE_OK);
      if (event == nullptr) break;
      take(*event, answers[event->request]);
      if (event->finish_reason != HEDDLE_FINISH_NONE) ++num_ended;
      heddle_engine_event_destroy(event);
    }
    return answers;
  }
  /// The answers of the C++ engine.
  std::vector<Completion> expected(const std::vector<Request>& requests,
                                   const std::string& folder) {
    Engine cpp(EngineOptions{
        .model_path = path, .device = test_device(), .max_batch = 2, .num_threads = 1});
    (void)cpp.add_adapter("first", folder);
    return run_all(cpp, requests);
  }

  static std::vector<Request> requests() {
    std::vector<Request> all;
    for (int i = 0; i < 9; ++i) {
      all.push_back(endless_request({1 + i, 2, 3}, 5 + i % 4));
      if (i % 2 == 1) all.back().adapter = "first";
      Request& each = all.back();
      if (i % 4 == 2) each.adapters = {{"first", 0.5f}};
      each.sampling = {.temperature = i % 3 == 0 ? 0.0f : 1.0f, .seed = i};
      if (i % 4 == 1) each.sampling.repetition_penalty = 2.0f;
      if (i % 4 == 2) each.sampling.presence_penalty = 1.0f;
      if (i % 4 == 3) each.sampling.frequency_penalty = -1.0f;
      if (i % 2 == 1) each.logit_bias = {{7, 2.5f}};
      if (i % 3 == 1) each.min_tokens = 2, each.stop_token_ids = {7};
      if (i % 3 == 2) each.bad_words = {"b"};
      each.top_logprobs = i % 3;
      each.prompt_logprobs = i % 2 == 0;
    }
    return all;
  }

  RandomModel model;
  std::string path = model.path();
  std::string first = model.adapter_folder("first", 3);
  const std::string name = "first";  // of this adapter
  std::string second = model.adapter_folder("second", 5);
  std::vector<heddle_engine_adapter> list;  // of the last c_request
  heddle_engine* engine = nullptr;
};

inline void expect_failure(const char* message, heddle_status status) {
  EXPECT_EQ(status, HEDDLE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(heddle_engine_last_error()).find(message), std::string::npos)
      << heddle_engine_last_error();
}

}  // namespace heddle::testing
