#pragma once

#include "heddle/core/context.h"
#include "heddle/core/count.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

// Bookkeeping after the forward pass over drafted tokens: which drafts the model confirms, what
// comes next, and how far the KV cache goes back. All is integers, so every backend gives the same
// bits. Index tensors are i32 or i64, each its own;
// masks are bool or u8. Strides: any. A kv block is what the attention ops call a page. With
// HEDDLE_VALIDATE=1 a value that a contract calls out of range throws kInvalidArgument with tensor,
// row and value; else the contract says what it gives, and nothing outside the tensors is read or
// written.
//
// A batch holds its decode requests first, then its prefill requests, then padding. Decode request
// p has 1 + drafts(p) tokens, its last sure one and then its drafts; a prefill request has one, the
// last of its prompt:
//   base(p) = p + sum of drafts(q) over q < p        for decode requests p < num_decode_requests
//   base(p) = base(num_decode_requests) + (p - num_decode_requests)       for prefill requests
// Names and semantics: Megatron-LM,
// megatron/core/inference/text_generation_controllers/mtp_utils_triton.py.

inline constexpr int64_t kNoToken = -1;
inline constexpr int64_t kNoBlock = -1;

/// How many tokens were drafted for each decode request. Kernel-ready.
struct Drafts {
  /// S: of every request, or with indptr the most that one may have.
  int64_t num_speculative_tokens = 0;
  /// [>= num_decode_requests + 1] i32|i64, ascending from 0, or absent. Request p has indptr[p + 1]
  /// - indptr[p] drafts, one past its end none.
  ConstTensorView indptr{};
  /// A draft kNoToken is a placeholder and is never accepted.
  bool reject_placeholders = false;

  /// As published: S drafts for every request, tokens compared whatever they are.
  [[nodiscard]] static Drafts uniform(int64_t num_speculative_tokens) {
    return {.num_speculative_tokens = num_speculative_tokens};
  }
  /// Ragged rows of up to max_speculative_tokens drafts; placeholders are never accepted.
  [[nodiscard]] static Drafts ragged(ConstTensorView indptr, int64_t max_speculative_tokens) {
    return {max_speculative_tokens, indptr, true};
  }
};

/// Accepts each draft that equals the token the model gives at the position before it, up to the
/// first that does not.
///   mask is accepted_tokens_mask, which is false elsewhere
///   mask[base(p)]     = true
///   mask[base(p) + j] = mask[base(p) + j - 1] and input[base(p) + j] == output[base(p) + j - 1],
///     0 < j <= drafts(p)
///   last_one_indices[p] = the last true position of request p
/// last_one_indices [>= num_decode_requests + num_prefill_requests]; accepted_tokens_mask as
/// input_tokens;
/// input_tokens, output_tokens [num_tokens] or [1, num_tokens] (output may be longer), num_tokens
/// at least what the requests need. The mask is false after the last request, last_one_indices -1.
/// A request whose tokens begin past num_tokens (ragged or device counts only) gets -1; one whose
/// tokens end past it has its first ones verified.
/// The output at last_one_indices[p] is the bonus token, which has no draft. Nothing may
/// alias.
void verify_speculative_tokens(const ExecContext& ctx, TensorView last_one_indices,
                               TensorView accepted_tokens_mask, ConstTensorView input_tokens,
                               ConstTensorView output_tokens, const Count& num_decode_requests,
                               const Count& num_prefill_requests, const Drafts& drafts);

struct PrepareOptions {
  /// accepted_tokens -1 and accepted_counts 0 for requests without drafts, too.
  bool write_prefill_rows = false;
};

/// What each request goes on with; one row p per entry of last_one_indices [num_rows]:
///   sampled_tokens[p]     = output_tokens[last_one_indices[p]]
///   last_accepted_seq[p]  = required_logit_indices[last_one_indices[p]]
///   accepted_tokens[p, s] = mask[base(p) + 1 + s] ? input_tokens[base(p) + 1 + s] : -1
///     for s < S, p < num_decode_requests
///   accepted_counts[p]    = number of true masks among those
/// and a row of accepted_tokens has -1 after its own drafts(p). Rows of other requests keep
/// accepted_tokens and accepted_counts as they are unless options say otherwise. Where
/// last_one_indices[p] is -1 (or past the tokens) the four get -1, -1, -1 and 0.
///   sampled_tokens, last_accepted_seq [>= num_rows]; accepted_counts [>= num_rows],
///   accepted_tokens [>= num_rows, >= S], or num_decode_requests rows alone where that count is
///   the host's and options leave other requests out: rows that one of the two lacks are not
///   stored; nothing else of them is touched; input_tokens, accepted_tokens_mask
///   [num_tokens] or [1, num_tokens], output_tokens (rank 1 or 2, too) and
///   required_logit_indices [>= num_tokens]
void prepare_next_forward_pass(const ExecContext& ctx, TensorView sampled_tokens,
                               TensorView last_accepted_seq, TensorView accepted_tokens,
                               TensorView accepted_counts, ConstTensorView output_tokens,
                               ConstTensorView required_logit_indices,
                               ConstTensorView last_one_indices,
                               ConstTensorView accepted_tokens_mask, ConstTensorView input_tokens,
                               const Count& num_decode_requests, const Drafts& drafts,
                               const PrepareOptions& options = {});

/// The KV cache of the requests, changed in place: num_requests rows, and any number after them
/// that are not touched.
struct KvBlockState {
  TensorView last_kv_block_offset;  // [rows]  place of the last token in its block
  TensorView kv_length_offsets;     // [rows]  tokens
  TensorView kv_block_counts;       // [rows]  blocks in use: the first of its row of kv_block_ids
  TensorView last_kv_block_id;      // [rows]  the last of those
  TensorView kv_block_ids;          // [rows, max_blocks]
};

/// Blocks that a rewind frees; any of these may be absent. On CUDA several blocks of threads make
/// the list where the context has an exchange (16 KB), else one. num_requests rows at least, those
/// after them get 0 and false.
struct ReleasedBlocks {
  TensorView blocks_to_release{};  // [rows]  the last block id before the call
  TensorView remove_mask{};        // [rows]  bool|u8: whether that block is released
  // All released ids in request order, within a request the last block first. num_released is their
  // number, also where that exceeds the capacity of released_ids: then the list holds the first
  // ones. After the list nothing is touched.
  TensorView released_ids{};  // [capacity]
  TensorView num_released{};  // [1] or []
};

/// Takes the rejected drafts of each active request i < num_active off its cache:
///   r = prefill_status[i] == 1 ? 0 : drafts(i) - min(max(accepted_counts[i], 0), drafts(i))
///   k = last_kv_block_offset[i] < r ? ceil((r - last_kv_block_offset[i]) / block_size_tokens) : 0
///   last_kv_block_offset[i] = (last_kv_block_offset[i] - r) mod block_size_tokens, in [0,
///   block_size_tokens)
///   kv_length_offsets[i] -= r;  kv_block_counts[i] -= k, not below 0
///   blocks_to_release[i] = last_kv_block_id[i]
///   and if k > 0: the k entries of kv_block_ids[i] that are no longer in use become -1,
///   last_kv_block_id[i] the last one that still is (-1 when none is), remove_mask[i] = true
/// So accepted counts outside [0, drafts(i)] are clamped, a rewind may cross several blocks
/// (capacity num_requests * ceil(S / block_size_tokens) holds whatever is released), and S = 0
/// changes nothing. A count beyond max_blocks clears the last entry for those that the table does
/// not have. num_requests is the length of accepted_counts; num_active not given: all of them.
/// Requests from num_active on are padding: their state is not written, whatever it holds.
///   accepted_counts [num_requests]; prefill_status [>= num_requests]; block_size_tokens >= 1
void rewind_kv_cache(const ExecContext& ctx, const ReleasedBlocks& released,
                     const KvBlockState& state, ConstTensorView accepted_counts,
                     ConstTensorView prefill_status, const Drafts& drafts,
                     int64_t block_size_tokens, const Count& num_active = {});

/// What speculative_step writes; any of these may be absent. num_requests rows at least.
struct SpeculativeStepOutputs {
  TensorView last_one_indices{}, accepted_tokens_mask{};  // as verify_speculative_tokens
  TensorView sampled_tokens{}, last_accepted_seq{};       // as prepare_next_forward_pass
  TensorView accepted_tokens{}, accepted_counts{};        // as prepare_next_forward_pass
  ReleasedBlocks released{};                              // as rewind_kv_cache

  // The next step, in which each request has Q = num_next_tokens tokens, j = 0 its sampled one. n
  // is what its cache holds:
  // (kv_block_counts - 1) * block_size_tokens + last_kv_block_offset + 1 after the rewind, 0
  // without blocks.
  // A slot is block id * block_size_tokens + place in the block, -1 in a block that is yet to be
  // had.
  TensorView next_positions{};      // [rows, Q]  n + j
  TensorView next_slots{};          // [rows, Q]  the slot of position n + j
  TensorView next_kv_lens{};        // [rows]     n + Q
  TensorView next_last_page_len{};  // [rows]     (n + Q - 1) mod block_size_tokens + 1
};

struct SpeculativeStepOptions {
  bool write_prefill_rows = false;  // as in PrepareOptions
  int64_t num_next_tokens = 1;      // Q >= 1; 1 + S where the next step has drafts again
};

/// The whole step after sampling in one launch: verify_speculative_tokens,
/// prepare_next_forward_pass and rewind_kv_cache, the same bits as the three calls one after
/// another, with prefill_status[p] = (p >= num_decode_requests), num_active = num_decode_requests +
/// num_prefill_requests and num_requests rows, the length of state.kv_block_ids; and the positions,
/// slots and lengths of the next step. In padding rows next_positions and next_slots are -1, the
/// lengths 0; rows of the outputs past num_requests are not touched but where the three calls do.
///   input_tokens, output_tokens, required_logit_indices as above; the latter may be absent with
///   last_accepted_seq
/// Nothing needs the host: counts may lie on the device, released_ids and num_released can go to
/// the allocator there.
void speculative_step(const ExecContext& ctx, const SpeculativeStepOutputs& outputs,
                      const KvBlockState& state, ConstTensorView input_tokens,
                      ConstTensorView output_tokens, ConstTensorView required_logit_indices,
                      const Count& num_decode_requests, const Count& num_prefill_requests,
                      const Drafts& drafts, int64_t block_size_tokens,
                      const SpeculativeStepOptions& options = {});

/// Which occurrence of an n-gram drafts are taken from where there are several.
enum class NgramMatch {
  // the earliest, which most tokens follow: as vLLM and Hugging Face's prompt lookup do
  kFirst,
  kLast,  // the most recent
};

struct NgramOptions {
  int64_t min_ngram = 1, max_ngram = 3;  // 1 <= min_ngram <= max_ngram
  NgramMatch match = NgramMatch::kFirst;
  int64_t max_length = 0;  // tokens that a sequence may have with its drafts; 0: any number
};

/// Drafts from a sequence's own tokens (prompt lookup): those that followed where its last n tokens
/// stood before.
/// Of the tokens t[0], ..., t[L - 1] of row i < num_active, L = lengths[i]:
///   n = the largest in [min_ngram, max_ngram] with t[s + m] == t[L - n + m] for all 0 <= m < n,
///   for some 0 <= s < L - n
///   s = the first such s, or the last; the occurrence may overlap the last n tokens
///   num_drafts[i] = min(k, L - s - n, max(max_length - L, 0)), or 0 where there is no such n
///   draft_tokens[i, j] = t[s + n + j], j < num_drafts[i];  kNoToken for the other j < k
/// k = num_speculative_tokens >= 0. Rows from num_active on are padding: no drafts; not given: all
/// are active.
///   draft_tokens [>= num_rows, >= k], num_drafts [>= num_rows]: nothing else of them is touched
///   tokens [>= num_rows, max_tokens]; lengths [num_rows], clamped to [0, max_tokens]
/// Drafts{k, {}, true} verifies such drafts as they are, since a placeholder is never accepted.
/// Nothing may alias.
void propose_ngram_drafts(const ExecContext& ctx, TensorView draft_tokens, TensorView num_drafts,
                          ConstTensorView tokens, ConstTensorView lengths,
                          int64_t num_speculative_tokens, const Count& num_active = {},
                          const NgramOptions& options = {});

}  // namespace heddle
