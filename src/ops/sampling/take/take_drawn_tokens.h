#pragma once

#include <cstdint>

#include "heddle/core/context.h"

namespace heddle {

struct DrawnTokenParams {
  int32_t* token_ids;      // [num_tokens]
  const int32_t* drawn;    // [num_drawn]
  const int32_t* sources;  // [num_tokens]
  int64_t num_tokens, num_drawn;
};

namespace cuda::sampling {
void take_drawn_tokens(const ExecContext& ctx, const DrawnTokenParams& tokens);
}  // namespace cuda::sampling

}  // namespace heddle
