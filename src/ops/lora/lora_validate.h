#pragma once

#include <cstdint>

#include "heddle/ops/lora.h"

namespace heddle {

/// What HEDDLE_VALIDATE=1 checks of a batch whose shapes are checked: slots below num_slots, segments within the rows and apart
/// from each other, and an address in `table` for every slot in use.
void validate_batch(const LoraBatch& batch, int64_t num_tokens, const char* name,
                    const LoraTable& table);

}  // namespace heddle
