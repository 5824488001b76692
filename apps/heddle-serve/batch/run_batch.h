#pragma once

#include <functional>

#include "heddle/engine/engine.h"

#include "options.h"

namespace heddle::serve {

/// `heddle run-batch`: answers the requests of a batch file by the routes of the server, without a
/// network, and writes each answer when it is finished. Returns the exit code of the program: 0; 1
/// where a line has an error or the engine has ended; 128 and the signal that stopped it. Throws
/// Error where an option or a file is wrong, and std::system_error where nothing can be written.
[[nodiscard]] int run_batch(const app::BatchOptions& options);
/// With the engine that `open` gives.
[[nodiscard]] int run_batch(const app::BatchOptions& options, const std::function<Engine()>& open);

}  // namespace heddle::serve
