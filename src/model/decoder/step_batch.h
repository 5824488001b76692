#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/core/thread_pool.h"
#include "heddle/ops/kv_cache.h"
#include "heddle/ops/lora.h"

#include "core/staged_arrays.h"
#include "model/adapters/adapter_use.h"

namespace heddle::model {

/// The largest step that buffers are made for.
struct StepLimits {
  int64_t num_tokens = 0, num_seqs = 0, num_pages = 0, num_logit_rows = 0;
  int64_t max_pairs = 0;  // adapters of a token, where a row has a list of them
  size_t more_bytes = 0;  // of the caller's arrays that are copied to the device with these
};

/// Adds arrays that are copied to the device with those of a step.
using AddMore = FunctionRef<void(StagedArrays&)>;
inline constexpr auto kNothingMore = [](StagedArrays& /*arrays*/) {};

/// The tokens of one step, those of a sequence next to one another, and where their keys and values
/// go.
struct StepBatch {
  /// Sequences at the front that have one token each, which was drawn: on a GPU they take other
  /// paths than tokens of prompts (docs/numerics.md). Not read on the CPU, which has one path.
  int64_t num_decode = 0;
  std::vector<int32_t> token_ids;  // [num_tokens]
  /// [num_tokens], or empty: where in what was drawn before the token is, -1: in token_ids. For
  /// tokens that are still on the device.
  std::vector<int32_t> sources;
  std::vector<int32_t> positions;      // [num_tokens]
  std::vector<int32_t> slot_ids;       // [num_tokens], kNoAdapter: the base model
  std::vector<int32_t> q_indptr;       // [num_seqs + 1]
  std::vector<int32_t> page_indptr;    // [num_seqs + 1]
  std::vector<int32_t> pages;          // [page_indptr[num_seqs]]
  std::vector<int32_t> last_page_len;  // [num_seqs], this step's tokens included
  std::vector<int32_t> logit_tokens;   // tokens whose logits are wanted
  bool wants_hidden = false;           // DecoderScratch::hidden is, too
  std::vector<int32_t> seq_slots;   // [num_seqs], whose embedding and head, kNoAdapter: the base's
  std::vector<int32_t> logit_seqs;  // [logit_tokens.size()], the sequence of each
  /// [logit_tokens.size()]: 0 where the adapter of the token acts, else kNoAdapter, as slots of a
  /// table that has this adapter alone.
  std::vector<int32_t> logit_slots;
  /// [num_seqs]: the length that rotations go by which depend on it; read for those alone.
  std::vector<int64_t> rotation_lengths;

  // Of a step on a GPU that has drafts; else empty. Sequences at the front that are one row's last
  // token and its drafts: AttentionOptions has both.
  std::vector<int32_t> bundle_indptr;  // [num_bundles + 1], up to num_decode
  int64_t max_bundle = 1;

  // Of a step that has a row with a list of adapters; else empty. Then they hold the adapters of
  // all tokens, as LoraBatch has pairs.
  std::vector<int32_t> pair_starts;                   // [num_tokens + 1]
  std::vector<int32_t> pair_slots;                    // [pair_starts[num_tokens]]
  std::vector<float> pair_scales;                     // [pair_starts[num_tokens]]
  int64_t max_pairs = 0;                              // of a token
  std::vector<std::span<const AdapterUse>> seq_uses;  // [num_seqs]: the list, empty: the row's slot

  [[nodiscard]] int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
  [[nodiscard]] int64_t num_seqs() const { return static_cast<int64_t>(last_page_len.size()); }
  [[nodiscard]] std::span<const AdapterUse> uses_of(int64_t seq) const {
    return seq_uses.empty() ? std::span<const AdapterUse>() : seq_uses[static_cast<size_t>(seq)];
  }
  /// Adds a token whose logits are wanted, of sequence `seq`.
  void add_logits(int32_t token, int32_t seq);
  void clear();
  /// Reserves memory for any step within the limits.
  void reserve(const StepLimits& limits);
};

/// A StepBatch as the ops read it: the same arrays in memory of the context's device.
struct StepInputs {
  TensorView token_ids;
  ConstTensorView positions, q_indptr, logit_tokens, logit_slots, sources, bundle_indptr;
  int64_t max_bundle = 1;
  LoraBatch adapters;
  PageTable pages;

  /// Bytes of `arrays` that any step within the limits takes.
  [[nodiscard]] static size_t bytes_for(const StepLimits& limits);
  /// Copies the batch to the device. The result is good until `arrays` changes. Of batches that
  /// have one token a sequence, the arrays of those with as many sequences and pairs lie at the
  /// same addresses, and `pages` seems as large as limits allow: for graphs.
  [[nodiscard]] static StepInputs copy(const ExecContext& ctx, const StepBatch& batch,
                                       StagedArrays& arrays, const StepLimits& limits,
                                       AddMore add_more = kNothingMore);
};

}  // namespace heddle::model
