"""heddle.ops.adjust_logits against transformers' processor and vLLM's formula, on random logits."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks import Framework

from heddle import ops

ROWS, VOCAB = 5, 64
Rows = list[np.ndarray]


def vllm_penalties(
    logits: np.ndarray,
    prompts: Rows,
    outputs: Rows,
    repetition: np.ndarray,
    frequency: np.ndarray,
    presence: np.ndarray,
) -> np.ndarray:
    """The formula of vLLM's apply_penalties (vllm/model_executor/layers/utils.py) in f64."""
    count = np.array([np.bincount(o, minlength=VOCAB) for o in outputs])
    seen = np.array([np.bincount(p, minlength=VOCAB) for p in prompts]) + count > 0
    factor = np.where(seen, repetition[:, None], 1.0)
    x = np.where(logits > 0, logits / factor, logits * factor)
    return x - frequency[:, None] * count - presence[:, None] * (count > 0)


def adjusted(
    framework: Framework,
    logits: np.ndarray,
    prompts: Rows,
    outputs: Rows,
    bias: list[dict[int, float]],
    columns: list[np.ndarray],
) -> np.ndarray:
    """The rows of adjust_logits; checks that restore_logits brings all bits back."""
    entries = [
        sorted({*p.tolist(), *o.tolist(), *b}) for p, o, b in zip(prompts, outputs, bias)
    ]
    flat = [(r, token) for r, row in enumerate(entries) for token in row]
    starts = np.cumsum([0, *map(len, entries)])
    rows, saved = framework.array(logits, "f32"), framework.array(np.zeros(len(flat)), "f32")
    which = [framework.array(starts, "i32"), framework.array([t for _, t in flat], "i32")]
    ops.adjust_logits(
        rows,
        saved,
        *which,
        *(framework.array([(x[r] == t).sum() for r, t in flat], "i32") for x in (prompts, outputs)),
        framework.array([bias[r].get(t, 0.0) for r, t in flat], "f32"),
        *(framework.array(column, "f32") for column in columns),
    )
    result = np.array(framework.numpy(rows))
    ops.restore_logits(rows, saved, *which)
    assert (framework.numpy(rows) == framework.numpy(framework.array(logits, "f32"))).all()
    return result


def tokens(rng: np.random.Generator, most: int) -> Rows:
    return [rng.integers(0, VOCAB, rng.integers(1, most)) for _ in range(ROWS)]


def test_penalties_are_those_of_vllm(framework: Framework, rng: np.random.Generator) -> None:
    logits = rng.standard_normal((ROWS, VOCAB)).astype(np.float32) * 4
    prompts, outputs = tokens(rng, 30), tokens(rng, 30)
    repetition, presence, frequency = (
        rng.uniform(low, high, ROWS).astype(np.float32)
        for low, high in ((0.5, 2), (-2, 2), (-2, 2))
    )
    bias = [{3: 5.0, 9: -np.inf} if r % 2 else {} for r in range(ROWS)]
    biased = logits.astype(np.float64)
    for r, row in enumerate(bias):
        for token, value in row.items():
            biased[r, token] += value
    want = vllm_penalties(biased, prompts, outputs, repetition, frequency, presence)
    columns = [repetition, presence, frequency]
    got = adjusted(framework, logits, prompts, outputs, bias, columns)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_repetition_is_that_of_transformers(framework: Framework, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    generation = pytest.importorskip("transformers").generation
    logits = rng.standard_normal((ROWS, VOCAB)).astype(np.float32) * 4
    ids, no_bias = rng.integers(0, VOCAB, (ROWS, 20)), [{} for _ in range(ROWS)]
    for penalty in (1.3, 0.7):
        process = generation.RepetitionPenaltyLogitsProcessor(penalty)
        want = process(torch.tensor(ids), torch.tensor(logits)).numpy()
        columns = [np.full(ROWS, penalty), np.zeros(ROWS), np.zeros(ROWS)]
        got = adjusted(framework, logits, list(ids[:, :12]), list(ids[:, 12:]), no_bias, columns)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_biases_are_those_of_transformers(framework: Framework, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    generation = pytest.importorskip("transformers").generation
    logits = rng.standard_normal((ROWS, VOCAB)).astype(np.float32)
    ids, none = torch.zeros((ROWS, 2), dtype=torch.int64), [np.zeros(0, np.int64)] * ROWS
    off = [np.ones(ROWS), np.zeros(ROWS), np.zeros(ROWS)]
    process = generation.SequenceBiasLogitsProcessor([[[7], 2.5], [[8], -float("inf")]])
    got = adjusted(framework, logits, none, none, [{7: 2.5, 8: -np.inf}] * ROWS, off)
    assert (got == process(ids, torch.tensor(logits)).numpy()).all()
    # min_tokens: the tokens that end an answer are forbidden until it is long enough.
    process = generation.MinNewTokensLengthLogitsProcessor(2, 5, [1, 9], device="cpu")
    got = adjusted(framework, logits, none, none, [{1: -np.inf, 9: -np.inf}] * ROWS, off)
    assert (got == process(ids, torch.tensor(logits)).numpy()).all()
