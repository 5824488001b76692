#pragma once

#include <cstdint>
#include <vector>

#include "heddle/ops/kv_cache.h"

#include "core/staged_arrays.h"

namespace heddle::model {

/// The largest step that buffers are made for.
struct StepLimits {
  int64_t num_tokens = 0, num_seqs = 0, num_pages = 0, num_logit_rows = 0;
};

/// The tokens of one step, those of a sequence side by side, and where their keys and values go.
struct StepBatch {
  std::vector<int32_t> token_ids;      // [num_tokens]
  std::vector<int32_t> positions;      // [num_tokens]
  std::vector<int32_t> slot_ids;       // [num_tokens], kNoAdapter: the base model
  std::vector<int32_t> q_indptr;       // [num_seqs + 1]
  std::vector<int32_t> page_indptr;    // [num_seqs + 1]
  std::vector<int32_t> pages;          // [page_indptr[num_seqs]]
  std::vector<int32_t> last_page_len;  // [num_seqs], this step's tokens included
  std::vector<int32_t> logit_tokens;   // tokens whose logits are wanted
  std::vector<int32_t> seq_slots;   // [num_seqs], whose embedding and head, kNoAdapter: the base's
  std::vector<int32_t> logit_seqs;  // [logit_tokens.size()], the sequence of each
  /// [num_seqs]: the length that rotations go by which depend on it; read for those alone.
  std::vector<int64_t> rotation_lengths;

  [[nodiscard]] int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
  [[nodiscard]] int64_t num_seqs() const { return static_cast<int64_t>(last_page_len.size()); }
  void clear();
  /// Makes room for any step within the limits.
  void reserve(const StepLimits& limits);
};

/// A StepBatch as the ops read it: the same arrays in memory of the context's device.
struct StepInputs {
  ConstTensorView token_ids, positions, slot_ids, q_indptr, logit_tokens;
  PageTable pages;

  /// Bytes of `arrays` that any step within the limits takes.
  [[nodiscard]] static size_t bytes_for(const StepLimits& limits);
  /// Copies the batch to the device. The result is good until `arrays` changes.
  [[nodiscard]] static StepInputs copy(const ExecContext& ctx, const StepBatch& batch,
                                       StagedArrays& arrays);
};

}  // namespace heddle::model
