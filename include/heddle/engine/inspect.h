#pragma once

#include <ostream>
#include <string>

namespace heddle {

/// Writes what a GGUF file, the folder of a model or that of a PEFT adapter holds: settings,
/// tensors, sizes, and what heddle cannot run. Throws Error when the path holds none of them or is
/// damaged.
void inspect(std::ostream& out, const std::string& path);

}  // namespace heddle
