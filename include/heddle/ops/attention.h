#pragma once

#include <optional>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/ops/kv_cache.h"
#include "heddle/ops/rope.h"

namespace heddle {

struct AttentionOptions {
  std::optional<float> sm_scale{};   // nothing: 1 / sqrt(head_dim)
  bool causal = true;                // prefill only; decode sees every key
  int64_t window_left = -1;          // keys before the query's position that it sees; -1: all
  float logits_soft_cap = 0.0f;      // c > 0: s becomes c * tanh(s / c)
  std::optional<RopeParams> rope{};  // nothing: q and k come rotated; else rotated inside

  /// Prefill only. Attention over trees of drafts: each token's mask tells which of its sequence's
  /// q_len(i) new tokens it sees, instead of `causal`; the keys before them are all seen, and
  /// window_left holds as without.
  ///   tree_mask        [num words] i32, last axis without gaps: the masks of a sequence one
  ///                    after the other, ceil(q_len(i) / 32) words each; token r sees new token j
  ///                    where bit j % 32 of word j / 32 of its mask is 1
  ///   tree_mask_indptr [num_seqs + 1] i32|i64: first word of each sequence; one without words has
  ///                    no mask: `causal` decides
  /// Positions stay those of the slots, also for `rope`: a tree whose branches share positions
  /// comes rotated.
  ConstTensorView tree_mask{}, tree_mask_indptr{};

  /// Decode only. Queries of one sequence that read its keys together, as those of its last token
  /// and of the drafts after it: a bundle. Each has the bits that it has alone.
  ///   bundle_indptr [num_bundles + 1] i32|i64, from 0 to the number of queries: bundle b has the
  ///                 queries bundle_indptr[b] to bundle_indptr[b + 1] - 1, none where the two are
  ///                 equal
  ///   max_bundle    1 to 16: no bundle has more queries, and none more than decode_bundle allows
  /// The queries of a bundle list the same pages, as far as each has them, and kv_len rises by one
  /// from one to the next. Keys come rotated: not with `rope`.
  ConstTensorView bundle_indptr{};
  int64_t max_bundle = 1;
};

/// o[t][h] = T(sum_j softmax_j(s_j) v_j),  s_j = soft_cap(sm_scale * q[t][h] . k_j[h / group_size])
/// over the keys j of sequence i that token t may see. Token t is number r of the q_len(i) rows of
/// sequence i, its position is kv_len(i) - q_len(i) + r (bottom-right alignment); with causal it
/// sees j <= position, with window_left >= 0 also only j >= position - window_left.
///   o, q     [num_tokens, num_q_heads, head_dim]  f32|f16|bf16, the same dtype T; num_q_heads =
///                                                 group_size * num_kv_heads
///   q_indptr [num_seqs + 1]                       i32|i64
///   lse      [num_tokens, num_q_heads] f32, or absent: natural log of the sum of exp(s_j); -inf
///            where no key is visible
/// Any group size and page size, head_dim up to 256; q and the cache may have different dtypes. Of
/// a cache of f8e4m3 k_j and v_j are scale * code, rounded to f32.
/// Everything is f32 between the loads and the one rounding of o. A row that sees no key is zeros.
/// The slots past a sequence's end are never read.
/// The bits of a row depend on its query, the keys and values it sees and the options alone: not on
/// the batch, the page size, the number of threads, or on how a prompt was cut into chunks;
/// batch_decode gives the bits of batch_prefill.
/// Strides: any, last axis without gaps. Rows outside [q_indptr[0], q_indptr[num_seqs]) are not
/// touched.
/// CUDA: q in f16 or bf16, the cache in the same or in f8e4m3, without options.rope then; of that
/// batch_prefill rounds scale * code of values to T, on 9.0 of keys, too. Lengths, tables and masks
/// are read on the device, so that a captured graph replays with others; pages with addresses begin
/// at multiples of 16 bytes; fewer than 2^31 tokens a sequence. Weights are rounded to T where they
/// meet the values, of f8e4m3 in batch_decode to f16. batch_decode cuts a sequence into segments by
/// the number of keys it shows, so its bits depend on that number as well, and are not those of
/// batch_prefill; all else about bits and precision holds.
/// Online softmax: Milakov and Gimelshein 2018, arXiv 1805.02867; paging: Kwon et al. 2023,
/// arXiv 2309.06180.
void batch_prefill(const ExecContext& ctx, TensorView o, TensorView lse, ConstTensorView q,
                   ConstTensorView q_indptr, const PagedKv& cache, const PageTable& table,
                   const AttentionOptions& options = {});

/// One query per sequence, at position kv_len(i) - 1: o, q [num_seqs, num_q_heads, head_dim], lse
/// [num_seqs, num_q_heads]. Several queries of a sequence are sequences that list the same pages;
/// with options.bundle_indptr a GPU reads their keys once.
void batch_decode(const ExecContext& ctx, TensorView o, TensorView lse, ConstTensorView q,
                  const PagedKv& cache, const PageTable& table,
                  const AttentionOptions& options = {});

/// What batch_decode can use of ctx.workspace: on CUDA several blocks then share a long sequence.
/// Without a workspace the bits are the same and few long sequences take longer; the CPU uses none.
/// Throws kInvalidArgument for extents below 0, more than 2^40 sequences, and heads or elements of
/// a head above 2^16.
[[nodiscard]] size_t batch_decode_workspace_bytes(Device device, int64_t num_seqs,
                                                  int64_t num_q_heads, int64_t head_dim);

/// How many queries of a sequence may be one bundle of batch_decode: of num_queries, the first of
/// which shows kv_len keys and each later one a key more, those from the first on that a GPU cuts
/// alike and has room for: 32 rows of q (queries times heads) for a head of the cache, 16 up to a
/// head_dim of 64. It is 1 where num_queries is 1, for a cache of f8e4m3, and for a head_dim above
/// 128.
///   cache_dtype, num_kv_heads, head_dim: of the cache
///   window_left: as in the options; -1: all keys
/// A pure function, the same for all devices. Throws kInvalidArgument for numbers below 1, more
/// than 2^31 - 17 keys, and heads of q that are no multiple of those of the cache.
[[nodiscard]] int64_t decode_bundle(DType cache_dtype, int64_t num_q_heads, int64_t num_kv_heads,
                                    int64_t head_dim, int64_t window_left, int64_t kv_len,
                                    int64_t num_queries);

/// Attention over the union of two disjoint key sets from the results over each:
///   lse = log(exp(lse_a) + exp(lse_b)),  o = T(o_a exp(lse_a - lse) + o_b exp(lse_b - lse))
///   o, o_a, o_b [num_tokens, num_q_heads, head_dim] f32|f16|bf16, the same dtype
///   lse*        [num_tokens, num_q_heads] f32
/// A state whose lse is -inf counts nothing (its o is not read); both -inf give zeros and -inf. o
/// may be o_a or o_b, lse may be lse_a or lse_b; lse may be absent.
void merge_states(const ExecContext& ctx, TensorView o, TensorView lse, ConstTensorView o_a,
                  ConstTensorView lse_a, ConstTensorView o_b, ConstTensorView lse_b);

}  // namespace heddle
