"""heddle.ops: verification of drafts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frameworks import INTEGERS, Framework

from heddle import ops

VOCAB = 6


class Batch:
    """Requests with 0 to 4 drafts each, as NumPy arrays."""

    def __init__(self, rng: np.random.Generator, num_seqs: int, *, is_tree: bool) -> None:
        lengths = rng.integers(0, 5, num_seqs)
        self.num_seqs, self.max_drafts = num_seqs, 4
        self.indptr = np.concatenate([[0], np.cumsum(lengths)])
        num_drafts = int(self.indptr[-1])
        self.drafts = rng.integers(-1, VOCAB, num_drafts)
        self.targets = rng.integers(0, VOCAB, num_drafts + num_seqs)
        self.parents = [
            int(rng.integers(-1, i)) if is_tree else i - 1 for n in lengths for i in range(n)
        ]
        for seq in range(num_seqs):  # the target confirms every second draft
            for i in range(lengths[seq]):
                at = self.indptr[seq] + i
                if self.drafts[at] >= 0 and rng.random() < 0.5:
                    self.targets[self.row(seq, self.parents[at])] = self.drafts[at]
        self.p = rng.dirichlet(np.ones(VOCAB), num_drafts + num_seqs)
        self.q = rng.dirichlet(np.ones(VOCAB), num_drafts)
        self.seed, self.step = (
            rng.integers(-(2**62), 2**62, num_seqs),
            rng.integers(0, 1000, num_seqs),
        )

    def row(self, seq: int, node: int) -> int:
        """The target's row after a node of a request, -1 for its root."""
        return int(self.indptr[seq]) + seq + 1 + node

    def path(self, seq: int, node: int) -> list[int]:
        """The nodes from the root down to `node`."""
        above = self.parents[int(self.indptr[seq]) + node]
        return [*(self.path(seq, above) if above >= 0 else []), node]

    def masks(self) -> Any:
        """[N, 1]: the bits of each node's path."""
        paths = [
            self.path(s, i)
            for s in range(self.num_seqs)
            for i in range(self.indptr[s + 1] - self.indptr[s])
        ]
        return np.array([sum(1 << j for j in path) for path in paths], np.int64).reshape(-1, 1)

    def best_path(self, seq: int) -> list[int]:
        """The longest path that the target confirms."""
        begin, best = int(self.indptr[seq]), []
        for node in range(int(self.indptr[seq + 1]) - begin):
            path = self.path(seq, node)
            above = [self.parents[begin + i] for i in path]
            confirmed = all(
                self.drafts[begin + i] == self.targets[self.row(seq, up)]
                for i, up in zip(path, above, strict=True)
            )
            if confirmed and len(path) > len(best):
                best = path
        return best


def padded(rows: list[list[int]], width: int) -> Any:
    """The rows as a matrix, then -1."""
    return np.array([[*row, *[-1] * (width - len(row))] for row in rows], np.int64).reshape(
        -1, width
    )


class Outputs:
    """Outputs that begin as 99."""

    def __init__(self, framework: Framework, batch: Batch, dtype: str) -> None:
        self.framework = framework
        self.tokens = framework.array(np.full((batch.num_seqs, batch.max_drafts + 1), 99), dtype)
        self.count = framework.array(np.full(batch.num_seqs, 99), dtype)
        self.nodes = framework.array(np.full((batch.num_seqs, batch.max_drafts), 99), dtype)

    def numpy(self) -> tuple[Any, Any, Any]:
        """Tokens, counts and nodes."""
        return (
            self.framework.numpy(self.tokens),
            self.framework.numpy(self.count),
            self.framework.numpy(self.nodes),
        )


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("other", INTEGERS)
@pytest.mark.parametrize("is_tree", [False, True])
def test_greedy(
    framework: Framework, rng: np.random.Generator, dtype: str, other: str, is_tree: bool
) -> None:
    batch = Batch(rng, 50, is_tree=is_tree)
    out = Outputs(framework, batch, dtype)
    drafts, indptr = framework.array(batch.drafts, other), framework.array(batch.indptr, dtype)
    targets, masks = framework.array(batch.targets, dtype), framework.array(batch.masks(), other)
    if is_tree:
        assert (
            ops.verify_tree_greedy(out.tokens, out.count, out.nodes, drafts, targets, masks, indptr)
            is None
        )
    else:
        assert (
            ops.verify_greedy(out.tokens, out.count, drafts, targets, draft_indptr=indptr) is None
        )
    paths = [batch.best_path(seq) for seq in range(batch.num_seqs)]
    texts = []
    for seq, path in enumerate(paths):
        accepted = [int(batch.drafts[batch.indptr[seq] + i]) for i in path]
        texts.append([*accepted, int(batch.targets[batch.row(seq, path[-1] if path else -1)])])
    tokens, count, nodes = out.numpy()
    np.testing.assert_array_equal(tokens, padded(texts, batch.max_drafts + 1))
    np.testing.assert_array_equal(count, [len(path) for path in paths])
    np.testing.assert_array_equal(nodes, padded(paths, batch.max_drafts) if is_tree else 99)
    if is_tree:
        start = framework.array(np.full_like(out.numpy()[2], 0), other)
        end = framework.array(np.full_like(out.numpy()[2], 0), dtype)
        roots = framework.array(np.arange(batch.num_seqs) * 10, other)
        ops.tree_kv_moves(start, end, out.nodes, out.count, roots)
        first = np.arange(batch.num_seqs)[:, None] * 10 + 1
        start_want = np.where(nodes >= 0, first + nodes, -1)
        end_want = np.where(nodes >= 0, first + np.arange(4), -1)
        np.testing.assert_array_equal(framework.numpy(start), start_want)
        np.testing.assert_array_equal(framework.numpy(end), end_want)


def verifier(framework: Framework, *, is_tree: bool, use_q: bool) -> Callable[[Batch], Outputs]:
    """Calls the stochastic operation on a batch."""

    def verify(batch: Batch) -> Outputs:
        out = Outputs(framework, batch, "i64")
        drafts, indptr = framework.array(batch.drafts, "i32"), framework.array(batch.indptr, "i32")
        q = framework.array(batch.q, "f32") if use_q else None
        p = framework.array(batch.p, "f32")
        seed, step = framework.array(batch.seed, "i64"), framework.array(batch.step, "i32")
        if is_tree:
            masks = framework.array(batch.masks(), "i64")
            ops.verify_tree_stochastic(
                out.tokens, out.count, out.nodes, drafts, q, p, masks, indptr, seed, step
            )
        else:
            ops.verify_stochastic(out.tokens, out.count, drafts, q, p, indptr, seed, step)
        return out

    return verify


@pytest.mark.parametrize("is_tree", [False, True])
@pytest.mark.parametrize("use_q", [False, True])
def test_the_first_token_is_distributed_as_the_target(
    framework: Framework, rng: np.random.Generator, is_tree: bool, use_q: bool
) -> None:
    batch = Batch(rng, 20000, is_tree=is_tree)
    p, q = np.array([0.3, 0.25, 0.0, 0.2, 0.15, 0.1]), np.array([0.1, 0.2, 0.3, 0.2, 0.1, 0.1])
    batch.p[:], batch.q[:] = p, q
    batch.drafts = rng.choice(VOCAB, batch.drafts.size, p=q)
    tokens, count, _ = verifier(framework, is_tree=is_tree, use_q=use_q)(batch).numpy()
    seen = np.bincount(tokens[:, 0], minlength=VOCAB)
    expected = p * batch.num_seqs
    assert seen[2] == 0
    # Exceeded by chance in fewer than one of 1e9 runs (4 degrees of freedom).
    assert (((seen - expected) ** 2)[expected > 0] / expected[expected > 0]).sum() < 50
    assert 0 < count.mean() < 4
    width = np.arange(batch.max_drafts + 1)
    np.testing.assert_array_equal(tokens == -1, width > count[:, None])


@pytest.mark.parametrize("is_tree", [False, True])
def test_a_request_alone_draws_the_same(
    framework: Framework, rng: np.random.Generator, is_tree: bool
) -> None:
    batch = Batch(rng, 12, is_tree=is_tree)
    verify = verifier(framework, is_tree=is_tree, use_q=True)
    tokens, count, _ = verify(batch).numpy()
    for seq in range(batch.num_seqs):
        one = Batch(rng, 1, is_tree=is_tree)
        drafts = slice(int(batch.indptr[seq]), int(batch.indptr[seq + 1]))
        rows = slice(batch.row(seq, -1), batch.row(seq, -1) + drafts.stop - drafts.start + 1)
        one.indptr = np.array([0, drafts.stop - drafts.start])
        one.drafts, one.parents, one.q = (
            batch.drafts[drafts],
            batch.parents[drafts],
            batch.q[drafts],
        )
        one.p, one.seed, one.step = (
            batch.p[rows],
            batch.seed[seq : seq + 1],
            batch.step[seq : seq + 1],
        )
        alone, alone_count, _ = verify(one).numpy()
        np.testing.assert_array_equal(alone[0], tokens[seq])
        assert alone_count[0] == count[seq]


def test_an_empty_batch(framework: Framework, rng: np.random.Generator) -> None:
    for is_tree in (False, True):
        verifier(framework, is_tree=is_tree, use_q=True)(Batch(rng, 0, is_tree=is_tree))


def test_wrong_calls_name_tensor_axis_and_both_values(
    framework: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ints(*values: int) -> Any:
        return framework.array(np.array(values), "i32")

    tokens, count = framework.array(np.zeros((1, 3)), "i64"), ints(0)
    with pytest.raises(ValueError, match=r"target_tokens.size\(0\) is 2, expected num_drafts"):
        ops.verify_greedy(tokens, count, ints(1, 2), ints(1, 2), ints(0, 2))
    p = framework.array(np.full((3, 4), 0.5), "f32")
    with pytest.raises(NotImplementedError, match="seed is f32, supported: i32, i64"):
        ops.verify_stochastic(tokens, count, ints(1, 2), None, p, ints(0, 2), p[0, :1], ints(0))
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match=r"target_probs\[0\] sums to 2, expected 1"):
        ops.verify_stochastic(tokens, count, ints(1, 2), None, p, ints(0, 2), ints(0), ints(0))
    with pytest.raises(ValueError, match=r"tree_mask\[1, 0\] is 0x1, expected 0x3"):
        ops.verify_tree_greedy(
            tokens,
            count,
            framework.array(np.zeros((1, 2)), "i64"),
            ints(1, 2),
            ints(1, 2, 3),
            framework.array(np.array([[1], [1]]), "i32"),
            ints(0, 2),
        )
