#pragma once

#include "heddle/core/context.h"

#include "ops/lora/grouped/grouped_params.h"
#include "ops/lora/run/run_gpu.h"

namespace heddle {

/// What the kernels of a prefill depend on.
struct LoraGroupedShape {
  int64_t num_tokens;
  int num_slices, num_chunks, max_rank;
  int64_t in_features;  // 0: h is a tensor
  bool is_aligned = true;
  int64_t num_outputs = 0;  // of all slices
};

/// How a call of this shape runs on this chip; the bits are the same whatever comes out.
[[nodiscard]] cuda::lora::GroupedConfig select_prefill_config(const LoraGroupedShape& shape,
                                                              const DeviceInfo& info);

/// Whether the whole batch can be grouped by adapter, in two kernels for all rows.
[[nodiscard]] bool is_prefill(const LoraGpuCall& call);

/// Whether a prefill can read and write 16 bytes at a time: where loads_vectors(call) holds and y allows it.
[[nodiscard]] bool is_aligned_prefill(const LoraGpuCall& call, bool is_aligned);

/// Columns of h of all slices: each has its own, to the next multiple of 16.
[[nodiscard]] constexpr int64_t lora_h_width(int64_t num_slices, int64_t max_rank) {
  return num_slices * ((max_rank + cuda::lora::kTileRanks - 1) / cuda::lora::kTileRanks) *
         cuda::lora::kTileRanks;
}

/// Vectors of 16 bytes that a row of h takes in a slice where it is joined between the kernels, for ranks up to 64.
[[nodiscard]] constexpr int joined_row_vectors(int max_rank) {
  const int pairs = (max_rank + cuda::lora::kHPairRanks - 1) / cuda::lora::kHPairRanks;
  return (max_rank <= cuda::lora::kTileRanks ? 1 : 2 * pairs) * cuda::lora::kHStepVectors;
}

/// Values of 4 bytes that h of a call takes which is joined between its kernels: that of ranks up to 64, and as much where more are.
[[nodiscard]] int64_t joined_h_values(int64_t num_tokens, int64_t num_slices, int64_t max_rank);

/// f32 values of partial sums and h that such a call needs of the workspace at most; of a call with less of each it is no more.
[[nodiscard]] int64_t grouped_partials(int64_t num_tokens, int64_t num_slices, int64_t max_rank);

/// Runs slices of a call; is_aligned: of is_aligned_prefill. `site` has the pointers of their first row, `plan` is that of plan_grouped.
/// T: dtype of the weights.
template <class T>
void run_grouped(const ExecContext& ctx, const LoraGpuCall& call, bool is_aligned,
                 const cuda::lora::SiteParams& site, const std::byte* plan);

}  // namespace heddle
