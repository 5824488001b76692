#pragma once

#include <array>
#include <string_view>

#include "heddle/engine/request.h"

#include "request_json/row_reader.h"

namespace heddle::app {

/// The fields of a row that say how tokens are picked and what ends the answer.
inline constexpr std::array<std::string_view, 16> kSamplingFields = {"max_tokens",
                                                                     "temperature",
                                                                     "top_k",
                                                                     "top_p",
                                                                     "min_p",
                                                                     "seed",
                                                                     "stop",
                                                                     "repetition_penalty",
                                                                     "frequency_penalty",
                                                                     "presence_penalty",
                                                                     "logit_bias",
                                                                     "min_tokens",
                                                                     "stop_token_ids",
                                                                     "bad_words",
                                                                     "top_logprobs",
                                                                     "prompt_logprobs"};

/// Reads the fields of kSamplingFields.
void read_sampling_fields(const RowReader& row, Request& request);

}  // namespace heddle::app
