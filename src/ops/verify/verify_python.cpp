#include "heddle/ops/verify.h"

#include "bindings/call.h"

namespace heddle::python {

using namespace nb::literals;

namespace {

void bind_chains(nb::module_& m) {
  m.def(
      "verify_greedy",
      [](nb::handle output_tokens, nb::handle num_accepted, nb::handle draft_tokens,
         nb::handle target_tokens, nb::handle draft_indptr) {
        Call call;
        const TensorView tokens = call.out("output_tokens", output_tokens);
        const TensorView accepted = call.out("num_accepted", num_accepted);
        const ConstTensorView drafts = call.in("draft_tokens", draft_tokens);
        const ConstTensorView targets = call.in("target_tokens", target_tokens);
        const ConstTensorView indptr = call.in("draft_indptr", draft_indptr);
        call.run([&](const ExecContext& ctx) {
          verify_greedy(ctx, tokens, accepted, drafts, targets, indptr);
        });
      },
      "output_tokens"_a, "num_accepted"_a, "draft_tokens"_a, "target_tokens"_a, "draft_indptr"_a);

  m.def(
      "verify_stochastic",
      [](nb::handle output_tokens, nb::handle num_accepted, nb::handle draft_tokens,
         nb::handle draft_probs, nb::handle target_probs, nb::handle draft_indptr, nb::handle seed,
         nb::handle step) {
        Call call;
        const TensorView tokens = call.out("output_tokens", output_tokens);
        const TensorView accepted = call.out("num_accepted", num_accepted);
        const ConstTensorView drafts = call.in("draft_tokens", draft_tokens);
        const ConstTensorView q = call.optional_in("draft_probs", draft_probs);
        const ConstTensorView p = call.in("target_probs", target_probs);
        const ConstTensorView indptr = call.in("draft_indptr", draft_indptr);
        const ConstTensorView seeds = call.in("seed", seed), steps = call.in("step", step);
        call.run([&](const ExecContext& ctx) {
          verify_stochastic(ctx, tokens, accepted, drafts, q, p, indptr, seeds, steps);
        });
      },
      "output_tokens"_a, "num_accepted"_a, "draft_tokens"_a, "draft_probs"_a.none(),
      "target_probs"_a, "draft_indptr"_a, "seed"_a, "step"_a);
}

void bind_trees(nb::module_& m) {
  m.def(
      "verify_tree_greedy",
      [](nb::handle output_tokens, nb::handle num_accepted, nb::handle accepted_nodes,
         nb::handle draft_tokens, nb::handle target_tokens, nb::handle tree_mask,
         nb::handle node_indptr) {
        Call call;
        const TensorView tokens = call.out("output_tokens", output_tokens);
        const TensorView accepted = call.out("num_accepted", num_accepted);
        const TensorView nodes = call.out("accepted_nodes", accepted_nodes);
        const ConstTensorView drafts = call.in("draft_tokens", draft_tokens);
        const ConstTensorView targets = call.in("target_tokens", target_tokens);
        const ConstTensorView mask = call.in("tree_mask", tree_mask);
        const ConstTensorView indptr = call.in("node_indptr", node_indptr);
        call.run([&](const ExecContext& ctx) {
          verify_tree_greedy(ctx, tokens, accepted, nodes, drafts, targets, mask, indptr);
        });
      },
      "output_tokens"_a, "num_accepted"_a, "accepted_nodes"_a, "draft_tokens"_a, "target_tokens"_a,
      "tree_mask"_a, "node_indptr"_a);

  m.def(
      "verify_tree_stochastic",
      [](nb::handle output_tokens, nb::handle num_accepted, nb::handle accepted_nodes,
         nb::handle draft_tokens, nb::handle draft_probs, nb::handle target_probs,
         nb::handle tree_mask, nb::handle node_indptr, nb::handle seed, nb::handle step) {
        Call call;
        const TensorView tokens = call.out("output_tokens", output_tokens);
        const TensorView accepted = call.out("num_accepted", num_accepted);
        const TensorView nodes = call.out("accepted_nodes", accepted_nodes);
        const ConstTensorView drafts = call.in("draft_tokens", draft_tokens);
        const ConstTensorView q = call.optional_in("draft_probs", draft_probs);
        const ConstTensorView p = call.in("target_probs", target_probs);
        const ConstTensorView mask = call.in("tree_mask", tree_mask);
        const ConstTensorView indptr = call.in("node_indptr", node_indptr);
        const ConstTensorView seeds = call.in("seed", seed), steps = call.in("step", step);
        call.run([&](const ExecContext& ctx) {
          verify_tree_stochastic(ctx, tokens, accepted, nodes, drafts, q, p, mask, indptr, seeds,
                                 steps);
        });
      },
      "output_tokens"_a, "num_accepted"_a, "accepted_nodes"_a, "draft_tokens"_a,
      "draft_probs"_a.none(), "target_probs"_a, "tree_mask"_a, "node_indptr"_a, "seed"_a, "step"_a);

  m.def(
      "tree_kv_moves",
      [](nb::handle from_positions, nb::handle to_positions, nb::handle accepted_nodes,
         nb::handle num_accepted, nb::handle root_positions) {
        Call call;
        const TensorView from = call.out("from_positions", from_positions);
        const TensorView to = call.out("to_positions", to_positions);
        const ConstTensorView nodes = call.in("accepted_nodes", accepted_nodes);
        const ConstTensorView accepted = call.in("num_accepted", num_accepted);
        const ConstTensorView roots = call.in("root_positions", root_positions);
        call.run(
            [&](const ExecContext& ctx) { tree_kv_moves(ctx, from, to, nodes, accepted, roots); });
      },
      "from_positions"_a, "to_positions"_a, "accepted_nodes"_a, "num_accepted"_a,
      "root_positions"_a);
}

}  // namespace

void bind_verify(nb::module_& m) {
  bind_chains(m);
  bind_trees(m);
}

}  // namespace heddle::python
