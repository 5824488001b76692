#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/rotary.h"

#include "heddle/core/context.h"

#include "ops/attention/kv_append/select_append.h"
#include "ops/attention/paged/paged_kv_params.h"

namespace heddle::cuda::attention {

/// New tokens on their way into a cache. Steps are bytes.
struct KvAppendParams {
  PagedKvParams kv;
  const std::byte* k = nullptr;  // [num_tokens, num_kv_heads, head_dim]
  const std::byte* v = nullptr;
  int64_t k_token = 0, k_head = 0, v_token = 0, v_head = 0;
  /// Rows of sequence i: [seq_indptr[i], seq_indptr[i + 1]); absent: row i alone.
  ConstIndexVector seq_indptr;
  int64_t num_tokens = 0;
  int32_t num_seqs = 0, num_kv_heads = 0;
  int32_t head_units = 0;       // of 16 bytes; elements where something is not aligned, or codes
                                // are stored
  int32_t warps_per_token = 0;  // that share a token
  FastDivisor by_head_units, by_warps_per_token;
  DType from = DType::kFloat32, to = DType::kFloat32;  // of k and v, of the cache
};
static_assert(sizeof(KvAppendParams) <= 288);

/// What rope_kv_append adds.
struct RopeAppendParams {
  /// [num_tokens, num_q_heads, head_dim] of k's dtype, rotated in place; nullptr: none.
  std::byte* q = nullptr;
  int64_t q_token = 0, q_head = 0;
  ConstIndexVector positions;  // [num_tokens]; absent: the places that the tokens get in the cache
  int32_t num_q_heads = 0;
  bool is_speculative = false;  // AppendChoice
};

/// How the threads of a block share the rows (heads) of q and k: each has the same pairs in every
/// rows_at_once-th row. A struct of its own: as fields of the others it took the kernel 0.15 us
/// longer for few tokens on an H200.
struct RowPartition {
  int32_t threads_per_row, rows_at_once;
  FastDivisor by_threads_per_row, by_head_units;
};

/// A thread moves up to so many units of 16 bytes.
inline constexpr int kAppendItems = 4;
/// Threads of a block of the kernel that copies, and of that which rotates at most, also into a
/// cache of codes.
inline constexpr int kAppendThreads = 256, kMaxRopeAppendThreads = 320, kMaxRopeCodesThreads = 512;

/// scales: used where codes are stored.
void launch_kv_append(const ExecContext& ctx, const KvAppendParams& p, const KvScaleParams& scales,
                      const AppendChoice& choice);
void launch_rope_kv_append(const ExecContext& ctx, const KvAppendParams& p,
                           const KvScaleParams& scales, const RopeAppendParams& rope,
                           const RowPartition& rows, const RotaryFrequencies& frequencies,
                           const AppendChoice& choice);

}  // namespace heddle::cuda::attention
