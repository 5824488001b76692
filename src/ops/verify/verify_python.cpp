#include "heddle/ops/verify.h"

#include "bindings/array_operation.h"

namespace heddle::python {

void bind_verify(nb::module_& m) {
  constexpr OutArray kTokens{"output_tokens"}, kAccepted{"num_accepted"}, kNodes{"accepted_nodes"};
  constexpr InArray kDrafts{"draft_tokens"}, kTargets{"target_tokens"},
      kTargetProbs{"target_probs"};
  constexpr OptionalInArray kDraftProbs{"draft_probs"};
  constexpr InArray kDraftIndptr{"draft_indptr"}, kNodeIndptr{"node_indptr"}, kMask{"tree_mask"};
  constexpr InArray kSeed{"seed"}, kStep{"step"};

  bind_arrays(m, "verify_greedy", &verify_greedy, kTokens, kAccepted, kDrafts, kTargets,
              kDraftIndptr);
  bind_arrays(m, "verify_stochastic", &verify_stochastic, kTokens, kAccepted, kDrafts, kDraftProbs,
              kTargetProbs, kDraftIndptr, kSeed, kStep);
  bind_arrays(m, "verify_tree_greedy", &verify_tree_greedy, kTokens, kAccepted, kNodes, kDrafts,
              kTargets, kMask, kNodeIndptr);
  bind_arrays(m, "verify_tree_stochastic", &verify_tree_stochastic, kTokens, kAccepted, kNodes,
              kDrafts, kDraftProbs, kTargetProbs, kMask, kNodeIndptr, kSeed, kStep);
  bind_arrays(m, "tree_kv_moves", &tree_kv_moves, OutArray{"from_positions"},
              OutArray{"to_positions"}, InArray{"accepted_nodes"}, InArray{"num_accepted"},
              InArray{"root_positions"});
}

}  // namespace heddle::python
