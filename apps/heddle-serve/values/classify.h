#pragma once

#include <string>

#include "values/call.h"

namespace heddle::serve {

/// The body of /v1/classify and /classify: with `input` in vLLM's form, with `inputs` in LoRAX's.
[[nodiscard]] ValuesCall read_classify(const std::string& body, const app::ServeOptions& options);

}  // namespace heddle::serve
