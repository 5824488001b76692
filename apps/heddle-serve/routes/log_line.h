#pragma once

#include "routes/answer.h"

namespace heddle::serve {

/// How the program logs from here on: text, or a JSON object a line.
void start_log(bool is_json);

/// The line of a request that generated, loaded or was refused; one that only reads has none.
void write_log(const RequestLog& log);

}  // namespace heddle::serve
