#include "speculation_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "option_group.h"
#include "request_json/ordered_json.h"
#include "request_json/row_reader.h"
#include "request_json/shown.h"

namespace heddle::app {
namespace {

constexpr int kLongestNgram = 64;  // as SpeculationOptions has it
constexpr std::string_view kConfig = "--speculative-config";
constexpr const char* kMethods = R"("ngram", "suffix", "draft_model", "medusa" or "eagle3")";
constexpr const char* kWorks =
    "method, num_speculative_tokens, prompt_lookup_min, prompt_lookup_max and model";

/// vLLM's name of a method, ours, and whether a model drafts.
struct NamedMethod {
  std::string_view theirs, ours;
  bool has_model;
};
constexpr NamedMethod kNamedMethods[] = {{"ngram", "ngram", false},
                                         {"suffix", "suffix", false},
                                         {"draft_model", "model", true},
                                         {"medusa", "heads", true},
                                         {"eagle3", "eagle3", true}};

/// "2:4"
void read_ngram(const std::string& text, SpeculationOptions& options) {
  const char *at = text.data(), *const end = at + text.size();
  const auto number = [&](int& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc() && value >= 1 && value <= kLongestNgram;
  };
  const bool is_range = number(options.min_ngram) && at != end && *at++ == ':' &&
                        number(options.max_ngram) && at == end &&
                        options.min_ngram <= options.max_ngram;
  HEDDLE_CHECK(is_range, "--draft-ngram ", text, ": expected MIN:MAX, 1 to ", kLongestNgram,
               " each, such as 2:4");
}

void check_keys(const files::Json& config) {
  constexpr auto kKeys = std::to_array<std::string_view>(
      {"method", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max", "model"});
  for (const auto& entry : config.get_object()) {
    const std::string_view key = entry.key();
    const bool is_known = std::ranges::find(kKeys, key) != kKeys.end();
    HEDDLE_CHECK(is_known, kConfig, ": ", quote(key), " is not supported, expected ", kWorks,
                 key.starts_with("suffix_decoding_")
                     ? "; --draft-memory bounds what \"suffix\" keeps of recent answers"
                     : "");
  }
}

/// vLLM's: where one of prompt_lookup_min and prompt_lookup_max is given, it is the other one too.
SpeculationOptions read_config(const std::string& text, SpeculationOptions options) {
  const files::JsonTree config = parse_ordered_json(text, std::string(kConfig));
  HEDDLE_CHECK(config->is_object(), kConfig, " is ", files::json_type(*config),
               ", expected an object of ", kWorks);
  check_keys(*config);
  const RowReader reader(*config, std::string(kConfig));
  const std::string theirs = reader.required_text("method");
  const auto* const method = std::ranges::find(kNamedMethods, theirs, &NamedMethod::theirs);
  HEDDLE_CHECK(method != std::end(kNamedMethods), kConfig, ": method ", quote(theirs),
               " is not supported, expected ", kMethods);
  options.method = method->ours;
  if (method->has_model) options.draft_model = reader.required_text("model");
  for (const char* key : {"model", "prompt_lookup_min", "prompt_lookup_max"}) {
    const bool is_of_model = std::string_view(key) == "model";
    HEDDLE_CHECK(is_of_model == method->has_model || !config->get_object().contains(key), kConfig,
                 ": method ", quote(theirs), " takes no ", key);
  }
  options.max_drafts =
      static_cast<int>(reader.integer("num_speculative_tokens", 0, 1, kMaxRowDrafts));
  const auto length = [&reader](const char* key, int64_t otherwise) {
    return static_cast<int>(reader.integer(key, otherwise, 1, kLongestNgram));
  };
  options.min_ngram = length("prompt_lookup_min", length("prompt_lookup_max", 0));
  options.max_ngram = length("prompt_lookup_max", options.min_ngram);
  HEDDLE_CHECK(options.min_ngram <= options.max_ngram, kConfig, ": prompt_lookup_min is ",
               options.min_ngram, ", expected at most prompt_lookup_max = ", options.max_ngram);
  return options;
}

}  // namespace

void add_speculation_options(CLI::App& command, SpeculationOptions& options) {
  const OptionGroup group(command, "Engine");
  CLI::Option* const method =
      group
          .value("--speculate", options.method, "METHOD",
                 "How steps draft tokens and verify several at a time, which changes no answer: "
                 "ngram, as they stood before in prompt or answer; suffix, also as in recent "
                 "answers; model, heads and eagle3, by --draft-model; off")
          ->check(CLI::IsMember({"off", "ngram", "suffix", "model", "heads", "eagle3"}))
          ->default_str("off");
  CLI::Option* const most =
      group.number("--draft-tokens", options.max_drafts, 0, kMaxRowDrafts, "N",
                   "Maximum number of tokens that a step drafts for a row, 1 to 15; 0: 8");
  CLI::Option* const ngram = group.text(
      "--draft-ngram", [&options](const std::string& text) { read_ngram(text, options); }, "2:4",
      "RANGE", "How many of the last tokens must have stood before for --speculate ngram, MIN:MAX");
  CLI::Option* const model = group.value(
      "--draft-model", options.draft_model, "PATH",
      "What drafts: a smaller model of the same vocabulary for --speculate model, a folder of "
      "Medusa heads for heads, or an EAGLE-3 drafter for eagle3");
  CLI::Option* const config = group.text(
      kConfig.data(), [&options](const std::string& text) { options = read_config(text, options); },
      "", "JSON",
      "The same in vLLM's words: method, num_speculative_tokens, prompt_lookup_min, "
      "prompt_lookup_max and model");
  for (CLI::Option* const other : {most, ngram, model}) other->needs(method);
  for (CLI::Option* const other : {method, most, ngram, model}) config->excludes(other);
}

}  // namespace heddle::app
