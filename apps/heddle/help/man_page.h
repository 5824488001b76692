#pragma once

#include <string>

#include "help/description.h"

namespace heddle::app {

/// The manual page heddle(1) in troff with the macros of man(7).
[[nodiscard]] std::string man_page(const ProgramText& program);

}  // namespace heddle::app
