#include "request_json/nearest.h"

#include <algorithm>
#include <utility>

#include "files/edit_distance.h"

namespace heddle::app {
namespace {

constexpr size_t kMaxWord = 64;   // of what is longer the first letters decide
constexpr size_t kNearEdits = 2;  // a typing error; more edits make another word

/// Names that other programs have for a field, each with heddle's names for it.
constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
    {"repeat_penalty", "repetition_penalty"},  // llama.cpp, Ollama
    {"frequence_penalty", "frequency_penalty"},
    {"n_predict", "max_tokens"},       // llama.cpp
    {"num_predict", "max_tokens"},     // Ollama
    {"max_new_tokens", "max_tokens"},  // transformers, TGI, SGLang
    {"max_tokens", "max_new_tokens"},
    {"max_output_tokens", "max_tokens"},  // OpenAI's responses
    {"max_length", "max_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"stop_sequences", "stop"},
    {"stop_strings", "stop"},
    {"stop_words", "stop"},
    {"top_n_tokens", "return_k_alternatives"},  // TGI
    {"top_n_tokens", "top_logprobs"},
    {"n_probs", "top_logprobs"},  // llama.cpp
    {"n_probs", "logprobs"},
    {"num_return_sequences", "n"},
    {"best_of", "n"},
    {"no_stop_trim", "include_stop_str_in_output"},  // SGLang
    {"rid", "request_id"},                           // SGLang
    {"lora_path", "adapter_id"},                     // SGLang
    {"lora_name", "adapter_id"},
    {"adapter", "adapter_id"},
    {"adapter_name", "adapter_id"},
    {"adapters", "lora"},
    {"ignore_eos", "ignore_eos_token"},
    {"ignore_eos_token", "ignore_eos"},
    {"truncate", "truncate_prompt_tokens"},
    {"truncate_prompt_tokens", "truncate"},
    {"typical_p", "top_p"},
    {"inputs", "prompt"},
    {"prompt", "inputs"},
    {"input", "prompt"},
    {"return_tokens", "return_token_ids"},
    {"details", "logprobs"},
};

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  word = word.substr(0, kMaxWord);
  return *std::ranges::min_element(known, {}, [word](std::string_view candidate) {
    return files::edit_distance(word, candidate);
  });
}

std::string did_you_mean(std::string_view field, std::span<const std::string_view> known) {
  const auto question = [](std::string_view name) {
    return "; did you mean \"" + std::string(name) + "\"?";
  };
  for (const auto& [other, name] : kSynonyms) {
    if (other == field && std::ranges::find(known, name) != known.end()) return question(name);
  }
  if (known.empty() || field.size() > kMaxWord) return {};
  const std::string_view near = nearest(field, known);
  const size_t edits = files::edit_distance(field, near);
  // Two edits make any word of two letters out of any other.
  const bool is_near = edits <= kNearEdits && edits + 1 < std::min(field.size(), near.size());
  return is_near ? question(near) : std::string();
}

}  // namespace heddle::app
