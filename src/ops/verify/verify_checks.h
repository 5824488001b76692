#pragma once

#include "cuda/copies/host_copies.h"

#include "heddle/core/check.h"
#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

#include "core/check_kernels.h"
#include "ops/verify/verify_kernels.h"

namespace heddle {

/// The tensors that all verifications share; accepted_nodes and tree_mask are absent for chains.
struct DraftTensors {
  TensorView output_tokens, num_accepted, accepted_nodes;
  ConstTensorView tokens, tree_mask, indptr;
  const char* indptr_name;

  /// Chains of drafts, of `draft_indptr`.
  [[nodiscard]] static DraftTensors chains(const TensorView& output_tokens,
                                           const TensorView& num_accepted,
                                           const ConstTensorView& tokens,
                                           const ConstTensorView& indptr) {
    return {output_tokens, num_accepted, {}, tokens, {}, indptr, "draft_indptr"};
  }
  /// Trees of drafts, of `node_indptr`; throws where accepted_nodes or tree_mask is absent.
  [[nodiscard]] static DraftTensors trees(const char* op, const TensorView& output_tokens,
                                          const TensorView& num_accepted,
                                          const TensorView& accepted_nodes,
                                          const ConstTensorView& tokens,
                                          const ConstTensorView& tree_mask,
                                          const ConstTensorView& indptr) {
    HEDDLE_CHECK(accepted_nodes && tree_mask, op, ": ",
                 accepted_nodes ? "tree_mask" : "accepted_nodes", " is absent");
    return {output_tokens, num_accepted, accepted_nodes, tokens, tree_mask, indptr, "node_indptr"};
  }

  [[nodiscard]] DraftBatch batch() const {
    return {.indptr = cpu::IndexArray(indptr),
            .tokens = cpu::IndexArray(tokens),
            .num_seqs = num_accepted.size(0),
            .num_drafts = tokens.size(0)};
  }
  [[nodiscard]] TreeMask tree() const { return tree_mask ? TreeMask(tree_mask) : TreeMask(); }
  [[nodiscard]] VerifyOutputs outputs() const {
    return {.tokens = cpu::MutableIndexMatrix(output_tokens),
            .num_accepted = cpu::MutableIndexArray(num_accepted),
            .nodes = cpu::MutableIndexMatrix(accepted_nodes),
            .max_accepted = output_tokens.size(1) - 1};
  }
};

/// The drafts in host memory, as check_on_host brings them there; of the outputs only the shapes
/// are looked at.
template <class Host>
[[nodiscard]] DraftTensors drafts_on_host(Host& host, const DraftTensors& drafts) {
  DraftTensors result = drafts;
  result.tokens = host(drafts.tokens);
  result.tree_mask = host(drafts.tree_mask);
  result.indptr = host(drafts.indptr);
  return result;
}

/// Shapes, dtypes and devices.
void check_drafts(const ExecContext& ctx, const DraftTensors& drafts);
void check_index_vector(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                        Dim& extent);
void check_index_matrix(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                        Dim& rows, Dim& columns);

// For HEDDLE_VALIDATE; tensors lie in host memory and have passed the checks above.

/// Starts, drafts (below vocab_size), masks, and that no chain or path is longer than the outputs
/// hold.
void validate_drafts(const DraftTensors& drafts, int64_t vocab_size);
/// The target's choices: none below 0, but for rows that follow a placeholder.
void validate_target_tokens(const DraftTensors& drafts, const ConstTensorView& target_tokens);
/// Probabilities are finite and not negative, rows sum to 1 within a hundredth; rows of and after
/// placeholders may hold anything. draft_probs may be absent.
void validate_probabilities(const DraftTensors& drafts, const ConstTensorView& draft_probs,
                            const ConstTensorView& target_probs);

}  // namespace heddle
