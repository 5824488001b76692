#pragma once

#include "ops/attention/device/params.h"

namespace heddle::cuda::attention {

/// Keys are processed in tiles that begin at multiples of this position, in ascending order. So
/// what is summed with what depends on positions alone.
inline constexpr int kPrefillTileKeys = 64;
inline constexpr int kSm90TileKeys = 128;

/// Rows of a block for heads up to 64, 128 or 256. The bits of a row do not depend on it.
[[nodiscard]] constexpr int prefill_rows(int head_dim, bool is_general) {
  return head_dim <= 128 ? 128 : is_general ? 32 : 64;
}

/// What the prefill kernels take.
///
/// Scores are q . k. The aligned kernel has weights exp2(scale_log2 * (score - maximum)). With a
/// soft cap, or a scale that is not positive, the general kernel first makes each score soft_cap *
/// tanh(q . k * sm_scale / soft_cap).
struct PrefillParams {
  AttentionCallParams call;
  FastDivisor by_group_size, by_kv_heads;
  bool is_transformed = false;
  float scale = 1.0f;       // of scores in the exponent of e; 1 where they are made before
  float scale_log2 = 1.0f;  // of 2
};

/// In place of RotaryFrequencies in the parameters of the aligned kernel.
struct NoRotation {};

}  // namespace heddle::cuda::attention
