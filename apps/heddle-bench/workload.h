#pragma once

#include <cstdint>

#include "heddle/engine/request.h"

namespace heddle::app {

/// Made-up tokens [first, first + count), other ones for every row: no speed depends on which they
/// are, and nothing stops at an end token.
inline Request made_prompt(int64_t row, int64_t num_tokens, int64_t first, int64_t count) {
  Request request;
  request.ignore_end = true;
  request.token_ids.emplace();
  for (int64_t i = 0; i < num_tokens; ++i) {
    request.token_ids->push_back(static_cast<int32_t>(first + (7919 * row + 37 * i) % count));
  }
  return request;
}

}  // namespace heddle::app
