#pragma once

#include "heddle/core/validate.h"
#include "heddle/core/workspace.h"
#include "heddle/ops/linear_site.h"

#include "ops/lora_device/checks/validate.h"
#include "ops/lora_device/plan/make_plan.h"

namespace heddle::cuda::linear_site {

/// The plan of a batch, and the tag that it should bear.
struct LaunchPlan {
  const std::byte* bytes;
  uint32_t tag;
};

/// The plan that a call with adapters inside reads: the batch's, or one that is made here, with
/// these halves, in the workspace.
[[nodiscard]] inline LaunchPlan plan_of(const ExecContext& ctx, const LinearAdapters& adapters,
                                        int64_t tokens, PlanHalves halves, Workspace& workspace) {
  const LoraBatch& batch = adapters.batch;
  const int32_t num_slots = adapters.a.num_slots, max_rank = adapters.a.max_rank;
  if (batch.plan) check_plan(ctx, batch.plan, tokens, max_rank);
  if (validating()) lora::validate_batch(ctx, batch, tokens, &adapters.a, &adapters.b);
  const uint32_t tag = plan_tag(batch, tokens, num_slots, max_rank);
  if (batch.plan) return {batch.plan.raw(), tag};
  std::byte* own = workspace.take<std::byte>(lora_plan_bytes(tokens, max_rank)).data();
  make_plan(ctx, batch, tokens, num_slots, max_rank, {}, own, halves);
  return {own, tag};
}

}  // namespace heddle::cuda::linear_site
