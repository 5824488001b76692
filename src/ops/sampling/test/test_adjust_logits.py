"""heddle.ops.adjust_logits against the processors of transformers, on random logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import Framework

from heddle import ops

ROWS, VOCAB = 5, 64


def adjusted(framework: Framework, logits: Any, ids: Any, bias: dict[int, float], penalty: float) -> Any:
    """The rows of adjust_logits: ids [ROWS, n], prompt and answer in halves, and one bias for all."""
    entries = [sorted({*row.tolist(), *bias}) for row in ids]
    flat = [(r, token) for r, row in enumerate(entries) for token in row]
    rows, saved = framework.array(logits, "f32"), framework.array(np.zeros(len(flat)), "f32")
    which = [
        framework.array(np.cumsum([0, *map(len, entries)]), "i32"),
        framework.array([token for _, token in flat], "i32"),
    ]
    halves = np.split(ids, 2, axis=1)
    counts = [framework.array([(h[r] == t).sum() for r, t in flat], "i32") for h in halves]
    biases = framework.array([bias.get(t, 0.0) for _, t in flat], "f32")
    columns = (framework.array(np.full(ROWS, v), "f32") for v in (penalty, 0.0, 0.0))
    ops.adjust_logits(rows, saved, *which, *counts, biases, *columns)
    result = np.array(framework.numpy(rows))
    ops.restore_logits(rows, saved, *which)
    assert (framework.numpy(rows) == framework.numpy(framework.array(logits, "f32"))).all()
    return result


def test_repetition_is_that_of_transformers(framework: Framework, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    generation = pytest.importorskip("transformers").generation
    logits = rng.standard_normal((ROWS, VOCAB)).astype(np.float32) * 4
    ids = rng.integers(0, VOCAB, (ROWS, 20))
    for penalty in (1.3, 0.7):
        process = generation.RepetitionPenaltyLogitsProcessor(penalty)
        want = process(torch.tensor(ids), torch.tensor(logits)).numpy()
        got = adjusted(framework, logits, ids, {}, penalty)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_biases_are_those_of_transformers(framework: Framework, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    generation = pytest.importorskip("transformers").generation
    logits = rng.standard_normal((ROWS, VOCAB)).astype(np.float32)
    ids, none = torch.zeros((ROWS, 2), dtype=torch.int64), np.zeros((ROWS, 0), np.int64)
    process = generation.SequenceBiasLogitsProcessor([[[7], 2.5], [[8], -float("inf")]])
    got = adjusted(framework, logits, none, {7: 2.5, 8: -np.inf}, 1.0)
    assert (got == process(ids, torch.tensor(logits)).numpy()).all()
    # min_tokens: the tokens that end an answer are forbidden until it is long enough.
    process = generation.MinNewTokensLengthLogitsProcessor(2, 5, [1, 9], device="cpu")
    got = adjusted(framework, logits, none, {1: -np.inf, 9: -np.inf}, 1.0)
    assert (got == process(ids, torch.tensor(logits)).numpy()).all()
