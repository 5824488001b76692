#pragma once

#include "ops/attention/run/params.h"

namespace heddle::cuda::attention {

/// Keys are taken in tiles that begin at multiples of this position and in ascending order, so what is summed with what depends on
/// positions alone.
inline constexpr int kPrefillTileKeys = 64;
/// Rows of a block for heads up to 64, 128 or 256. The bits of a row do not depend on it.
[[nodiscard]] constexpr int prefill_rows(int head_dim, bool is_general) {
  return head_dim <= 128 ? 128 : is_general ? 32 : 64;
}
/// Blocks, at most: how many tiles of rows the sequences have is known on the device alone. Each adds up to one begun tile.
[[nodiscard]] constexpr int64_t num_prefill_blocks(const AttentionKernelParams& p,
                                                   bool is_general) {
  const int rows = prefill_rows(p.head_dim, is_general);
  return (p.num_tokens * p.group_size / rows + p.num_seqs) * p.num_kv_heads;
}

/// Scores are q . k. Plain calls have weights exp2(scale * (score - maximum)); others, with a soft cap or a scale that is not positive, make
/// each score soft_cap * tanh(q . k * sm_scale / soft_cap) first.
struct PrefillParams {
  AttentionKernelParams call;
  Divisor by_group_size, by_kv_heads;
  int64_t page_entry_step = 0;  // bytes from an entry of the table to the next
  bool is_transformed = false;
  float scale = 1.0f;       // of scores in the exponent of e; 1 where they are made before
  float scale_log2 = 1.0f;  // of 2
};

/// What the general kernel does and the plain one does not: rotate, cap, take any scale, masks of trees, and rows that do not begin at
/// multiples of 16 bytes.
[[nodiscard]] inline bool is_plain_prefill(const AttentionKernelParams& p,
                                           const RotaryFrequencies* rope) {
  return rope == nullptr && p.soft_cap == 0.0f && p.sm_scale > 0.0f && p.tree_mask == nullptr &&
         p.is_q_aligned && p.kv.is_aligned;
}

template <class T>
void launch_prefill_of(const PrefillParams& p, const RotaryFrequencies* rope,
                       const AttentionLaunch& launch);

}  // namespace heddle::cuda::attention
