#pragma once

#include <string>

#include "api/translation.h"

namespace heddle::serve {

/// Appends the messages of `input` to `messages`: a text is one of the user; items are messages,
/// calls of functions, what the functions returned, and thoughts. Those of one turn of the
/// assistant become one message. Throws ApiError, which names the item.
void add_input(const json& input, Translation& translation, JsonArray& messages);

}  // namespace heddle::serve
