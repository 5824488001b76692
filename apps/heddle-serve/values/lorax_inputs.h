#pragma once

#include "api/generation.h"
#include "files/json_tree.h"
#include "options.h"

namespace heddle::serve {

/// The body of LoRAX's /embed and /classify: `inputs`, a text, and `parameters`, which adapters.
/// The one prompt wants `values`.
[[nodiscard]] Generation read_lorax_inputs(files::JsonTree body, const app::ServeOptions& options,
                                           const WantedValues& values);

}  // namespace heddle::serve
