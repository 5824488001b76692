#pragma once

#include <cstdint>

#include "heddle/ops/lora.h"

namespace heddle {

/// What HEDDLE_VALIDATE=1 checks of a batch whose shapes are checked: slots below num_slots,
/// segments within the rows and apart from each other, starts of pairs in order and tokens with at
/// most max_pairs, and an address in `table` for every slot in use.
void validate_batch(const LoraBatch& batch, int64_t num_tokens, const char* name,
                    const LoraTable& table);

namespace cuda::lora {
/// The same for arrays on the device, against a table called "a" and one called "b", where they are
/// given: copies the arrays to the host and waits for ctx.stream. A stream that is being captured
/// cannot be waited for; then nothing is checked.
void validate_batch(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens,
                    const LoraTable* a, const LoraTable* b);
}  // namespace cuda::lora
}  // namespace heddle
