#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heddle/engine/request.h"

namespace heddle::python {

/// A number of Python within 32 bits. Throws Error, which names it.
[[nodiscard]] int32_t narrowed(const char* name, int64_t value);

/// Names of adapters that act together, and their scales.
using AdapterPairs = std::vector<std::pair<std::string, double>>;
[[nodiscard]] AdapterList list_of(const AdapterPairs& given);

}  // namespace heddle::python
