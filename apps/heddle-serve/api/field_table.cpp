#include "api/field_table.h"

#include <algorithm>
#include <iterator>

#include "files/json_value.h"

namespace heddle::serve {
namespace {

using namespace neutral;
using json = files::Json;

constexpr std::string_view kNoTools =
    "only conversations have tools (/v1/chat/completions); leave the field out";
constexpr std::string_view kOlderTools =
    "this older form is not supported; send tools and tool_choice";
constexpr std::string_view kNoBeams = "beam search is not supported; leave the field out";
constexpr std::string_view kNoSampler =
    "this way of sampling is not supported; leave the field out";
constexpr std::string_view kNoMedia = "only text is supported; leave the field out";
constexpr std::string_view kNotTold = "this is not part of heddle's answers; leave the field out";
constexpr std::string_view kNotThere = "this is not supported; leave the field out";

constexpr PassiveField hint(std::string_view name) { return {name, kAnything, {}}; }

constexpr PassiveField kFieldTable[] = {
    // OpenAI
    {"audio", 0, kNoMedia},
    {"function_call", kNone | kAuto, kOlderTools},
    {"functions", kEmpty, kOlderTools},
    hint("metadata"),
    {"modalities", kText, kNoMedia},
    {"moderation", 0, kNotThere},
    hint("parallel_tool_calls"),
    hint("prediction"),
    hint("prompt_cache_key"),
    hint("prompt_cache_options"),
    hint("prompt_cache_retention"),
    hint("reasoning_effort"),
    hint("safety_identifier"),
    hint("service_tier"),
    hint("store"),
    {"suffix", kEmpty, "filling in text before a suffix is not supported; leave the field out"},
    {"tool_choice", kNone | kAuto, kNoTools},
    {"tools", kEmpty, kNoTools},
    hint("user"),
    hint("verbosity"),
    {"web_search_options", 0, "web search is not supported; leave the field out"},
    // vLLM
    {"best_of", kOne, "set n for several answers"},
    {"early_stopping", kFalse, kNoBeams},
    {"ec_transfer_params", kEmpty, kNotThere},
    hint("guided_decoding_backend"),
    {"guided_whitespace_pattern", kEmpty, "spaces are as the schema has them; leave the field out"},
    hint("include_reasoning"),
    {"kv_transfer_params", kEmpty, kNotThere},
    {"length_penalty", kOne, kNoBeams},
    {"logits_processors", kEmpty, kNoSampler},
    {"logprob_token_ids", kEmpty, kNotTold},
    hint("media_io_kwargs"),
    hint("mm_processor_kwargs"),
    {"prompt_embeds", 0, "a prompt must be text or tokens; leave the field out"},
    {"repetition_detection", kEmpty, kNotThere},
    hint("return_mm_kwargs"),
    {"return_prompt_text", kFalse, kNotTold},
    {"return_token_offsets", kFalse, kNotTold},
    {"routed_experts_prompt_start", kZero, kNotTold},
    hint("session_id"),
    hint("spaces_between_special_tokens"),
    hint("stream_interval"),
    {"thinking_token_budget", kMinusOne,
     "only conversations have a bound of thoughts (/v1/chat/completions); leave the field out"},
    {"truncation_side", kLeft, "the last tokens of a prompt are kept; only \"left\" is accepted"},
    {"use_beam_search", kFalse, kNoBeams},
    {"vllm_xargs", kEmpty, kNotThere},
    {"watermarking", kFalse, "answers are not watermarked; only false is accepted"},
    // SGLang
    {"custom_logit_processor", kEmpty, kNoSampler},
    hint("custom_params"),
    hint("data_parallel_rank"),
    hint("extra_key"),
    {"return_cached_tokens_details", kFalse, kNotTold},
    {"return_hidden_states", kFalse, kNotTold},
    {"return_routed_experts", kFalse, kNotTold},
    hint("separate_reasoning"),
    {"session_params", kEmpty, kNotThere},
    {"stop_regex", kEmpty, "only the texts of stop end an answer; leave the field out"},
    hint("stream_reasoning"),
    // llama.cpp
    hint("cache_prompt"),
    hint("dry_allowed_length"),
    hint("dry_base"),
    {"dry_multiplier", kZero, kNoSampler},
    hint("dry_penalty_last_n"),
    hint("dry_sequence_breakers"),
    hint("dynatemp_exponent"),
    {"dynatemp_range", kZero, kNoSampler},
    hint("id_slot"),
    {"image_data", kEmpty, kNoMedia},
    {"min_keep", kZero | kOne, kNoSampler},
    {"mirostat", kZero, kNoSampler},
    hint("mirostat_eta"),
    hint("mirostat_tau"),
    hint("n_cache_reuse"),
    {"n_indent", kZero, kNotThere},
    hint("n_keep"),
    hint("parse_tool_calls"),
    {"penalize_nl", kTrue, kNoSampler},
    {"post_sampling_probs", kFalse, kNotTold},
    hint("reasoning_format"),
    {"repeat_last_n", kMinusOne, "penalties count all tokens; only -1 is accepted"},
    {"response_fields", kEmpty, kNotTold},
    {"return_progress", kFalse, kNotTold},
    hint("slot_id"),
    {"t_max_predict_ms", kZero | kMinusOne, kNotThere},
    {"tfs_z", kOne, kNoSampler},
    {"timings_per_token", kFalse, kNotTold},
    {"top_n_sigma", kMinusOne | kZero, kNoSampler},
    {"typical_p", kOne, kNoSampler},
    {"xtc_probability", kZero, kNoSampler},
    hint("xtc_threshold"),
    // LM Studio, Ollama
    hint("keep_alive"),
    hint("ttl"),
};

bool is_text_alone(const json& value) {
  if (value.is_array()) {
    return files::size_of(value) == 1 && files::is_text(value.get_array().front(), "text");
  }
  const json* const type = files::find_member(value, "type");
  const bool is_format = type != nullptr && files::size_of(value) == 1;
  return files::is_text(is_format ? *type : value, "text");
}

}  // namespace

const PassiveField* find_passive(std::string_view name) {
  const auto place = std::ranges::find(kFieldTable, name, &PassiveField::name);
  return place == std::end(kFieldTable) ? nullptr : &*place;
}

bool is_accepted(const PassiveField& field, const json& value) {
  const auto has = [&field](uint32_t kind) { return (field.values & kind) != 0; };
  if (has(kAnything)) return true;
  if (value.is_bool()) return has(value.get_bool() ? kTrue : kFalse);
  if (value.is_number()) {
    return (has(kZero) && files::is_number(value, 0)) ||
           (has(kOne) && files::is_number(value, 1)) ||
           (has(kMinusOne) && files::is_number(value, -1));
  }
  if (has(kText) && is_text_alone(value)) return true;
  if (value.is_string()) {
    const std::string_view word = files::text_of(value);
    if (word.empty()) return has(kEmpty);
    return (has(kNone) && word == "none") || (has(kAuto) && word == "auto") ||
           (has(kLeft) && word == "left");
  }
  return has(kEmpty) && files::size_of(value) == 0;
}

}  // namespace heddle::serve
