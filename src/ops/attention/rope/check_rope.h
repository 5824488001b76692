#pragma once

#include "heddle/core/context.h"
#include "heddle/core/error.h"
#include "heddle/ops/rope.h"

namespace heddle {

/// Parameters for heads of head_dim elements; `name` is what errors call them.
inline void check_rope(const ExecContext& ctx, const char* name, const RopeParams& rope,
                       int head_dim) {
  const int rotary_dim = rope.rotary_dim != 0 ? rope.rotary_dim : head_dim;
  HEDDLE_CHECK(rotary_dim > 0 && rotary_dim <= head_dim && rotary_dim % 2 == 0, name,
               ": rotary_dim is ", rotary_dim,
               ", expected an even number up to head_dim = ", head_dim);
  HEDDLE_CHECK(rope.theta > 0.0 && rope.scale > 0.0, name, ": theta is ", rope.theta, " and scale ",
               rope.scale, ", expected > 0");
  check_rope_params(ctx, rope);
}

}  // namespace heddle
