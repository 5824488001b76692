"""The next token from logits."""

from __future__ import annotations

from heddle._operation import Array, operation

__all__ = ["greedy", "sample"]


@operation(mutates=["token_ids", "logprobs"])
def sample(
    token_ids: Array,
    logprobs: Array | None,
    logits: Array,
    temperature: Array,
    top_k: Array,
    top_p: Array,
    min_p: Array,
    seed: Array,
    step: Array,
) -> None:
    """Picks one token per row: greedy, or a draw from what three filters leave.

    With p = softmax(logits / temperature), `top_k` keeps the k largest, `top_p` the shortest run of
    the largest whose sum reaches it, `min_p` those with `p >= min_p * max p`, in that order; one of
    the rest is drawn with philox4x32-10(seed, step), in descending order of p. A row depends on its
    own logits and parameters alone.

    Weights in f32, sums of more than 1024 of them in f64; `logprobs` is rounded once.

    Args:
        token_ids: [num_rows] i32|i64, written.
        logprobs: [num_rows] f32, written: log of the token's softmax(logits); or None.
        logits: [num_rows, vocab_size] f32; NaN counts as -inf.
        temperature: [num_rows] f32; 0: the largest logit, the lowest id among equals.
        top_k: [num_rows] i32; <= 0: all.
        top_p: [num_rows] f32; >= 1: all.
        min_p: [num_rows] f32; <= 0: all.
        seed: [num_rows] i64.
        step: [num_rows] i64: tokens drawn before by this request; seed and step fix the draw.

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: Holtzman et al. 2019, arXiv 1904.09751; Nguyen et al. 2024, arXiv 2407.01082.
    """


@operation(mutates=["token_ids", "logprobs"])
def greedy(token_ids: Array, logprobs: Array | None, logits: Array) -> None:
    """`token_ids[t] = argmax(logits[t])`, the lowest id among equals.

    The choice is exact; `logprobs` is computed in f64 and rounded once.

    Args:
        token_ids: [num_rows] i32|i64, written.
        logprobs: [num_rows] f32, written: log of the token's softmax(logits); or None.
        logits: [num_rows, vocab_size] f32; NaN counts as -inf.

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: `sample` with temperature 0.
    """
