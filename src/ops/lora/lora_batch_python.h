#pragma once

#include "heddle/ops/lora.h"

#include "bindings/call.h"

namespace heddle::python {

/// Views of the arrays of a heddle.LoraBatch, the argument `batch` of a call.
[[nodiscard]] LoraBatch batch_of(Call& call, nb::handle batch);

}  // namespace heddle::python
