#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

namespace heddle::app {

/// The name that stands for the model without an adapter.
inline constexpr const char* kBaseName = "base";

struct NamedAdapter {
  std::string name, folder;
};

/// A model and its adapters.
struct ModelOptions {
  EngineOptions engine;  // model_path may be empty: find_model
  std::vector<NamedAdapter> adapters;
  bool strict = false;  // an adapter that names another model is an error
};

/// How answers are made where a row does not say it.
struct AnswerOptions {
  std::string use;  // an adapter, or kBaseName; empty: not given
  std::optional<std::string> system;
  int64_t max_tokens = 256;
  SamplingOptions sampling;  // row i draws with seed + i
  std::vector<std::string> stop;
  std::vector<TokenBias> logit_bias;
  int64_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> bad_words;
  int32_t top_logprobs = 0;
  bool prompt_logprobs = false;
  int64_t n = 1;  // answers to each prompt
};

struct GenerateOptions {
  ModelOptions model;
  AnswerOptions answer;
  std::string prompts_path;          // "-": standard input; empty: `prompts`
  std::vector<std::string> prompts;  // messages of a user, or plain text with `raw`
  bool raw = false;
  bool keep_going = false;  // wrong rows of a file are answered with their error
  bool json = false, ordered = false, logprobs = false, quiet = false;
  int64_t hold = 1024;      // with `ordered`: finished rows that wait for an earlier one, at most
  std::string resume_path;  // empty: answers go to standard output
  std::string stats_path;   // empty: no file
};

}  // namespace heddle::app
