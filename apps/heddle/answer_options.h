#pragma once

#include "heddle/engine/request.h"

#include "options.h"

namespace heddle::app {

/// What answers are made with when the model is known: what the command line gives, else what the
/// model's files do, else what the program has.
[[nodiscard]] AnswerOptions complete_answer(AnswerOptions options,
                                            const GenerationDefaults& of_model);

/// What all rows have that do not say it themselves, but for the seed of each.
void set_answer_options(const AnswerOptions& options, Request& request);

}  // namespace heddle::app
