#include "answer_options.h"

namespace heddle::app {

AnswerOptions complete_answer(AnswerOptions options, const GenerationDefaults& of_model) {
  of_model.apply(options.sampling, options.max_tokens);
  options.given.apply(options.sampling, options.max_tokens);
  return options;
}

void set_answer_options(const AnswerOptions& options, Request& request) {
  request.max_tokens = options.max_tokens;
  request.sampling = options.sampling;
  request.stop = options.stop;
  request.logit_bias = options.logit_bias;
  request.min_tokens = options.min_tokens;
  request.stop_token_ids = options.stop_token_ids;
  request.bad_words = options.bad_words;
  request.top_logprobs = options.top_logprobs;
  request.prompt_logprobs = options.prompt_logprobs;
  request.format = options.format;
  request.values = options.values;
}

}  // namespace heddle::app
