#include "model/source/generation_config.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "files/printable.h"
#include "model/config/setting_types.h"
#include "model/config/words.h"
#include "model/source/read_json.h"

namespace heddle::model {
namespace {

constexpr std::string_view kDoSample = "do_sample";
constexpr std::array<std::string_view, 6> kTaken = {
    "temperature", "top_k", "top_p", "min_p", "max_new_tokens", "repetition_penalty"};

/// Settings that heddle does not support, and the JSON text at which they have no effect.
struct NotDone {
  std::string_view neutral, keys;
};
constexpr NotDone kNotDone[] = {
    {"[]",
     "bad_words_ids begin_suppress_tokens constraints force_words_ids stop_strings "
     "suppress_tokens"},
    {"0",
     "diversity_penalty encoder_no_repeat_ngram_size epsilon_cutoff eta_cutoff frequency_penalty "
     "min_length min_new_tokens no_repeat_ngram_size penalty_alpha presence_penalty"},
    {"null",
     "dola_layers exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id top_h"},
    {"1", "encoder_repetition_penalty guidance_scale num_beam_groups num_beams typical_p"},
    {"{}", "sequence_bias watermarking_config"},
};

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Whether a setting that heddle does not support has no effect.
bool is_neutral(const NotDone& setting, std::string_view text) {
  if (text == "null" || text == "false" || text == setting.neutral) return true;
  const auto number = number_of(text);
  return number && number == number_of(setting.neutral);
}

void take(const std::string& path, const std::string& key, const std::string& text,
          GenerationConfig& config) {
  if (text == "null") return;
  if (key == kDoSample) {
    HEDDLE_CHECK(text == "true" || text == "false", path, ": ", key, " is ", files::printable(text),
                 ", expected true or false");
    return;
  }
  if (std::ranges::find(kTaken, key) != kTaken.end()) {
    const auto number = number_of(text);
    HEDDLE_CHECK(number, path, ": ", key, " is ", files::printable(text), ", expected a number");
    config.values[key] = *number;
    return;
  }
  const auto* const setting = std::ranges::find_if(
      kNotDone, [&](const NotDone& settings) { return is_word_of(settings.keys, key); });
  if (setting == std::end(kNotDone) || is_neutral(*setting, text)) return;
  config.not_done.push_back(key + " is " + files::printable(text));
}

}  // namespace

GenerationFile::GenerationFile(const std::string& path) : path_(path), settings_(read_json(path)) {}

GenerationConfig GenerationFile::config() const {
  check_setting_types(*settings_, path_ + ": ", generation_setting_types());
  GenerationConfig config{.path = path_};
  bool is_greedy = false;
  for (const auto& [key, text] : members_of(*settings_)) {
    take(path_, key, text, config);
    is_greedy |= key == kDoSample && text == "false";
  }
  if (is_greedy) config.values["temperature"] = 0.0;
  return config;
}

GenerationConfig read_generation_config(const files::GgufFile& file) {
  const std::string group = "general.sampling.";
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"temp", "temperature"},
      {"top_k", "top_k"},
      {"top_p", "top_p"},
      {"min_p", "min_p"},
      {"penalty_repeat", "repetition_penalty"}};
  GenerationConfig config{.path = file.path()};
  for (const auto& [key, name] : kNames) {
    if (file.find(group + std::string(key)) == nullptr) continue;
    config.values[name] = file.get<double>(group + std::string(key));
  }
  // llama.cpp's penalty looks at the last so many tokens; 0 is none of them, below 0 all.
  const std::string last = group + "penalty_last_n";
  const auto num_last = file.get_or<int64_t>(last, -1);
  if (num_last == 0) config.values.erase("repetition_penalty");
  if (num_last > 0 && config.values.contains("repetition_penalty")) {
    config.not_done.push_back(last + " is " + std::to_string(num_last));
  }
  for (const char* key : {"xtc_probability", "mirostat"}) {
    const auto value = file.get_or<double>(group + key, 0.0);
    if (value != 0) config.not_done.push_back(group + key + " is not 0");
  }
  if (file.find(group + "sequence") != nullptr) {
    config.not_done.push_back(group + "sequence is given");
  }
  return config;
}

std::optional<std::vector<int32_t>> GenerationFile::end_tokens(int64_t vocab_size) const {
  return end_token_ids(*settings_, path_, vocab_size);
}

std::optional<std::vector<int32_t>> end_token_ids(const files::Json& settings,
                                                  const std::string& path, int64_t vocab_size) {
  const files::Json* const found = files::find_member(settings, "eos_token_id");
  if (found == nullptr || found->is_null()) return std::nullopt;
  std::vector<int32_t> ids;
  const auto add = [&](const files::Json& entry) {
    HEDDLE_CHECK(files::is_integer(entry), path, ": eos_token_id is ",
                 files::printable(files::json_text(*found)), ", expected an id or a list of ids");
    // -1 means none, and of an id without a row no answer can have the token.
    const auto id = files::integer_in(entry, 0, vocab_size - 1);
    if (!id) return;
    const auto value = static_cast<int32_t>(*id);
    if (std::ranges::find(ids, value) == ids.end()) ids.push_back(value);
  };
  if (found->is_array()) {
    for (const files::Json& id : found->get_array()) add(id);
  } else {
    add(*found);
  }
  return ids;
}

}  // namespace heddle::model
