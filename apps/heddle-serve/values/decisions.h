#pragma once

#include <string>

#include "values/call.h"

namespace heddle::serve {

/// The body of /v1/decisions in OpenAI's form: an input and questions about it, each of which is
/// answered by the probabilities of the letters of its options as the first token of a reply. No
/// token is drawn, and the questions share the keys and values of the input.
[[nodiscard]] ValuesCall read_decisions(const std::string& body, const app::ServeOptions& options);

}  // namespace heddle::serve
