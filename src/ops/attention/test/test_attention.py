"""heddle.ops.batch_prefill, batch_decode, merge_states, kv_init, kv_append, rope_kv_append."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import FLOATS, Framework, assert_close

from heddle import AttentionOptions, PagedKv, PageTable, ops

PAGE, KV_HEADS, HEAD_DIM = 4, 2, 8


def attention(
    q: Any,
    k: Any,
    v: Any,
    positions: Any,
    scale: float,
    window: int = -1,
    cap: float = 0.0,
    tree: Any = None,
) -> Any:
    """Outputs and log-sums of q [tokens, heads, dim] over k, v [keys, kv_heads, dim], in double.

    tree [tokens, tokens]: which of the last keys each token sees, instead of causality.
    """
    group = q.shape[1] // k.shape[1]
    s = np.einsum("thd,jhd->thj", q, np.repeat(k, group, 1)) * scale
    if cap > 0:
        s = cap * np.tanh(s / cap)
    keys = np.arange(len(k))
    visible = keys <= positions[:, None]
    if tree is not None:
        visible[:] = True
        visible[:, len(k) - len(tree) :] = tree
    if window >= 0:
        visible &= keys >= positions[:, None] - window
    s = np.where(visible[:, None], s, -np.inf)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True)
    return np.einsum("thj,jhd->thd", p / total, np.repeat(v, group, 1)), (top + np.log(total))[
        ..., 0
    ]


def rotated(x: Any, positions: Any, theta: float) -> Any:
    """Rotate-half form, all of a head."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


class Batch:
    """Sequences of several lengths, their keys and values, and the pages that hold them."""

    def __init__(
        self, framework: Framework, rng: np.random.Generator, dtype: str, ids: str = "i32"
    ) -> None:
        self.lengths = [7, 1, 0, 12]
        self.keys = [
            framework.numpy(framework.array(rng.standard_normal((n, KV_HEADS, HEAD_DIM)), dtype))
            for n in self.lengths
        ]
        self.values = [
            framework.numpy(framework.array(rng.standard_normal((n, KV_HEADS, HEAD_DIM)), dtype))
            for n in self.lengths
        ]
        counts = [-(-n // PAGE) for n in self.lengths]
        order = rng.permutation(sum(counts) + 2)[: sum(counts)]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        self.k_pages, self.v_pages = np.full((2, sum(counts) + 2, KV_HEADS, PAGE, HEAD_DIM), np.nan)
        for i, n in enumerate(self.lengths):
            for j in range(n):
                place = (order[indptr[i] + j // PAGE], slice(None), j % PAGE)
                self.k_pages[place], self.v_pages[place] = self.keys[i][j], self.values[i][j]
        last = [n - (c - 1) * PAGE if c else 0 for n, c in zip(self.lengths, counts, strict=True)]
        self.table = PageTable(
            framework.array(indptr, ids),
            framework.array(order, "i32"),
            framework.array(last, "i64"),
        )
        self.pool = [framework.array(self.k_pages, dtype), framework.array(self.v_pages, dtype)]
        self.cache = PagedKv.from_pool(*self.pool)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("window", "cap"), [(-1, 0.0), (2, 5.0)])
def test_batch_prefill(
    framework: Framework, rng: np.random.Generator, dtype: str, window: int, cap: float
) -> None:
    batch = Batch(framework, rng, dtype)
    new = [3, 1, 0, 12]
    indptr = np.concatenate([[0], np.cumsum(new)])
    q = framework.array(rng.standard_normal((16, 4, HEAD_DIM)), dtype)
    o, lse = (
        framework.array(np.full((16, 4, HEAD_DIM), np.nan), dtype),
        framework.array(np.zeros((16, 4)), "f32"),
    )
    options = AttentionOptions(sm_scale=0.3, window_left=window, logits_soft_cap=cap)
    starts = framework.array(indptr, "i32")
    ops.batch_prefill(o, lse, q, starts, batch.cache, batch.table, options)
    for i, n in enumerate(batch.lengths):
        rows = slice(indptr[i], indptr[i + 1])
        if new[i] == 0:
            continue
        positions = np.arange(n - new[i], n)
        want, want_lse = attention(
            framework.numpy(q)[rows], batch.keys[i], batch.values[i], positions, 0.3, window, cap
        )
        assert_close(framework.numpy(o)[rows], want, dtype, terms=100)
        assert_close(framework.numpy(lse)[rows], want_lse, "f32", terms=100)


def test_a_tree_mask_replaces_causality(framework: Framework, rng: np.random.Generator) -> None:
    batch = Batch(framework, rng, "f32")
    new = [3, 1, 0, 7]
    starts = np.concatenate([[0], np.cumsum(new)])
    # The last sequence: token 0, after it two branches of three tokens that do not see each other.
    tree = np.zeros((7, 7), bool)
    for branch in ([1, 2, 3], [4, 5, 6]):
        for depth, token in enumerate(branch):
            tree[token, [0, *branch[: depth + 1]]] = True
    tree[0, 0] = True
    words = (tree * (1 << np.arange(7))).sum(-1)
    q = framework.array(rng.standard_normal((11, 4, HEAD_DIM)), "f32")
    o = framework.array(np.full((11, 4, HEAD_DIM), np.nan), "f32")
    masks = AttentionOptions(
        tree_mask=framework.array(words, "i32"),
        tree_mask_indptr=framework.array([0, 0, 0, 0, 7], "i64"),
    )
    begins = framework.array(starts, "i32")
    ops.batch_prefill(o, None, q, begins, batch.cache, batch.table, masks)
    for i, n in enumerate(batch.lengths):
        if new[i] == 0:
            continue
        rows = slice(starts[i], starts[i + 1])
        want, _ = attention(
            framework.numpy(q)[rows],
            batch.keys[i],
            batch.values[i],
            np.arange(n - new[i], n),
            HEAD_DIM**-0.5,
            tree=tree if i == 3 else None,
        )
        assert_close(framework.numpy(o)[rows], want, "f32", terms=100)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("with_positions", [False, True])
def test_rope_and_append_in_one_call(
    framework: Framework, rng: np.random.Generator, dtype: str, with_positions: bool
) -> None:
    one, other = Batch(framework, rng, dtype), Batch(framework, rng, dtype)
    other.table = one.table
    for of_one, of_other in zip(one.pool, other.pool, strict=True):
        of_other[:] = of_one
    starts = framework.array([0, 2, 3, 3, 8], "i32")
    places = np.array([5, 6, 0, 7, 8, 9, 10, 11])
    positions = framework.array(places + 40 if with_positions else places, "i64")
    q, k, v = (framework.array(rng.standard_normal((8, h, HEAD_DIM)), dtype) for h in (4, 2, 2))
    q2, k2 = (framework.array(framework.numpy(x), dtype) for x in (q, k))
    told = positions if with_positions else None
    ops.rope_kv_append(q, one.cache, one.table, k, v, starts, told, theta=500.0)
    for x in (q2, k2):
        ops.rope(x, positions=positions, theta=500.0)
    ops.kv_init(other.cache, other.table, k2, v, starts)
    for got, want in [(q, q2), *zip(one.pool, other.pool, strict=True)]:
        np.testing.assert_array_equal(framework.numpy(got), framework.numpy(want))


@pytest.mark.parametrize("ids", ["i32", "i64"])
def test_batch_decode_with_rope_inside(
    framework: Framework, rng: np.random.Generator, ids: str
) -> None:
    batch = Batch(framework, rng, "f32", ids)
    q = framework.array(rng.standard_normal((4, 2, HEAD_DIM)), "f32")
    o = framework.array(np.full((4, 2, HEAD_DIM), np.nan), "f32")
    options = AttentionOptions(rope_theta=500.0)
    ops.batch_decode(o, None, q, batch.cache, batch.table, options)
    got = framework.numpy(o)
    for i, n in enumerate(batch.lengths):
        if n == 0:
            assert (got[i] == 0).all()
            continue
        query = rotated(framework.numpy(q)[i : i + 1], np.array([n - 1]), 500.0)
        keys = rotated(batch.keys[i], np.arange(n), 500.0)
        want, _ = attention(query, keys, batch.values[i], np.array([n - 1]), HEAD_DIM**-0.5)
        assert_close(got[i : i + 1], want, "f32", terms=200)


def address(array: Any) -> int:
    """Where the first element lies."""
    pointer: int = array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data
    return pointer


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_pages_by_address(framework: Framework, rng: np.random.Generator, dtype: str) -> None:
    shape = (3, 2, KV_HEADS, PAGE, HEAD_DIM)
    pages = [framework.array(np.full(shape, np.nan), dtype) for _ in range(3)]
    table = PageTable(
        framework.array([0, 2, 3], "i32"),
        framework.array([address(p) for p in pages], "i64"),
        framework.array([2, 3], "i32"),
    )
    k, v = (framework.array(rng.standard_normal((9, KV_HEADS, HEAD_DIM)), dtype) for _ in range(2))
    cache = PagedKv.from_pointers(dtype, 3, 1, KV_HEADS, PAGE, HEAD_DIM)
    ops.kv_init(cache, table, k, v, framework.array([0, 6, 9], "i64"))
    stored = np.stack([framework.numpy(p) for p in pages])
    assert np.isnan(stored[:, [0, 2]]).all()
    assert (stored[0, 1, 0].transpose(1, 0, 2) == framework.numpy(k)[:4]).all()
    assert (stored[1, 1, 1, :, :2].transpose(1, 0, 2) == framework.numpy(v)[4:6]).all()
    assert np.isnan(stored[1, 1, :, :, 2:]).all()

    k2, v2 = (
        framework.array(rng.standard_normal((2, KV_HEADS, HEAD_DIM)), dtype) for _ in range(2)
    )
    table = table._replace(last_page_len=framework.array([3, 4], "i32"))
    ops.kv_append(cache, table, k2, v2)
    stored = np.stack([framework.numpy(p) for p in pages])
    assert (stored[1, 1, 0, :, 2] == framework.numpy(k2)[0]).all()
    assert (stored[2, 1, 1, :, 3] == framework.numpy(v2)[1]).all()

    q = framework.array(rng.standard_normal((2, 4, HEAD_DIM)), dtype)
    o = framework.array(np.zeros((2, 4, HEAD_DIM)), dtype)
    ops.batch_decode(o, None, q, cache, table)
    keys = np.concatenate([framework.numpy(k)[:6], framework.numpy(k2)[:1]])
    values = np.concatenate([framework.numpy(v)[:6], framework.numpy(v2)[:1]])
    want, _ = attention(framework.numpy(q)[:1], keys, values, np.array([6]), HEAD_DIM**-0.5)
    assert_close(framework.numpy(o)[:1], want, dtype, terms=100)


def test_kv_init_into_a_pool_rounds_once(framework: Framework, rng: np.random.Generator) -> None:
    batch = Batch(framework, rng, "bf16")
    k, v = (framework.array(rng.standard_normal((20, KV_HEADS, HEAD_DIM)), "f32") for _ in range(2))
    ops.kv_init(batch.cache, batch.table, k, v, framework.array([0, 7, 8, 8, 20], "i32"))
    pages = framework.numpy(batch.table.pages)
    rounded = framework.numpy(framework.array(framework.numpy(k), "bf16"))
    got = framework.numpy(batch.pool[0])
    assert (got[pages[0]].transpose(1, 0, 2) == rounded[:4]).all()
    assert (got[pages[2], :, 0] == rounded[7]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_merge_states(framework: Framework, rng: np.random.Generator, dtype: str) -> None:
    a, b = (framework.array(rng.standard_normal((3, 2, 8)), dtype) for _ in range(2))
    lse_a, lse_b = (framework.array(rng.standard_normal((3, 2)), "f32") for _ in range(2))
    o, lse = framework.array(np.zeros((3, 2, 8)), dtype), framework.array(np.zeros((3, 2)), "f32")
    ops.merge_states(o, lse, a, lse_a, b, lse_b)
    x, y = np.exp(framework.numpy(lse_a)), np.exp(framework.numpy(lse_b))
    assert_close(framework.numpy(lse), np.log(x + y), "f32", terms=8)
    want = (framework.numpy(a) * x[..., None] + framework.numpy(b) * y[..., None]) / (x + y)[
        ..., None
    ]
    assert_close(framework.numpy(o), want, dtype, terms=8)


def test_errors(framework: Framework, rng: np.random.Generator) -> None:
    batch = Batch(framework, rng, "f32")
    q = framework.array(np.ones((4, 2, HEAD_DIM)), "f32")
    with pytest.raises(ValueError, match="k_pages and v_pages: only k_pages is given"):
        ops.batch_decode(q, None, q, PagedKv(batch.pool[0]), batch.table)
    with pytest.raises(ValueError, match=r"layer_idx .*3|3 .*num_layers"):
        cache = PagedKv.from_pointers("f32", 3, 3, KV_HEADS, PAGE, HEAD_DIM)
        ops.batch_decode(q, None, q, cache, batch.table)
    with pytest.raises(ValueError, match=r"dtype is \"f17\", expected f32"):
        cache = PagedKv.from_pointers("f17", 1, 0, KV_HEADS, PAGE, HEAD_DIM)
        ops.batch_decode(q, None, q, cache, batch.table)
    with pytest.raises(TypeError, match="dtype is a NoneType"):
        ops.batch_decode(q, None, q, PagedKv(), batch.table)
    with pytest.raises(TypeError, match="cache is a PageTable, expected a heddle.PagedKv"):
        ops.batch_decode(q, None, q, batch.table, batch.cache)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="table is a tuple, expected a heddle.PageTable"):
        ops.batch_decode(q, None, q, batch.cache, tuple(batch.table))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="options is a dict, expected a heddle.AttentionOptions"):
        ops.batch_decode(q, None, q, batch.cache, batch.table, {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="llama3_scaling is a list"):
        options = AttentionOptions(rope_theta=1e4, llama3_scaling=[8.0, 1.0])
        ops.batch_decode(q, None, q, batch.cache, batch.table, options)
    with pytest.raises(ValueError, match="tree_mask is given, but a query of batch_decode"):
        words = framework.array([1], "i32")
        options = AttentionOptions(tree_mask=words, tree_mask_indptr=words)
        ops.batch_decode(q, None, q, batch.cache, batch.table, options)
