"""The next token from logits."""

from __future__ import annotations

from heddle._operation import Array, operation

__all__ = ["adjust_logits", "greedy", "restore_logits", "sample", "token_logprobs"]


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

    Weights in f32, rounded to multiples of 2^-44 of the largest (fewer above 131,071 tokens), sums exact;
    `logprobs` is rounded once. CPU and GPU give the same bits.

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


@operation(mutates=["logits", "saved"])
def adjust_logits(
    logits: Array,
    saved: Array | None,
    indptr: Array,
    token_ids: Array,
    prompt_counts: Array,
    output_counts: Array,
    bias: Array,
    repetition: Array,
    presence: Array,
    frequency: Array,
) -> None:
    """Penalties and biases, before tokens are picked.

    Row r has the entries `indptr[r]` up to `indptr[r + 1]`, one for each token that something is
    asked of, by ascending id; a row that asks nothing has none. For each entry, in this order:
    `x = logit + bias`; where it is in prompt or answer `x = x / repetition` if `x > 0`, else
    `x * repetition`; `x = x - frequency * output_counts`; where it is in the answer
    `x = x - presence`.

    In f64, rounded to f32 once; all other logits keep their bits.

    Args:
        logits: [num_rows, vocab_size] f32, changed in place.
        saved: [num_entries] f32, written: the logits of before; or None.
        indptr: [num_rows + 1] i32.
        token_ids: [num_entries] i32; those out of range are left out.
        prompt_counts: [num_entries] i32: how often the token is in the prompt.
        output_counts: [num_entries] i32: how often it is in the answer so far.
        bias: [num_entries] f32; -inf: the token is not drawn.
        repetition: [num_rows] f32; 1: off.
        presence: [num_rows] f32; 0: off.
        frequency: [num_rows] f32; 0: off.

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: RepetitionPenaltyLogitsProcessor of transformers; apply_penalties of vLLM.
    """


@operation(mutates=["logits"])
def restore_logits(logits: Array, saved: Array, indptr: Array, token_ids: Array) -> None:
    """`logits[r, token_ids[i]] = saved[i]` for each entry i of row r, as `adjust_logits` saved it.

    Exact: all logits have their bits of before then.

    Args:
        logits: [num_rows, vocab_size] f32, changed in place.
        saved: [num_entries] f32.
        indptr: [num_rows + 1] i32, as given to `adjust_logits`.
        token_ids: [num_entries] i32, as given to `adjust_logits`.

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: the inverse of `adjust_logits`.
    """


@operation(mutates=["logprobs", "top_ids", "top_logprobs"])
def token_logprobs(
    logprobs: Array,
    top_ids: Array | None,
    top_logprobs: Array | None,
    logits: Array,
    token_ids: Array,
) -> None:
    """`logprobs[t] = log(softmax(logits[t])[token_ids[t]])`, and the k most likely tokens.

    The very bits that `sample` gives: computed in f64 and rounded once. An id out of range has NaN.

    Args:
        logprobs: [num_rows] f32, written.
        top_ids: [num_rows, k] i32, written: tokens by falling logit, equal ones by id; or None.
        top_logprobs: [num_rows, k] f32, written: theirs; None with `top_ids`.
        logits: [num_rows, vocab_size] f32; NaN counts as -inf.
        token_ids: [num_rows] i32|i64.

    Raises:
        ValueError: Shapes that disagree, or a k that is not 1 to vocab_size.
        NotImplementedError: Another dtype or device.

    Source: the definition of the softmax.
    """
