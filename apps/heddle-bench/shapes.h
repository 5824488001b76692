#pragma once

#include <string>

namespace heddle::app {

/// The config.json of a model by a short name, "llama-3.1-8b", or the text of the file of that
/// name. Throws Error with the names where it is neither.
[[nodiscard]] std::string config_of_shape(const std::string& name);

}  // namespace heddle::app
