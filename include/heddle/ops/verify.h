#pragma once

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

// Verification of drafted tokens: how many of them does the target model confirm, and which token
// follows? Request b of B has the drafts [indptr[b], indptr[b + 1]) of the N in the batch, any
// number and none too; i counts within a request. The target ran once over its last token and all
// of its drafts, so its results have one row more for each request: row
//   indptr[b] + b          follows the last token, and row
//   indptr[b] + b + 1 + i  follows draft i.
// Output of every function here:
//   output_tokens [B, width]  i32|i64: the accepted drafts in order, then the one token that the
//     target adds, then -1
//   num_accepted  [B]         i32|i64: accepted drafts; the request goes on with num_accepted + 1
//     tokens
// Index tensors are i32 or i64 in any mixture, strides are honoured (last axis: unit stride), no
// output may overlap another tensor. A draft below 0 (or past the vocabulary, where that is known)
// is a placeholder: it is never accepted, and nothing that follows it either. width >= 1; drafts of
// which output_tokens could not hold the successor are left out of account.
// A request's output depends on its own drafts, rows, seed and step alone: not on the batch, the
// threads, the instruction set or the run. Empty batches are legal; no workspace is needed; nothing
// on the device is read by the host.
// With HEDDLE_VALIDATE=1 (heddle/core/validate.h) a wrong indptr, token, probability, mask, step or
// position raises with row and value.

/// Accepts the longest run of drafts that are what the target chose, then adds what it chose next.
///   draft_tokens [N]; target_tokens [N + B]: argmax (or a sample) of the target after each
///   position; draft_indptr [B + 1]
/// Draft i is accepted if all before it are and draft i == target_tokens[draft_indptr[b] + b + i].
void verify_greedy(const ExecContext& ctx, TensorView output_tokens, TensorView num_accepted,
                   ConstTensorView draft_tokens, ConstTensorView target_tokens,
                   ConstTensorView draft_indptr);

/// Speculative sampling: what comes out is distributed as if the target alone had drawn each token.
/// With p = the row of target_probs that a draft x is judged by, and q = the row of draft_probs
/// that it was drawn from:
///   accept   x if u * q(x) < p(x), that is with probability min(1, p(x) / q(x)); else
///   replace  it by a draw from max(p - q, 0), normalised, and stop; where that is 0 throughout, by
///     a draw from p.
///   A draw from p follows when all are accepted, and replaces a placeholder.
/// draft_tokens [N]; draft_probs [N, vocab_size] f32, or absent: q(x) = 1, as for drafts from a
/// table of n-grams;
/// target_probs [N + B, vocab_size] f32, after temperature and filters; rows sum to 1 (draws divide
/// by the sum, the test for acceptance does not); draft_indptr [B + 1]; seed, step [B] as for
/// `sample`: step counts the tokens that the request drew before, so the next call's is step +
/// num_accepted + 1.
/// The decision on draft i takes u = philox4x32-10 with key seed and counter (step + i, 1, 0), the
/// replacement or added token at place i the one of counter (step + i, 2, 0); `sample` has (step,
/// 0, 0). Words and order: docs/ops/verify.md.
/// A draw is the first token, ids ascending, whose running sum exceeds u times the total. NaN
/// counts as 0, and a row without any mass gives token 0. All arithmetic is f64 without fused
/// operations, sums have one fixed order.
/// Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318.
void verify_stochastic(const ExecContext& ctx, TensorView output_tokens, TensorView num_accepted,
                       ConstTensorView draft_tokens, ConstTensorView draft_probs,
                       ConstTensorView target_probs, ConstTensorView draft_indptr,
                       ConstTensorView seed, ConstTensorView step);

// Trees of drafts. A request's drafts are the nodes of a tree under its last token, the root, which
// is no node; parents come before their children. tree_mask [N, words] i32|i64 says who precedes
// whom: bit j of node i's row (bit j % w of word j / w, w = 32 or 64) is set for j = i and for each
// ancestor j of i. The parent of node i is therefore the highest j < i whose bit is set, and the
// root where there is none; bits from i on are not looked at, nor words that a row lacks.
//   accepted_nodes [B, max_depth] i32|i64: the accepted path from the root down, then -1. Here
//   width = max_depth + 1.
// Node i of a request that starts at position s (its root's) lies at s + 1 + i in the cache until
// `tree_kv_moves`.

/// Accepts the longest path of nodes that are what the target chose after their parents, then adds
/// what it chose next.
///   draft_tokens [N]; target_tokens [N + B]; tree_mask [N, words]; node_indptr [B + 1]
/// Among paths of equal length (equal siblings) the one whose last node is lowest.
void verify_tree_greedy(const ExecContext& ctx, TensorView output_tokens, TensorView num_accepted,
                        TensorView accepted_nodes, ConstTensorView draft_tokens,
                        ConstTensorView target_tokens, ConstTensorView tree_mask,
                        ConstTensorView node_indptr);

/// Speculative sampling down a tree: as verify_stochastic, but where a draft is rejected its next
/// sibling is tried. From the root on, with w = p the target's row after the node reached, m = 1,
/// and its children x_0, x_1, ... in ascending order:
///   accept   x_k if u * m * q_k(x_k) < w(x_k), and go on there; else
///   reject   it: w <- max(w - m q_k, 0), m <- sum of w.
///   When no child is left: a draw from w, or from p where w is 0 throughout.
/// Right for children drawn from their rows of draft_probs one by one, each row given the siblings
/// before it (without replacement, say), and without draft_probs for any children. Only the first
/// 64 children of a node are tried. The decision on x_k takes the counter (step + depth, 1, k), the
/// draw (step + depth, 2, 0), depth = nodes accepted so far: a chain gives the same tokens here as
/// in verify_stochastic.
/// Miao et al. 2024, arXiv 2305.09781 (multi-step speculative sampling).
void verify_tree_stochastic(const ExecContext& ctx, TensorView output_tokens,
                            TensorView num_accepted, TensorView accepted_nodes,
                            ConstTensorView draft_tokens, ConstTensorView draft_probs,
                            ConstTensorView target_probs, ConstTensorView tree_mask,
                            ConstTensorView node_indptr, ConstTensorView seed,
                            ConstTensorView step);

/// What to move in the cache after a tree was verified, so that the accepted path lies without gaps
/// after its root:
///   from_positions[b, k] = root_positions[b] + 1 + accepted_nodes[b, k], to_positions[b, k] =
///   root_positions[b] + 1 + k
/// for k < num_accepted[b], and -1 in both from there on.
///   from_positions, to_positions, accepted_nodes [B, max_depth]; num_accepted, root_positions [B];
///   all i32|i64
/// to <= from, and both ascend with k: moving one by one in that order overwrites nothing that is
/// still to be read.
void tree_kv_moves(const ExecContext& ctx, TensorView from_positions, TensorView to_positions,
                   ConstTensorView accepted_nodes, ConstTensorView num_accepted,
                   ConstTensorView root_positions);

}  // namespace heddle
