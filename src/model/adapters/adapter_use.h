#pragma once

#include <cstdint>

namespace heddle::model {

/// An adapter of a row that has several, or another scale than 1, and the factor of what it adds.
struct AdapterUse {
  int32_t slot = 0;
  float scale = 1.0f;
};

}  // namespace heddle::model
