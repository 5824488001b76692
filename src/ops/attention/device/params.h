#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/rotary.h"

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"

#include "ops/attention/paged/paged_kv_params.h"

namespace heddle::cuda::attention {

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

/// What the kernels of batch_decode and batch_prefill take alike: one call, checked and packed.
/// Head h of q uses kv head h / group_size. Steps of q, o and lse count elements.
struct AttentionCallParams {
  PagedKvParams kv;
  const std::byte* q = nullptr;  // [num_tokens, num_kv_heads * group_size, head_dim] f16|bf16
  std::byte* o = nullptr;        // the same shape and dtype
  float* lse = nullptr;          // [num_tokens, num_kv_heads * group_size], or nullptr
  int64_t q_token = 0, q_head = 0, o_token = 0, o_head = 0, lse_token = 0, lse_head = 0;

  /// Rows of sequence i: [q_indptr[i], q_indptr[i + 1]); absent: row i alone. Row r of the q_len
  /// rows of a sequence stands at position kv_len - q_len + r, which may be negative. Rows that
  /// belong to no sequence are not touched.
  ConstIndexVector q_indptr;
  /// Tree masks, see AttentionOptions. device/tree_mask_cuda.h reads them.
  const uint32_t* tree_mask = nullptr;
  ConstIndexVector tree_mask_indptr;
  int64_t num_mask_words = 0;

  int64_t num_tokens =
      0;  // rows of q: the sequences have no more queries, one alone or all together
  int32_t num_seqs = 0, num_kv_heads = 1, group_size = 1, head_dim = 0;
  int32_t window_left = -1;  // -1: all keys before
  float sm_scale = 1.0f;     // a score is q . k * sm_scale
  float soft_cap = 0.0f;     // 0: none
  bool causal = true;        // of decode true, where it says nothing
  bool is_q_aligned =
      false;  // rows of q and o are whole vectors of 16 bytes, as kv.is_aligned says
};

/// Where a kernel runs, and of which dtype q is: f16 or bf16. The cache is, too, or f8e4m3.
struct AttentionLaunch {
  DType dtype;
  DeviceInfo info;
  int device;  // the current one
  cudaStream_t stream;
};

}  // namespace heddle::cuda::attention
