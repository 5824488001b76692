#pragma once

#include "ops/activation/gated.h"

namespace heddle {

namespace cpu::activation {
/// The columns [begin, end) of one row.
void silu_and_mul(const GatedParams& p, int64_t row, int64_t begin, int64_t end);
}  // namespace cpu::activation

namespace cuda::activation {
void silu_and_mul(const ExecContext& ctx, const GatedParams& p);
}  // namespace cuda::activation

}  // namespace heddle
