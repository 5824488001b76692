"""Verification of drafted tokens: which of them does the target model confirm, and what follows?

Request b of B has the drafts `[indptr[b], indptr[b + 1])` of the N in the batch. The target's
results have one row more for each request: row `indptr[b] + b` follows the request's last token,
row `indptr[b] + b + 1 + i` its draft i.

A draft below 0 is a placeholder: never accepted, nor what follows it. A request's output depends on
its own drafts, rows, seed and step alone: not on the batch, the threads, the instruction set or the
run.
"""

from __future__ import annotations

from heddle._operation import Array, operation

__all__ = [
    "tree_kv_moves",
    "verify_greedy",
    "verify_stochastic",
    "verify_tree_greedy",
    "verify_tree_stochastic",
]


@operation(mutates=["output_tokens", "num_accepted"])
def verify_greedy(
    output_tokens: Array,
    num_accepted: Array,
    draft_tokens: Array,
    target_tokens: Array,
    draft_indptr: Array,
) -> None:
    """Accepts the longest run of drafts that the target chose, too, then adds what it chose next.

    Draft i of request b is accepted if all before it are and `draft_tokens[i] == target_tokens[i +
    b]`. Exact.

    Args:
        output_tokens: [B, width] i32|i64, written: accepted drafts, the target's token, then -1. A
            request's first `width - 1` drafts count.
        num_accepted: [B] i32|i64, written: accepted drafts.
        draft_tokens: [N] i32|i64.
        target_tokens: [N + B] i32|i64, the target's choice (argmax or a sample) after each
            position.
        draft_indptr: [B + 1] i32|i64, where each request's drafts begin.

    Raises:
        ValueError: Shapes that disagree; with HEDDLE_VALIDATE=1 also a wrong indptr, token or
            width.
        NotImplementedError: Another dtype or device.

    Source: Leviathan et al. 2023, arXiv 2211.17192.
    """


@operation(mutates=["output_tokens", "num_accepted"])
def verify_stochastic(
    output_tokens: Array,
    num_accepted: Array,
    draft_tokens: Array,
    draft_probs: Array | None,
    target_probs: Array,
    draft_indptr: Array,
    seed: Array,
    step: Array,
) -> None:
    """Speculative sampling: tokens are distributed as if the target alone had drawn them.

    A draft x that was drawn from q is accepted under the target's p with probability `min(1, p(x) /
    q(x))`; else a draw from `max(p - q, 0)`, normalised, replaces it and ends the run. A draw from
    p follows when all are accepted. All arithmetic is f64, each operation rounded on its own; draws
    are functions of (seed, step + place) alone (docs/ops/verify.md).

    Args:
        output_tokens: [B, width] i32|i64, written: accepted drafts, the target's token, then -1. A
            request's first `width - 1` drafts count.
        num_accepted: [B] i32|i64, written: accepted drafts.
        draft_tokens: [N] i32|i64.
        draft_probs: [N, vocab_size] f32, the q that each draft was drawn from. None: one-hot drafts
            (n-grams).
        target_probs: [N + B, vocab_size] f32, after temperature and filters.
        draft_indptr: [B + 1] i32|i64, where each request's drafts begin.
        seed: [B] i32|i64.
        step: [B] i32|i64, tokens that the request drew before; the next call's is `step +
            num_accepted + 1`.

    Raises:
        ValueError: Shapes that disagree; with HEDDLE_VALIDATE=1 also a wrong indptr or token, and
            rows that are no probabilities.
        NotImplementedError: Another dtype or device.

    Source: Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318.
    """


@operation(mutates=["output_tokens", "num_accepted", "accepted_nodes"])
def verify_tree_greedy(
    output_tokens: Array,
    num_accepted: Array,
    accepted_nodes: Array,
    draft_tokens: Array,
    target_tokens: Array,
    tree_mask: Array,
    node_indptr: Array,
) -> None:
    """Accepts the longest path of a tree that the target chose, too, then adds what it chose next.

    Drafts are the nodes of a tree under the last token; parents come before their children. Among
    paths of equal length the one whose last node is lowest is taken.

    Node i of request b is accepted if its parent p is and `draft_tokens[i] == target_tokens[p + b +
    1]`; the last token is accepted and has `p = node_indptr[b] - 1`. Exact.

    Args:
        output_tokens: [B, max_depth + 1] i32|i64, written: tokens of the path, the target's token,
            then -1.
        num_accepted: [B] i32|i64, written: nodes of the path.
        accepted_nodes: [B, max_depth] i32|i64, written: the path from the root down, counted within
            the request, then -1.
        draft_tokens: [N] i32|i64.
        target_tokens: [N + B] i32|i64, the target's choice after each position.
        tree_mask: [N, words] i32|i64: bit `j % w` of word `j // w` (w the bits of a word) is set in
            node i's row for j = i and for each ancestor j of i.
        node_indptr: [B + 1] i32|i64, where each request's nodes begin.

    Raises:
        ValueError: Shapes that disagree; with HEDDLE_VALIDATE=1 also a wrong indptr, token or
            mask.
        NotImplementedError: Another dtype or device.

    Source: Miao et al. 2024, arXiv 2305.09781.
    """


@operation(mutates=["output_tokens", "num_accepted", "accepted_nodes"])
def verify_tree_stochastic(
    output_tokens: Array,
    num_accepted: Array,
    accepted_nodes: Array,
    draft_tokens: Array,
    draft_probs: Array | None,
    target_probs: Array,
    tree_mask: Array,
    node_indptr: Array,
    seed: Array,
    step: Array,
) -> None:
    """As `verify_stochastic` down a tree: where a draft is rejected its next sibling is tried.

    A rejected sibling that was drawn from q leaves `max(w - m q, 0)` of what was left before it, w
    with the sum m. When none is left, the token is drawn from that.

    All arithmetic is f64, each operation rounded on its own.

    Args:
        output_tokens: [B, max_depth + 1] i32|i64, written: tokens of the path, the target's token,
            then -1.
        num_accepted: [B] i32|i64, written: nodes of the path.
        accepted_nodes: [B, max_depth] i32|i64, written: the path from the root down, counted within
            the request, then -1.
        draft_tokens: [N] i32|i64.
        draft_probs: [N, vocab_size] f32: what each draft was drawn from, given the siblings before
            it. None: one-hot drafts.
        target_probs: [N + B, vocab_size] f32, after temperature and filters.
        tree_mask: [N, words] i32|i64, as for `verify_tree_greedy`. The first 64 children of a node
            are tried.
        node_indptr: [B + 1] i32|i64, where each request's nodes begin.
        seed: [B] i32|i64.
        step: [B] i32|i64, tokens that the request drew before; the next call's is `step +
            num_accepted + 1`.

    Raises:
        ValueError: Shapes that disagree; with HEDDLE_VALIDATE=1 also a wrong indptr, token, mask
            or row.
        NotImplementedError: Another dtype or device.

    Source: Miao et al. 2024, arXiv 2305.09781.
    """


@operation(mutates=["from_positions", "to_positions"])
def tree_kv_moves(
    from_positions: Array,
    to_positions: Array,
    accepted_nodes: Array,
    num_accepted: Array,
    root_positions: Array,
) -> None:
    """What to move in the cache so that the accepted path of a tree has no gaps after its root.

    `from_positions[b, k] = root_positions[b] + 1 + accepted_nodes[b, k]` and `to_positions[b, k] =
    root_positions[b] + 1 + k` for `k < num_accepted[b]`, and -1 in both from there on. Moving one
    by one with k ascending overwrites nothing that is still to be read.

    Integers: exact.

    Args:
        from_positions: [B, max_depth] i32|i64, written.
        to_positions: [B, max_depth] i32|i64, written.
        accepted_nodes: [B, max_depth] i32|i64, as the tree verifications write it.
        num_accepted: [B] i32|i64.
        root_positions: [B] i32|i64: where in the sequence its root, the last token before the
            drafts, lies.

    Raises:
        ValueError: Shapes that disagree; with HEDDLE_VALIDATE=1 also paths that do not ascend.
        NotImplementedError: Another dtype or device.

    Source: heddle's own, for the trees of Miao et al. 2024, arXiv 2305.09781.
    """
