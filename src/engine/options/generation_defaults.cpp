#include "heddle/engine/generation_defaults.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "heddle/core/error.h"

#include "engine/options/model_defaults.h"
#include "engine/options/request_check.h"

namespace heddle {
namespace {

/// The shortest text that is read as the same number.
template <class T>
std::string shortest(T value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return error == std::errc() ? std::string(text, end) : std::string();
}

std::optional<float> float_of(const model::GenerationConfig& config, std::string_view key) {
  const auto found = config.values.find(key);
  if (found == config.values.end()) return std::nullopt;
  return static_cast<float>(found->second);
}

/// A whole number of at least `low`; those below are `low - 1`.
template <class T>
std::optional<T> integer_of(const model::GenerationConfig& config, std::string_view key, T low) {
  const auto found = config.values.find(key);
  if (found == config.values.end()) return std::nullopt;
  const double value = found->second;
  constexpr double kMost = 2147483647.0;
  HEDDLE_CHECK(value == std::floor(value) && std::abs(value) <= kMost, config.path, ": ", key,
               " is ", value, ", expected a whole number up to ",
               std::numeric_limits<int32_t>::max());
  return value < static_cast<double>(low) ? low - 1 : static_cast<T>(value);
}

GenerationDefaults checked(const model::GenerationConfig& config) {
  GenerationDefaults defaults{.temperature = float_of(config, "temperature"),
                              .top_p = float_of(config, "top_p"),
                              .min_p = float_of(config, "min_p"),
                              .repetition_penalty = float_of(config, "repetition_penalty"),
                              .top_k = integer_of<int32_t>(config, "top_k", 1),  // -1, 0: all
                              .max_tokens = integer_of<int64_t>(config, "max_new_tokens", 1),
                              .path = config.path,
                              .not_done = config.not_done};
  HEDDLE_CHECK(defaults.max_tokens.value_or(1) > 0, config.path,
               ": max_new_tokens is below 1, expected at least 1");
  Request request;
  defaults.apply(request);
  try {
    check_answer_fields(request);
  } catch (const Error& error) {
    throw_error(ErrorCode::kInvalidArgument, config.path, ": ", error.what());
  }
  return defaults;
}

/// Also by vLLM's word for it.
bool is_none(const std::string& option) { return option == "none" || option == "vllm"; }

}  // namespace

void GenerationDefaults::apply(SamplingOptions& sampling, int64_t& max_num_tokens) const {
  sampling.temperature = temperature.value_or(sampling.temperature);
  sampling.top_p = top_p.value_or(sampling.top_p);
  sampling.min_p = min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = repetition_penalty.value_or(sampling.repetition_penalty);
  sampling.top_k = top_k.value_or(sampling.top_k);
  max_num_tokens = max_tokens.value_or(max_num_tokens);
}

std::string GenerationDefaults::describe() const {
  std::string text;
  const auto add = [&text](const char* name, const auto& value) {
    if (value) text += (text.empty() ? "" : ", ") + std::string(name) + " " + shortest(*value);
  };
  add("temperature", temperature);
  add("top_k", top_k);
  add("top_p", top_p);
  add("min_p", min_p);
  add("repetition_penalty", repetition_penalty);
  add("max_tokens", max_tokens);
  return text;
}

std::string generation_config_path(const std::string& option) {
  if (option.empty() || option == "auto" || is_none(option)) return {};
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(option, error);
  std::string path = is_folder ? option + "/" + model::kGenerationConfig : option;
  HEDDLE_CHECK(std::filesystem::is_regular_file(path, error), "generation_config ", option,
               ": there is no file ", path,
               "; expected auto, none, or a generation_config.json or its folder");
  return path;
}

GenerationDefaults generation_defaults(const model::ModelFiles& files, const std::string& option) {
  if (is_none(option)) return {};
  const std::string path = generation_config_path(option);
  try {
    return checked(path.empty() ? files.generation_config() : model::GenerationFile(path).config());
  } catch (const Error& error) {
    throw_error(ErrorCode::kInvalidArgument, error.what(),
                "; generation_config none (--generation-config none) leaves this file out");
  }
}

std::vector<int32_t> end_tokens_of(const model::ModelFiles& files, const std::string& option) {
  if (const std::string path = generation_config_path(option); !path.empty()) {
    if (auto ids = model::GenerationFile(path).end_tokens(files.config().vocab_size)) return *ids;
  }
  return files.end_tokens();
}

}  // namespace heddle
