#pragma once

#include <optional>

#include "model/adapters/adapter.h"

namespace heddle::model {

/// Error(kInvalidArgument) with the tensor where a value of the adapter is NaN or infinite, or, of
/// its matrices, beyond what `rounded_to` holds, the dtype to which a GPU rounds them. Reads each
/// value once, eight bytes at a time.
void check_finite(const Adapter& adapter, std::optional<DType> rounded_to);

}  // namespace heddle::model
