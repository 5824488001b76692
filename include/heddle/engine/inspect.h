#pragma once

#include <ostream>
#include <string>

namespace heddle {

/// Writes what a GGUF file, the folder of a model or that of a PEFT adapter holds: settings,
/// tensors, sizes, what heddle cannot run, and an estimate of the memory. Of a folder with several
/// adapters it writes each. Throws Error when the path holds none of them or is damaged.
void inspect(std::ostream& out, const std::string& path);

}  // namespace heddle
