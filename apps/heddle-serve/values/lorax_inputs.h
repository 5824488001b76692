#pragma once

#include <string>

#include "api/generation.h"
#include "options.h"

namespace heddle::serve {

/// The body of LoRAX's /embed and /classify: `inputs`, a text, and of `parameters` what says which
/// adapter. The one prompt wants `values`.
[[nodiscard]] Generation read_lorax_inputs(const std::string& body,
                                           const app::ServeOptions& options,
                                           const WantedValues& values);

}  // namespace heddle::serve
