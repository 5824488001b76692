#pragma once

#include "heddle/ops/rope.h"

#include "capi/convert.h"

namespace heddle::capi {

/// NULL: the defaults.
[[nodiscard]] RopeParams rope_params_of(const heddle_rope_params* params);

}  // namespace heddle::capi
