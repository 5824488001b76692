#include "heddle/ops/verify.h"

#include "capi/convert.h"
#include "capi/guard.h"

using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::in_or_absent;
using heddle::capi::out;

heddle_status heddle_verify_greedy(heddle_context* context, DLTensor* output_tokens,
                                   DLTensor* num_accepted, const DLTensor* draft_tokens,
                                   const DLTensor* target_tokens, const DLTensor* draft_indptr) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::verify_greedy(ctx, out("output_tokens", output_tokens),
                          out("num_accepted", num_accepted), in("draft_tokens", draft_tokens),
                          in("target_tokens", target_tokens), in("draft_indptr", draft_indptr));
  });
}

heddle_status heddle_verify_stochastic(heddle_context* context, DLTensor* output_tokens,
                                       DLTensor* num_accepted, const DLTensor* draft_tokens,
                                       const DLTensor* draft_probs, const DLTensor* target_probs,
                                       const DLTensor* draft_indptr, const DLTensor* seed,
                                       const DLTensor* step) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::verify_stochastic(ctx, out("output_tokens", output_tokens),
                              out("num_accepted", num_accepted), in("draft_tokens", draft_tokens),
                              in_or_absent("draft_probs", draft_probs),
                              in("target_probs", target_probs), in("draft_indptr", draft_indptr),
                              in("seed", seed), in("step", step));
  });
}

heddle_status heddle_verify_tree_greedy(heddle_context* context, DLTensor* output_tokens,
                                        DLTensor* num_accepted, DLTensor* accepted_nodes,
                                        const DLTensor* draft_tokens, const DLTensor* target_tokens,
                                        const DLTensor* tree_mask, const DLTensor* node_indptr) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::verify_tree_greedy(ctx, out("output_tokens", output_tokens),
                               out("num_accepted", num_accepted),
                               out("accepted_nodes", accepted_nodes),
                               in("draft_tokens", draft_tokens), in("target_tokens", target_tokens),
                               in("tree_mask", tree_mask), in("node_indptr", node_indptr));
  });
}

heddle_status heddle_verify_tree_stochastic(heddle_context* context, DLTensor* output_tokens,
                                            DLTensor* num_accepted, DLTensor* accepted_nodes,
                                            const DLTensor* draft_tokens,
                                            const DLTensor* draft_probs,
                                            const DLTensor* target_probs, const DLTensor* tree_mask,
                                            const DLTensor* node_indptr, const DLTensor* seed,
                                            const DLTensor* step) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::verify_tree_stochastic(
        ctx, out("output_tokens", output_tokens), out("num_accepted", num_accepted),
        out("accepted_nodes", accepted_nodes), in("draft_tokens", draft_tokens),
        in_or_absent("draft_probs", draft_probs), in("target_probs", target_probs),
        in("tree_mask", tree_mask), in("node_indptr", node_indptr), in("seed", seed),
        in("step", step));
  });
}

heddle_status heddle_tree_kv_moves(heddle_context* context, DLTensor* from_positions,
                                   DLTensor* to_positions, const DLTensor* accepted_nodes,
                                   const DLTensor* num_accepted, const DLTensor* root_positions) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::tree_kv_moves(ctx, out("from_positions", from_positions),
                          out("to_positions", to_positions), in("accepted_nodes", accepted_nodes),
                          in("num_accepted", num_accepted), in("root_positions", root_positions));
  });
}
