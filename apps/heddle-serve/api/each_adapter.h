#pragma once

#include <vector>

#include "api/fields.h"
#include "api/generation.h"

namespace heddle::serve {

/// An entry of each_adapter as the request has it.
struct EachEntry {
  EachAdapter adapter{};
  json messages{};  // its own conversation; null: that of the request
};

/// Reads each_adapter of a chat completion: names, null for the base model, lists
/// [{"name", "scale"}, ...], and objects {"name", "scale", "messages"}. `body` is the request
/// without it and its messages. Throws ApiError and heddle::Error, also where the request has
/// fields that cannot go with it.
[[nodiscard]] std::vector<EachEntry> read_each_adapter(json each, const json& body);

}  // namespace heddle::serve
