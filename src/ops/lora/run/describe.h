#pragma once

#include "heddle/core/context.h"

#include "ops/lora/run/lora_site.h"
#include "ops/lora/run/select_kernel.h"

namespace heddle {

/// What decides how a call runs. Looks at its tensors and tables once, at nothing in memory.
[[nodiscard]] LoraCall describe(const ExecContext& ctx, const LoraSite& site);

/// Of a described call the rows [0, rows) and the slices of `part`, which are some of its own.
[[nodiscard]] LoraCall describe_part(const LoraCall& call, const LoraSite& part, int64_t rows);

}  // namespace heddle
