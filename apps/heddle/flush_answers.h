#pragma once

#include <ostream>

namespace heddle::app {

/// Writes what the stream still holds. Throws std::system_error when it takes no more.
void flush_answers(std::ostream& out);

}  // namespace heddle::app
