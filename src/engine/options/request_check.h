#pragma once

#include "heddle/engine/request.h"

namespace heddle {

inline constexpr int32_t kMaxTopLogprobs = 100;

/// Throws Error, which names the field, its value and what is allowed, for a field that is invalid
/// with any model: a temperature below 0, an empty stop string. Adapter and prompt are not looked
/// at: they need a model.
void check_answer_fields(const Request& request);

/// Throws Error(kInvalidArgument) where messages are given twice, and where a field of
/// conversations is given without messages.
void check_chat_fields(const Request& request);

}  // namespace heddle
