#pragma once

#include "heddle/ops/activation.h"

#include "ops/activation/gated.h"

namespace heddle {

namespace cpu::activation {
/// The columns [begin, end) of one row.
void gelu_and_mul(const GatedParams& p, GeluForm form, int64_t row, int64_t begin, int64_t end);
}  // namespace cpu::activation

namespace cuda::activation {
void gelu_and_mul(const ExecContext& ctx, const GatedParams& p, GeluForm form);
}  // namespace cuda::activation

}  // namespace heddle
