#pragma once

#include "ops/metadata/prepare_batch/prepare_batch_kernels.h"

namespace heddle {

/// What prepare_batch does where validating(): throws, with tensor, row and value, at a length
/// below 0, a start that descends, an id out of range, and at what would else be cut off. Of
/// padding requests nothing is looked at.
void validate_prepare_batch(const PrepareBatchInputs& in, const PrepareBatchParams& p);

}  // namespace heddle
