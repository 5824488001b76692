#pragma once

#include <string>

#include "core/digest.h"

namespace heddle {

/// Of the code and constants of the program, or of the shared library, that this function is in, as
/// they lie in memory: another one for every build, whatever its files are called.
[[nodiscard]] Digest program_digest();

/// What decides which instructions the C library and the CPU ops take: the processor's name and
/// features, and the C library's version.
[[nodiscard]] std::string processor_name();

}  // namespace heddle
