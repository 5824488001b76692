#include <vector>

#include "heddle/c_api.h"
#include "heddle/ops/sampling.h"
#include "heddle/ops/verify.h"

#include "capi/test/rows/rows.h"

namespace heddle::testing {

std::vector<Row> sampling_rows() {
  const auto logits = in<float>("logits", {4, 50});
  const auto ids = out<int32_t>("token_ids", {4});
  const auto logprobs = out<float>("logprobs", {4});
  const auto table = fields<heddle_sampling_table, SamplingTable>(
      in<float>("temperature", {4}, {0.0f, 1.0f, 0.7f, 2.0f}),
      in<int32_t>("top_k", {4}, {0, 10, 0, 40}), in<float>("top_p", {4}, {1.0f, 0.9f, 0.8f, 1.0f}),
      in<float>("min_p", {4}, {0.0f, 0.0f, 0.1f, 0.0f}), in<int64_t>("seed", {4}, {1, 2, 3, 4}),
      in<int64_t>("step", {4}, {0, 1, 2, 3}));
  const auto indptr = in<int32_t>("indptr", {5}, {0, 1, 1, 2, 3}),
             changed = in<int32_t>("token_ids", {3}, {7, 0, 49});
  return {
      row("sample", heddle_sample, sample, ids, logprobs.optional(), logits, table)
          .refuses<3>("table is NULL", nullptr),
      row("greedy", heddle_greedy, greedy, ids, logprobs.optional(), logits),
      row("token_logprobs", heddle_token_logprobs, token_logprobs, logprobs,
          out<int32_t>("top_ids", {4, 3}).optional(), out<float>("top_logprobs", {4, 3}).optional(),
          logits, in<int32_t>("token_ids", {4}, {0, 49, 7, 3})),
      row("adjust_logits", heddle_adjust_logits, adjust_logits, in_place<float>("logits", {4, 50}),
          out<float>("saved", {3}).optional(),
          fields<heddle_logit_adjustments, LogitAdjustments>(
              indptr, changed, in<int32_t>("prompt_counts", {3}, {1, 0, 2}),
              in<int32_t>("output_counts", {3}, {0, 3, 1}),
              in<float>("bias", {3}, {0.0f, 1.0f, -2.0f}),
              in<float>("repetition", {4}, {1.5f, 1.0f, 1.0f, 0.8f}),
              in<float>("presence", {4}, {0.5f, 0.0f, 0.5f, 0.25f}),
              in<float>("frequency", {4}, {0.0f, 1.0f, 0.5f, 0.25f}))),
      row("restore_logits", heddle_restore_logits, restore_logits,
          in_place<float>("logits", {4, 50}), in<float>("saved", {3}),
          fields<heddle_logit_adjustments, LogitAdjustments>(
              indptr, changed, absent(), absent(), absent(), absent(), absent(), absent()))};
}

/// Two requests: drafts 1, 2 one after the other, and draft 0. The target is certain of 1, 2, 0 and
/// of 2, 1.
std::vector<Row> verify_rows() {
  const auto tokens = out<int32_t>("output_tokens", {2, 3}),
             count = out<int32_t>("num_accepted", {2}),
             nodes = out<int32_t>("accepted_nodes", {2, 2}),
             drafts = in<int32_t>("draft_tokens", {3}, {1, 2, 0}),
             targets = in<int32_t>("target_tokens", {5}, {1, 2, 0, 2, 1}),
             indptr = in<int32_t>("draft_indptr", {3}, {0, 2, 3}),
             node_indptr = in<int32_t>("node_indptr", {3}, {0, 2, 3}),
             mask = in<int32_t>("tree_mask", {3, 1}, {1, 3, 1});
  const auto p = in<float>("target_probs", {5, 3}, {0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0}),
             q = in<float>("draft_probs", {3, 3}, {0, 0.5f, 0.5f, 0.5f, 0, 0.5f, 1, 0, 0})
                     .optional();
  const auto seed = in<int64_t>("seed", {2}, {5, 6}), step = in<int64_t>("step", {2}, {0, 0});
  return {
      row("verify_greedy", heddle_verify_greedy, verify_greedy, tokens, count, drafts, targets,
          indptr)
          .refuses_call("target_tokens.size(0) is 3, expected",
                        [](auto* context, auto* to, auto* num, auto* draft, auto*, auto* starts) {
                          return heddle_verify_greedy(context, to, num, draft, draft, starts);
                        }),
      row("verify_stochastic", heddle_verify_stochastic, verify_stochastic, tokens, count, drafts,
          q, p, indptr, seed, step),
      row("verify_tree_greedy", heddle_verify_tree_greedy, verify_tree_greedy, tokens, count, nodes,
          drafts, targets, mask, node_indptr),
      row("verify_tree_stochastic", heddle_verify_tree_stochastic, verify_tree_stochastic, tokens,
          count, nodes, drafts, q, p, mask, node_indptr, seed, step),
      row("tree_kv_moves", heddle_tree_kv_moves, tree_kv_moves,
          out<int32_t>("from_positions", {2, 2}), out<int32_t>("to_positions", {2, 2}),
          in<int32_t>("accepted_nodes", {2, 2}, {0, 1, -1, -1}),
          in<int32_t>("num_accepted", {2}, {2, 0}), in<int64_t>("root_positions", {2}, {10, 20}))};
}

}  // namespace heddle::testing
