#pragma once

#include "heddle/engine/request.h"

namespace heddle::grammar {

/// Checks a format before it is compiled, in time in proportion to it: its size, and of a JSON
/// schema that the grammar holds an answer to all that it says. What it would not is refused by
/// name. docs/structured_output.md has the list. Throws Error, which begins with "format".
void check_format(const AnswerFormat& format);

}  // namespace heddle::grammar
