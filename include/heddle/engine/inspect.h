#pragma once

#include <ostream>
#include <string>

namespace heddle {

/// Writes what a GGUF file, the folder of a model or that of a PEFT adapter holds: settings,
/// tensors, sizes, what heddle cannot run, and an estimate of the memory. Of a folder with several
/// adapters it writes each. Throws Error when the path holds none of them or is damaged.
///
/// With `base`, a model: loads the adapter at the path onto it, of any kind and also a GGUF file,
/// and writes the receipt: the norms of what it changes and of the weights there, and what is odd
/// about it. Throws Error as Engine::Engine and Engine::add_adapter do.
void inspect(std::ostream& out, const std::string& path, const std::string& base = {});

}  // namespace heddle
