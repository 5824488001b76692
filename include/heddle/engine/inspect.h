#pragma once

#include <ostream>
#include <string>

namespace heddle {

/// Writes what a GGUF model file or a PEFT adapter folder holds: settings, tensors, sizes, and what
/// heddle cannot run. Throws Error when the path holds neither or is damaged.
void inspect(std::ostream& out, const std::string& path);

}  // namespace heddle
