"""Attention, its cache, rotary positions and merged states on torch's CUDA tensors."""

from __future__ import annotations

import numpy as np
import pytest
from torch_on_gpu import GPU, each_half, seed_of_torch, torch

from heddle import AttentionOptions, PagedKv, PageTable, ops
from heddle.compat import punica_kernels

__all__ = ["seed_of_torch"]

LAYERS, HEADS, PAGE, DIM = 3, 2, 16, 64


def ints(values: list[int], dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, device=GPU, dtype=dtype)


class Pages:
    """Sequences whose pages are tensors of their own, of several layers, all NaN at first."""

    def __init__(self, lengths: list[int], dtype: torch.dtype) -> None:
        self.lengths = lengths
        counts = [-(-n // PAGE) for n in lengths]
        self.pages = [
            [
                torch.full((LAYERS, 2, HEADS, PAGE, DIM), torch.nan, dtype=dtype, device=GPU)
                for _ in range(count)
            ]
            for count in counts
        ]
        self.ptrs = ints([p.data_ptr() for of_seq in self.pages for p in of_seq], torch.int64)
        self.indptr = ints([0, *np.cumsum(counts).tolist()])
        self.last = ints([n - (c - 1) * PAGE for n, c in zip(lengths, counts, strict=True)])

    def tokens(self, seq: int, layer: int, plane: int) -> torch.Tensor:
        """[length, heads, dim] of a sequence; plane 0: keys, 1: values."""
        rows = torch.cat([p[layer, plane] for p in self.pages[seq]], 1)
        return rows[:, : self.lengths[seq]].transpose(0, 1)


@each_half
def test_punica_stores_new_tokens_at_the_ends_of_pages_by_address(dtype: torch.dtype) -> None:
    lengths, new = [5, 16, 33, 1], [5, 3, 20, 1]
    pages = Pages(lengths, dtype)
    k, v = torch.randn(2, sum(new), HEADS, DIM, device=GPU).to(dtype)
    starts = ints([0, *np.cumsum(new).tolist()])
    punica_kernels.init_kv(
        pages.ptrs, pages.indptr, pages.last, k, v, starts, LAYERS, 1, HEADS, PAGE
    )
    for seq, n in enumerate(new):
        rows = slice(int(starts[seq]), int(starts[seq + 1]))
        for plane, want in ((0, k), (1, v)):
            got = pages.tokens(seq, 1, plane)
            assert torch.equal(got[-n:], want[rows])
            assert got[:-n].isnan().all()
            assert pages.tokens(seq, 0, plane).isnan().all()
    k1, v1 = torch.randn(2, len(lengths), HEADS, DIM, device=GPU).to(dtype)
    punica_kernels.append_kv(pages.ptrs, pages.indptr, pages.last, k1, v1, LAYERS, 2, HEADS, PAGE)
    for seq in range(len(lengths)):
        assert torch.equal(pages.tokens(seq, 2, 0)[-1], k1[seq])
        assert torch.equal(pages.tokens(seq, 2, 1)[-1], v1[seq])


def rotated(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotate-half form, all of a head, in double."""
    half = x.shape[-1] // 2
    places = torch.arange(half, device=GPU, dtype=torch.float64)
    angle = positions.double()[:, None] * theta ** (-places / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x.double().split(half, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor, cap: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """o and lse in double of q [n, heads, dim] over k, v [m, kv heads, dim]; seen: [n, m]."""
    group = q.shape[1] // k.shape[1]
    keys, values = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("nhd,mhd->hnm", q.double(), keys) / DIM**0.5
    if cap:
        scores = cap * (scores / cap).tanh()
    scores = scores.masked_fill(~seen, -torch.inf)
    return torch.einsum("hnm,mhd->nhd", scores.softmax(-1), values), scores.logsumexp(-1).T


def positions_of(kv_len: int, q_len: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions of the last q_len tokens, as a column, and of all."""
    every = torch.arange(kv_len, device=GPU)
    return every[kv_len - q_len :, None], every


def expect_close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Within the tolerances of 16-bit products."""
    close = {torch.float16: (1e-3, 5e-4), torch.bfloat16: (8e-3, 8e-3), torch.float32: (8e-3, 8e-3)}
    rtol, atol = close[got.dtype]
    torch.testing.assert_close(got.double(), want, rtol=rtol, atol=atol)


@each_half
@pytest.mark.parametrize("rope", ["llama", "none"])
def test_punica_prefill_over_pages_by_address(dtype: torch.dtype, rope: str) -> None:
    lengths, new = [5, 16, 33, 90], [5, 3, 0, 70]
    pages = Pages(lengths, dtype)
    k, v = torch.randn(2, sum(lengths), HEADS, DIM, device=GPU).to(dtype)
    starts = ints([0, *np.cumsum(lengths).tolist()])
    place = (LAYERS, 1, HEADS, PAGE)
    punica_kernels.init_kv(pages.ptrs, pages.indptr, pages.last, k, v, starts, *place)
    q = torch.randn(sum(new), 3 * HEADS, DIM, device=GPU).to(dtype)
    o, lse = torch.full_like(q, torch.nan), torch.empty(sum(new), 3 * HEADS, device=GPU)
    begins = np.cumsum([0, *new]).tolist()
    punica_kernels.batch_prefill(
        o, q, ints(begins), pages.ptrs, pages.indptr, pages.last, None, *place, rope=rope, lse=lse
    )
    for seq, (kv_len, q_len) in enumerate(zip(lengths, new, strict=True)):
        rows = slice(begins[seq], begins[seq + 1])
        at, every = positions_of(kv_len, q_len)
        queries, keys = q[rows], pages.tokens(seq, 1, 0)
        if rope == "llama":
            queries, keys = rotated(queries, at[:, 0], 1e4), rotated(keys, every, 1e4)
        want, want_lse = attention(queries, keys, pages.tokens(seq, 1, 1), every <= at)
        expect_close(o[rows], want)
        expect_close(lse[rows], want_lse)


@each_half
@pytest.mark.parametrize("rope", ["llama", "none"])
def test_punica_decode_over_pages_by_address(dtype: torch.dtype, rope: str) -> None:
    lengths = [5, 16, 33, 900]
    pages = Pages(lengths, dtype)
    k, v = torch.randn(2, sum(lengths), HEADS, DIM, device=GPU).to(dtype)
    starts = ints([0, *np.cumsum(lengths).tolist()])
    place = (LAYERS, 1, HEADS, PAGE)
    punica_kernels.init_kv(pages.ptrs, pages.indptr, pages.last, k, v, starts, *place)
    q = torch.randn(len(lengths), 3 * HEADS, DIM, device=GPU).to(dtype)
    o, lse = torch.full_like(q, torch.nan), torch.empty(len(lengths), 3 * HEADS, device=GPU)
    punica_kernels.batch_decode(
        o, q, pages.ptrs, pages.indptr, pages.last, None, *place, rope=rope, lse=lse
    )
    for seq, kv_len in enumerate(lengths):
        at, every = positions_of(kv_len, 1)
        queries, keys = q[seq : seq + 1], pages.tokens(seq, 1, 0)
        if rope == "llama":
            queries, keys = rotated(queries, at[:, 0], 1e4), rotated(keys, every, 1e4)
        want, want_lse = attention(queries, keys, pages.tokens(seq, 1, 1), every <= at)
        expect_close(o[seq : seq + 1], want)
        expect_close(lse[seq : seq + 1], want_lse)


def test_a_graph_of_decode_replays_with_other_lengths_and_options() -> None:
    k, v = torch.randn(2, 40, 1, HEADS, DIM, device=GPU).half().unbind(0)
    pool = torch.full((2, 4, HEADS, PAGE, DIM), torch.nan, dtype=torch.float16, device=GPU)
    cache = PagedKv.from_pool(*pool)
    table = PageTable(ints([0, 1, 2]), ints([3, 0, 1, 2**30]), ints([1, 1]))
    options = AttentionOptions(window_left=20, logits_soft_cap=3.0)
    q = torch.randn(2, 4 * HEADS, DIM, device=GPU).half()
    o = torch.empty_like(q)

    def decode(out: torch.Tensor) -> None:
        ops.batch_decode(out, None, q, cache, table, options)

    for token in range(40):  # one after the other: of sequence 0, whose pages are 3, 0 and 1
        pages, last = ints([3, 0, 1]), ints([token % PAGE + 1])
        one = PageTable(ints([0, token // PAGE + 1]), pages, last)
        ops.kv_append(cache, one, k[token], v[token])
    decode(o)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decode(o)
    table.page_indptr.copy_(ints([0, 3, 3]))
    table.last_page_len.copy_(ints([8, 0]))
    o.fill_(torch.nan)
    graph.replay()
    at, every = positions_of(40, 1)
    seen = (every <= at) & (every >= at - 20)
    expect_close(o[:1], attention(q[:1], k[:, 0], v[:, 0], seen, 3.0)[0])
    assert (o[1] == 0).all()  # no keys


@each_half
def test_prefill_with_every_option(dtype: torch.dtype) -> None:
    lengths, new = [100, 37], [40, 37]
    k, v = ([torch.randn(n, HEADS, DIM, device=GPU).to(dtype) for n in lengths] for _ in range(2))
    pool = torch.full((2, 12, HEADS, PAGE, DIM), torch.nan, dtype=dtype, device=GPU)
    cache = PagedKv.from_pool(*pool)
    pages = ints([9, 2, 3, 11, 5, 0, 7, 1, 4, 6, 2**30])
    table = PageTable(ints([0, 7, 10]), pages, ints([4, 5]))
    starts = ints([0, *np.cumsum(lengths).tolist()], torch.int64)
    ops.kv_init(cache, table, torch.cat(k), torch.cat(v), starts)
    q = torch.randn(sum(new), 4 * HEADS, DIM, device=GPU).to(dtype)
    o, begins = torch.full_like(q, torch.nan), ints([0, 40, 77])
    # Random bits for the first sequence, causality for the second.
    seen_new = torch.rand(40, 40, device=GPU) < 0.5
    bits = (seen_new.to(torch.int64) << torch.arange(40, device=GPU) % 32).split(32, 1)
    words = torch.stack([b.sum(1) for b in bits], 1).to(torch.int32).flatten()
    for options in (
        AttentionOptions(window_left=20),
        AttentionOptions(causal=False),
        AttentionOptions(logits_soft_cap=3.0),
        AttentionOptions(tree_mask=words, tree_mask_indptr=ints([0, 80, 80])),
    ):
        ops.batch_prefill(o, None, q, begins, cache, table, options)
        for seq, (kv_len, q_len) in enumerate(zip(lengths, new, strict=True)):
            at, every = positions_of(kv_len, q_len)
            seen = (every <= at) | (not options.causal)
            if options.window_left >= 0:
                seen &= every >= at - options.window_left
            if options.tree_mask is not None and seq == 0:
                seen = torch.cat([torch.ones(40, 60, dtype=torch.bool, device=GPU), seen_new], 1)
            rows = slice(40 * seq, 40 + 37 * seq)
            cap = options.logits_soft_cap
            expect_close(o[rows], attention(q[rows], k[seq], v[seq], seen, cap)[0])


def test_a_graph_of_prefill_replays_with_other_lengths() -> None:
    pool = torch.randn(2, 6, HEADS, PAGE, DIM, device=GPU).half()
    q = torch.randn(30, 2 * HEADS, DIM, device=GPU).half()
    o = torch.empty_like(q)
    cache, starts = PagedKv.from_pool(*pool), ints([0, 10, 30])
    table = PageTable(ints([0, 1, 3]), ints([3, 0, 5, 1]), ints([16, 9]))
    ops.batch_prefill(o, None, q, starts, cache, table)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.batch_prefill(o, None, q, starts, cache, table)
    for tensor, values in zip(
        [starts, *table], [[0, 7, 8], [0, 3, 4], [1, 2, 4, 0], [5, 16]], strict=True
    ):
        tensor.copy_(ints(values))
    o.fill_(torch.nan)
    graph.replay()
    want = torch.full_like(o, torch.nan)
    ops.batch_prefill(want[:8], None, q[:8], starts, cache, table)
    assert torch.equal(o[:8], want[:8])
    assert o[8:].isnan().all()
    assert not o[:8].isnan().any()


@each_half
def test_rope_and_append_in_one_call(dtype: torch.dtype) -> None:
    q = torch.randn(3, 4, DIM, device=GPU).to(dtype)
    k, v = torch.randn(2, 3, HEADS, DIM, device=GPU).to(dtype)
    pool = torch.full((2, 5, PAGE, HEADS, DIM), torch.nan, dtype=dtype, device=GPU)
    k_pages, v_pages = pool.transpose(2, 3)  # token-major pages
    table = PageTable(ints([0, 1, 3, 4]), ints([4, 0, 2, 1]), ints([3, 16, 1]))
    positions = torch.tensor([2, 31, 0], device=GPU)
    turned_q, turned_k = rotated(q, positions, 1e4), rotated(k, positions, 1e4)
    ops.rope_kv_append(q, PagedKv.from_pool(k_pages, v_pages), table, k, v)
    torch.testing.assert_close(q, turned_q.to(dtype))
    for seq, (page, slot) in enumerate([(4, 2), (2, 15), (1, 0)]):
        torch.testing.assert_close(pool[0, page, slot], turned_k[seq].to(dtype))
        assert torch.equal(pool[1, page, slot], v[seq])
    assert int(pool.isnan().any(-1).sum()) == 2 * (5 * PAGE - 3) * HEADS


def test_a_table_far_out_is_that_of_double_precision() -> None:
    positions = torch.tensor([0, 1, 4097, 1_000_000, 30_000_000], device=GPU)
    cos, sin = torch.empty(2, 5, 64, device=GPU)
    ops.rope_table(cos, sin, positions, theta=5e5)
    frequency = 5e5 ** (-torch.arange(64, device=GPU, dtype=torch.float64) / 64)
    angle = positions.double()[:, None] * frequency
    assert (cos - angle.cos()).abs().max() < 2**-24 + 1e-8
    assert (sin - angle.sin()).abs().max() < 2**-24 + 1e-8
    x = torch.randn(5, 3, 128, device=GPU)
    y = x.clone()
    ops.rope(x, cos, sin)
    ops.rope(y, positions=positions, theta=5e5)
    assert torch.equal(x, y)


def test_a_graph_replays_with_other_lengths() -> None:
    k, v = torch.randn(2, 2, HEADS, DIM, device=GPU).half()
    pool = torch.zeros(2, 4, HEADS, PAGE, DIM, dtype=torch.float16, device=GPU)
    cache = PagedKv.from_pool(*pool)
    table = PageTable(ints([0, 1, 2]), ints([3, 0, 0, 0]), ints([1, 7]))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.kv_append(cache, table, k, v)
    for tensor, values in zip(table, [[0, 2, 3], [1, 2, 3, 0], [16, 4]], strict=True):
        tensor.copy_(ints(values))
    pool.zero_()
    graph.replay()
    want = torch.zeros_like(pool)
    for plane, rows in enumerate((k, v)):
        want[plane, 2, :, 15], want[plane, 3, :, 3] = rows
    assert torch.equal(pool, want)


@each_half
def test_merged_states_are_attention_over_all_keys(dtype: torch.dtype) -> None:
    scores = 3 * torch.randn(5, 2, 9, device=GPU, dtype=torch.float64)
    values = torch.randn(5, 2, 9, DIM, device=GPU, dtype=torch.float64)

    def state(keys: slice) -> tuple[torch.Tensor, torch.Tensor]:
        s, x = scores[..., keys], values[:, :, keys]
        return (s.softmax(-1)[..., None] * x).sum(2), s.logsumexp(-1)

    parts = [state(slice(0, 4)), state(slice(4, 9))]
    (o_a, lse_a), (o_b, lse_b) = [(o.to(dtype), lse.float()) for o, lse in parts]
    want, want_lse = state(slice(0, 9))
    o, lse = torch.full_like(o_a, torch.nan), torch.full_like(lse_a, torch.nan)
    ops.merge_states(o, lse, o_a, lse_a, o_b, lse_b)
    torch.testing.assert_close(o.double(), want, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(lse.double(), want_lse, rtol=1e-6, atol=1e-6)
