#pragma once

#include <iosfwd>

#include "core/math.h"
#include "ops/lora_device/call/pack_site.h"
#include "ops/lora_device/grouped/grouped_params.h"
#include "ops/lora_device/plan/plan_bytes.h"

namespace heddle {

/// Whether the whole batch can be grouped by adapter: the plan has it, and kernels can count rows
/// and work items in 32 bits.
[[nodiscard]] bool can_be_grouped(const LoraCall& call);

/// How a grouped call runs on this chip; the bits are the same whatever comes out.
[[nodiscard]] cuda::lora::GroupedConfig select_grouped(const LoraCall& call,
                                                       const DeviceInfo& info);

/// Columns of h of all slices: each has its own, to the next multiple of 16.
[[nodiscard]] constexpr int64_t lora_h_width(int64_t num_slices, int64_t max_rank) {
  return num_slices * (ceil_div(max_rank, cuda::lora::kTileRanks)) * cuda::lora::kTileRanks;
}

/// Vectors of 16 bytes that a row of h takes in a slice where it is joined between the kernels, for
/// ranks up to 64.
[[nodiscard]] constexpr int joined_row_vectors(int max_rank) {
  const int pairs = ceil_div(max_rank, cuda::lora::kHPairRanks);
  return (max_rank <= cuda::lora::kTileRanks ? 1 : 2 * pairs) * cuda::lora::kHStepVectors;
}

/// Values of 4 bytes that h of a call takes which is joined between its kernels: that of ranks up
/// to 64, and as much where more are.
[[nodiscard]] int64_t joined_h_values(int64_t num_tokens, int64_t num_slices, int64_t max_rank);

/// f32 values of partial sums and h that a grouped call needs of the workspace at most; of a call
/// with less of each it is no more.
[[nodiscard]] int64_t grouped_partials(int64_t num_tokens, int64_t num_slices, int64_t max_rank);

/// The parameters of a grouped call, but for partials and h, which lie in the workspace.
[[nodiscard]] cuda::lora::GroupedParams pack_grouped(const LoraLaunch& part,
                                                     const cuda::lora::GroupedConfig& config);

}  // namespace heddle

namespace heddle::cuda::lora {
std::ostream& operator<<(std::ostream& out, const GroupedConfig& config);
}  // namespace heddle::cuda::lora
