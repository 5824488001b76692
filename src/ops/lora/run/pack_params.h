#pragma once

#include <cstddef>

#include "heddle/core/context.h"

#include "ops/lora/device/half_params.h"
#include "ops/lora/grouped/grouped_params.h"
#include "ops/lora/run/lora_site.h"
#include "ops/lora/run/select_kernel.h"

// From a described call and its choice to the one struct that the kernel takes.

namespace heddle {

/// What a launch has of a call: a part of its slices, and call.tokens rows from first_row on.
struct LoraLaunch {
  const LoraSite& site;
  const LoraBatch& batch;
  const LoraCall& call;
  int64_t first_row;
  const std::byte* plan;  // of the whole batch; null: the kernels need none
  uint32_t plan_tag;      // that it should have
  FaultRecord* faults;    // of the context
};

/// A table from slice first_slice on, as kernels read it. Ranks count up to rank_limit.
[[nodiscard]] cuda::lora::WeightAddresses addresses(const LoraTable& table, int first_slice,
                                                    int64_t rank_limit);

/// Of kFused and kFusedWindows; what the aligned kernel takes.
[[nodiscard]] cuda::lora::FusedParams pack_fused(const ExecContext& ctx, const LoraLaunch& part,
                                                 const LoraChoice& choice, uint32_t spin_limit);

/// The same and what the general kernel takes beside it.
[[nodiscard]] cuda::lora::FusedGeneralParams pack_fused_general(const ExecContext& ctx,
                                                                const LoraLaunch& part,
                                                                const LoraChoice& choice,
                                                                uint32_t spin_limit);

/// Of kTwoLaunches, but for partials and the number of blocks.
[[nodiscard]] cuda::lora::HalfParams pack_two_launches(const LoraLaunch& part);

/// Of kGrouped, but for partials and h, which lie in the workspace.
[[nodiscard]] cuda::lora::GroupedParams pack_grouped(const LoraLaunch& part,
                                                     const cuda::lora::GroupedConfig& config);

/// There are no items to divide where d is 0.
[[nodiscard]] constexpr cuda::Reciprocal reciprocal(int32_t d) {
  return cuda::Reciprocal(static_cast<uint32_t>(d > 1 ? d : 1));
}

}  // namespace heddle
