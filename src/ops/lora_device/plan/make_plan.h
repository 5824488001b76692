#pragma once

#include "heddle/core/context.h"
#include "heddle/ops/lora.h"

namespace heddle {

/// The halves of a plan that a call reads.
struct PlanHalves {
  bool windows, grouped;
};

/// Checks the memory of a plan: large enough, and aligned as kernels need it.
void check_plan(const ExecContext& ctx, const ConstTensorView& plan, int64_t num_tokens,
                int max_rank);

/// What a plan bears, and each call that reads it must have: the rows, slots and ranks that it was
/// made for, and the arrays that say which rows are whose. Not 0; bit 0 is.
[[nodiscard]] uint32_t plan_tag(const LoraBatch& batch, int64_t num_tokens, int32_t num_slots,
                                int32_t max_rank);

/// Writes halves of a plan on a GPU; the arguments are checked. slot_ranks as in lora_plan.
void make_plan(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens,
               int32_t num_slots, int32_t max_rank, const ConstTensorView& slot_ranks,
               std::byte* plan, PlanHalves halves);

}  // namespace heddle
