#pragma once

#include <cstdint>

#include "cuda/rotary.h"

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"

#include "ops/attention/paged/paged_kv_params.h"

namespace heddle::cuda::attention {

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

/// One call of batch_decode or batch_prefill, checked and packed; a kernel's only parameter but RotaryFrequencies. Steps of q, o and lse
/// are elements. Head h of q uses kv head h / group_size.
struct AttentionKernelParams {
  PagedKvParams kv;
  const std::byte* q = nullptr;  // [num_tokens, num_kv_heads * group_size, head_dim] f16|bf16
  std::byte* o = nullptr;        // the same shape and dtype
  float* lse = nullptr;          // [num_tokens, num_kv_heads * group_size], or nullptr
  int64_t q_token = 0, q_head = 0, o_token = 0, o_head = 0, lse_token = 0, lse_head = 0;

  /// Rows of sequence i: [q_indptr[i], q_indptr[i + 1]); absent: row i alone. Rows before the first and behind the last
  /// sequence's are not touched. Row r of q_len stands at position kv_len - q_len + r, which may be negative.
  IndexParams q_indptr;
  /// Tree masks, see AttentionOptions; read by attention_mask_cuda.h.
  const uint32_t* tree_mask = nullptr;
  IndexParams tree_mask_indptr;

  int64_t num_tokens = 0;  // rows of q: no sequence has more queries, all together not either
  int64_t num_pages =
      0;  // of the table: bounds what all sequences hold together by num_pages * page_size tokens
  int32_t num_seqs = 0, num_kv_heads = 1, group_size = 1, head_dim = 0;
  int32_t window_left = -1;   // -1: all
  float sm_scale = 1.0f;      // not folded into anything: q . k * sm_scale
  float soft_cap = 0.0f;      // 0: none
  bool causal = true;         // decode: true, where it says nothing
  bool is_q_aligned = false;  // rows of q and o begin at multiples of 16 bytes, head_dim * 2 is one
  // kv.is_aligned says the same of keys and values.

  /// Of decode: where blocks leave the states of segments that another block merges, not initialised. nullptr: a block computes all
  /// segments of its rows.
  float* partials = nullptr;  // decode_partial_floats()
  /// Of decode: counters that are zero before and after every kernel, one for each block if there are as many.
  uint32_t* counters = nullptr;
  int32_t num_counters = 0;
};

/// How a call runs. The kernels take no more than f16 and bf16, q and cache of one dtype.
struct AttentionLaunch {
  DType dtype;
  DeviceInfo info;
  int device;  // the current one
  cudaStream_t stream;
};

/// rope: nullptr where q and k come rotated. None of the params is empty: num_seqs, num_tokens >= 1.
void launch_decode(const AttentionKernelParams& p, const RotaryFrequencies* rope,
                   const AttentionLaunch& launch);
void launch_prefill(const AttentionKernelParams& p, const RotaryFrequencies* rope,
                    const AttentionLaunch& launch);

}  // namespace heddle::cuda::attention
