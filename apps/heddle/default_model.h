#pragma once

#include <string>

namespace heddle::app {

/// The model to run: `given` unless it is empty, else $HEDDLE_MODEL, else the default model in the
/// user's cache. Throws Error when there is none.
std::string find_model(const std::string& given);

}  // namespace heddle::app
