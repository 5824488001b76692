#pragma once

#include "options.h"

namespace heddle::serve {

/// Runs the server until SIGINT or SIGTERM; returns the program's exit status. Throws Error where
/// the model, an adapter or an option is wrong.
int serve(const app::ServeOptions& options);

}  // namespace heddle::serve
