"""The attention and cache functions of heddle.compat.punica_kernels against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from frameworks import FLOATS, INTEGERS, Framework
from layouts import LAYOUTS, Guarded, laid_out, pointer_table, rounded

from heddle.compat import punica_kernels

# Punica's own tests ask for this of f16 and bf16.
TOLERANCE = {
    "f32": {"rtol": 1e-5, "atol": 1e-5},
    "f16": {"rtol": 1e-3, "atol": 5e-4},
    "bf16": {"rtol": 8e-3, "atol": 8e-3},
}
LAYERS, LAYER = 2, 1


class Cache:
    """Pages of a batch, each an array of its own and NaN where no token lies."""

    def __init__(
        self,
        framework: Framework,
        rng: np.random.Generator,
        lengths: Any,
        heads: int,
        page_size: int,
        head_dim: int,
        dtype: str,
        filled: bool = True,
    ) -> None:
        counts = [-(-int(n) // page_size) for n in lengths]
        self.indptr = np.concatenate([[0], np.cumsum(counts)]).astype(int)
        self.last = np.array([(int(n) - 1) % page_size + 1 if n else 0 for n in lengths], int)
        values = np.full((self.indptr[-1], LAYERS, 2, heads, page_size, head_dim), np.nan)
        for i, length in enumerate(lengths):
            for j in range(int(length) if filled else 0):
                page = self.indptr[i] + j // page_size
                values[page, :, :, :, j % page_size] = rng.standard_normal(
                    (LAYERS, 2, heads, head_dim)
                )
        order = rng.permutation(len(values))
        arrays: dict[int, Any] = {int(page): framework.array(values[page], dtype) for page in order}
        self.arrays = [arrays[page] for page in range(len(values))]
        self.framework, self.shape = framework, values.shape
        self.place = (LAYERS, LAYER, heads, page_size)

    def values(self) -> Any:
        pages = [self.framework.numpy(a) for a in self.arrays]
        return np.stack(pages) if pages else np.zeros(self.shape)

    def tables(self, index: str = "i32", layout: str = "whole") -> tuple[Any, Any, Any]:
        make = self.framework
        table = pointer_table(make, self.arrays)
        pointers = laid_out(make, make.numpy(table), "i64", layout)
        return (
            pointers,
            laid_out(make, self.indptr, index, layout),
            laid_out(make, self.last, index, layout),
        )


def tmp_buffer(framework: Framework) -> Any:
    return framework.array(np.full(100, 255), "u8")


def check_attention(
    framework: Framework,
    rng: np.random.Generator,
    q_lengths: Any,
    kv_lengths: Any,
    *,
    heads: int = 2,
    group: int = 2,
    page_size: int = 16,
    head_dim: int = 64,
    dtype: str = "f16",
    index: str = "i32",
    layout: str = "whole",
    decode: bool = False,
    lse_error: float = 1e-5,
    **options: Any,
) -> None:
    """Checks o and lse of one call; before and after the requests' rows are rows of no request."""
    cache = Cache(framework, rng, kv_lengths, heads, page_size, head_dim, dtype)
    margin = 0 if decode else 2
    qo_indptr = margin + np.concatenate([[0], np.cumsum(q_lengths)]).astype(int)
    tokens = int(qo_indptr[-1]) + margin
    q, before = rng.standard_normal((2, tokens, heads * group, head_dim))
    out = Guarded(framework, before, dtype, layout)
    lse = framework.array(np.full((tokens, heads * group), 7.0), "f32")
    queries = laid_out(framework, q, dtype, layout)
    tables = cache.tables(index, layout)
    if decode:
        returned = punica_kernels.batch_decode(
            out.array, queries, *tables, tmp_buffer(framework), *cache.place, lse=lse, **options
        )
    else:
        starts = laid_out(framework, qo_indptr, index, layout)
        tmpbuf = tmp_buffer(framework) if rng.random() < 0.5 else None
        returned = punica_kernels.batch_prefill(
            out.array, queries, starts, *tables, tmpbuf, *cache.place, lse=lse, **options
        )
    assert returned is None
    values = cache.values()
    want, want_lse = oracle.attention(
        rounded(framework, before, dtype),
        rounded(framework, q, dtype),
        qo_indptr,
        values,
        cache.indptr,
        cache.last,
        LAYER,
        page_size,
        **options,
    )
    got, got_lse = out.values(), framework.numpy(lse)
    np.testing.assert_allclose(got, want, **TOLERANCE[dtype])
    np.testing.assert_allclose(
        got_lse, np.where(np.isnan(want_lse), 7.0, want_lse), lse_error, lse_error
    )
    np.testing.assert_array_equal(got[:margin], rounded(framework, before, dtype)[:margin])
    np.testing.assert_array_equal(cache.values(), values)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("decode", [False, True])
def test_ragged_batches(
    framework: Framework,
    rng: np.random.Generator,
    dtype: str,
    index: str,
    layout: str,
    decode: bool,
) -> None:
    kv_lengths = np.array(
        [15, 16, 17, 1, 33, 40]
    )  # the end of a page, and one before and after it
    q_lengths = np.ones(6, int) if decode else np.minimum(kv_lengths, [15, 1, 17, 1, 0, 7])
    check_attention(
        framework,
        rng,
        q_lengths,
        kv_lengths,
        dtype=dtype,
        index=index,
        layout=layout,
        decode=decode,
        head_dim=16,
    )


@pytest.mark.parametrize("decode", [False, True])
def test_random_batches(framework: Framework, rng: np.random.Generator, decode: bool) -> None:
    for _ in range(4):
        kv_lengths = rng.integers(0, 70, int(rng.integers(1, 7)))
        q_lengths = np.ones(len(kv_lengths), int) if decode else rng.integers(0, kv_lengths + 1)
        check_attention(
            framework,
            rng,
            q_lengths,
            kv_lengths,
            heads=int(rng.integers(1, 4)),
            group=int(rng.integers(1, 5)),
            page_size=int(rng.integers(1, 20)),
            head_dim=2 * int(rng.integers(1, 40)),
            dtype=str(rng.choice(FLOATS)),
            decode=decode,
        )


@pytest.mark.parametrize("group", range(1, 9))
@pytest.mark.parametrize("decode", [False, True])
def test_every_group_size(
    framework: Framework, rng: np.random.Generator, group: int, decode: bool
) -> None:
    lengths = [1] if decode else [5]
    check_attention(framework, rng, lengths, [18], group=group, head_dim=32, decode=decode)


@pytest.mark.parametrize("head_dim", [64, 80, 128])
@pytest.mark.parametrize("page_size", [1, 5, 16])
@pytest.mark.parametrize("decode", [False, True])
def test_head_and_page_sizes(
    framework: Framework, rng: np.random.Generator, head_dim: int, page_size: int, decode: bool
) -> None:
    q_lengths = [1, 1] if decode else [7, 3]
    check_attention(
        framework,
        rng,
        q_lengths,
        [19, 11],
        group=1,
        head_dim=head_dim,
        page_size=page_size,
        decode=decode,
        dtype="bf16",
    )


@pytest.mark.parametrize("decode", [False, True])
def test_every_fill_of_the_last_page(
    framework: Framework, rng: np.random.Generator, decode: bool
) -> None:
    lengths = np.arange(1, 12)
    q_lengths = np.ones(11, int) if decode else np.minimum(lengths, 2)
    check_attention(
        framework,
        rng,
        q_lengths,
        lengths,
        heads=1,
        page_size=5,
        head_dim=8,
        decode=decode,
        dtype="f32",
    )


@pytest.mark.parametrize("decode", [False, True])
def test_requests_without_pages_get_zeros(
    framework: Framework, rng: np.random.Generator, decode: bool
) -> None:
    q_lengths = [1, 1, 1] if decode else [2, 3, 1]
    check_attention(framework, rng, q_lengths, [0, 6, 0], head_dim=16, decode=decode, dtype="f32")


def test_null_pointers_in_unused_slots(framework: Framework, rng: np.random.Generator) -> None:
    """Tables of a captured graph are longer than the batch, and hold anything there."""
    cache = Cache(framework, rng, [6], 1, 4, 8, "f32")
    table = pointer_table(framework, [None, *cache.arrays, None, None])
    indptr, last = framework.array([1, 3], "i32"), framework.array([2], "i32")
    q, k, v = rng.standard_normal((3, 1, 1, 8))
    arrays = [framework.array(a, "f32") for a in (q, k, v)]
    before = cache.values()
    punica_kernels.append_kv(table, indptr, last, *arrays[1:], *cache.place)
    one = framework.array([0, 1], "i32")
    punica_kernels.init_kv(table, indptr, last, *arrays[1:], one, *cache.place)
    for decode in (False, True):
        out = framework.array(np.full((1, 1, 8), np.nan), "f32")
        if decode:
            punica_kernels.batch_decode(out, arrays[0], table, indptr, last, None, *cache.place)
        else:
            punica_kernels.batch_prefill(
                out, arrays[0], one, table, indptr, last, None, *cache.place
            )
        rounded_k, rounded_v = (framework.numpy(a) for a in arrays[1:])
        pages = oracle.init_kv(before, [0, 2], [2], rounded_k, rounded_v, [0, 1], LAYER, 4)
        np.testing.assert_array_equal(cache.values(), pages)
        want, _ = oracle.attention(
            q, framework.numpy(arrays[0]), [0, 1], pages, [0, 2], [2], LAYER, 4
        )
        np.testing.assert_allclose(framework.numpy(out), want, **TOLERANCE["f32"])


def test_more_queries_than_keys(framework: Framework, rng: np.random.Generator) -> None:
    check_attention(framework, rng, [5, 2], [3, 9], head_dim=16, dtype="f32")


@pytest.mark.parametrize(
    "options",
    [
        {"rope": "none"},
        {"rope_theta": 5e5},
        {"rope_scale": 4.0},
        {"rotary_dim": 16},
        {"sm_scale": 0.3},
        {"causal": False},
        {"window_left": 3},
        {"window_left": 0},
        {"logits_soft_cap": 2.5},
        {
            "rope": "none",
            "causal": False,
            "window_left": 6,
            "sm_scale": 1.0,
            "logits_soft_cap": 5.0,
        },
    ],
    ids=str,
)
def test_options(framework: Framework, rng: np.random.Generator, options: dict[str, Any]) -> None:
    check_attention(framework, rng, [9, 4], [9, 21], head_dim=32, dtype="f32", **options)
    if "causal" not in options:
        check_attention(
            framework, rng, [1, 1], [9, 21], head_dim=32, dtype="f32", decode=True, **options
        )


def test_options_are_keywords(framework: Framework, rng: np.random.Generator) -> None:
    cache = Cache(framework, rng, [3], 1, 4, 8, "f16")
    q = framework.array(np.ones((1, 1, 8)), "f16")
    with pytest.raises(TypeError):
        punica_kernels.batch_decode(q, q, *cache.tables(), None, *cache.place, "none")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("head_dim", "page_size"), [(64, 16), (128, 5), (3, 1)])
def test_init_kv(
    framework: Framework,
    rng: np.random.Generator,
    dtype: str,
    index: str,
    layout: str,
    head_dim: int,
    page_size: int,
) -> None:
    lengths, new = [17, 16, 0, 1, 9], [17, 3, 0, 1, 0]  # a whole prompt, a chunk, none, one, none
    cache = Cache(framework, rng, lengths, 2, page_size, head_dim, dtype)
    indptr = np.concatenate([[0], np.cumsum(new)]) + 1
    k, v = rng.standard_normal((2, indptr[-1] + 1, 2, head_dim))
    before = cache.values()
    arrays = [laid_out(framework, a, dtype, layout) for a in (k, v)]
    starts = laid_out(framework, indptr, index, layout)
    assert (
        punica_kernels.init_kv(*cache.tables(index, layout), *arrays, starts, *cache.place) is None
    )
    want = oracle.init_kv(
        before,
        cache.indptr,
        cache.last,
        rounded(framework, k, dtype),
        rounded(framework, v, dtype),
        indptr,
        LAYER,
        page_size,
    )
    np.testing.assert_array_equal(cache.values(), want)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_append_kv(
    framework: Framework, rng: np.random.Generator, dtype: str, index: str, layout: str
) -> None:
    lengths = [15, 16, 17, 0, 1, 33]
    for page_size in [1, 5, 16]:
        cache = Cache(framework, rng, lengths, 3, page_size, 80, dtype)
        k, v = rng.standard_normal((2, len(lengths), 3, 80))
        before = cache.values()
        arrays = [laid_out(framework, a, dtype, layout) for a in (k, v)]
        assert punica_kernels.append_kv(*cache.tables(index, layout), *arrays, *cache.place) is None
        rows = np.concatenate([[0], np.cumsum([1 if n else 0 for n in lengths])])
        kept = [i for i, n in enumerate(lengths) if n]
        rounded_k, rounded_v = (rounded(framework, a[kept], dtype) for a in (k, v))
        want = oracle.init_kv(
            before, cache.indptr, cache.last, rounded_k, rounded_v, rows, LAYER, page_size
        )
        np.testing.assert_array_equal(cache.values(), want)


def test_prefill_then_decode_as_one_prefill(framework: Framework, rng: np.random.Generator) -> None:
    """A whole conversation through the four functions, by keyword."""
    length, heads, head_dim, page_size = 11, 2, 16, 4
    k, v, q = rng.standard_normal((3, length, heads, head_dim))
    cache = Cache(framework, rng, [length], heads, page_size, head_dim, "f32", filled=False)
    place = dict(zip(("num_layers", "layer_idx", "num_kv_heads", "page_size"), cache.place))
    out, whole = framework.array(np.zeros_like(q), "f32"), framework.array(np.zeros_like(q), "f32")
    arrays = [framework.array(a, "f32") for a in (k, v, q)]

    def tables(tokens: int) -> dict[str, Any]:
        pages = -(-tokens // page_size)
        return {
            "kv_ptrs": pointer_table(framework, cache.arrays[:pages]),
            "kv_indptr": framework.array([0, pages], "i32"),
            "last_page_offset": framework.array([(tokens - 1) % page_size + 1], "i32"),
        }

    def rows(start: int, end: int) -> list[Any]:
        return [a[start:end] for a in arrays]

    prompt = framework.array([0, 7], "i32")
    keys, values, queries = rows(0, 7)
    punica_kernels.init_kv(**tables(7), k=keys, v=values, seqlen_indptr=prompt, **place)
    punica_kernels.batch_prefill(
        o=out[:7], q=queries, qo_indptr=prompt, **tables(7), tmpbuf=None, **place
    )
    for token in range(7, length):
        keys, values, queries = rows(token, token + 1)
        punica_kernels.append_kv(**tables(token + 1), k=keys, v=values, **place)
        punica_kernels.batch_decode(
            o=out[token : token + 1], q=queries, **tables(token + 1), tmpbuf=None, **place
        )
    everything = framework.array([0, length], "i32")
    punica_kernels.batch_prefill(
        whole, arrays[2], everything, *tables(length).values(), None, *cache.place
    )
    np.testing.assert_array_equal(framework.numpy(out), framework.numpy(whole))
    want, _ = oracle.attention(
        np.zeros_like(q),
        rounded(framework, q, "f32"),
        [0, length],
        cache.values(),
        [0, 3],
        [3],
        LAYER,
        page_size,
    )
    np.testing.assert_allclose(framework.numpy(whole), want, **TOLERANCE["f32"])


def test_empty_batches(framework: Framework, rng: np.random.Generator) -> None:
    cache = Cache(framework, rng, [], 2, 4, 8, "f16")
    q, k = framework.array(np.zeros((0, 4, 8)), "f16"), framework.array(np.zeros((0, 2, 8)), "f16")
    zero = framework.array([0], "i32")
    punica_kernels.batch_prefill(q, q, zero, *cache.tables(), None, *cache.place)
    punica_kernels.batch_decode(q, q, *cache.tables(), None, *cache.place)
    punica_kernels.init_kv(*cache.tables(), k, k, zero, *cache.place)
    punica_kernels.append_kv(*cache.tables(), k, k, *cache.place)
    empty = Cache(framework, rng, [0], 2, 4, 8, "f16")
    punica_kernels.batch_prefill(
        q, q, framework.array([0, 0], "i32"), *empty.tables(), None, *empty.place
    )


def test_wrong_calls_raise_runtime_error(framework: Framework, rng: np.random.Generator) -> None:
    cache = Cache(framework, rng, [3, 6], 2, 4, 8, "f16")
    tables, before = cache.tables(), cache.values()
    q, k = framework.array(np.ones((2, 4, 8)), "f16"), framework.array(np.ones((2, 2, 8)), "f16")
    starts, short = framework.array([0, 1, 2], "i32"), framework.array([0, 2], "i32")

    def decode(*place: int, o: Any = q, queries: Any = q, **options: Any) -> None:
        punica_kernels.batch_decode(o, queries, *tables, None, *(place or cache.place), **options)

    def append(*place: int, key: Any = k, value: Any = k) -> None:
        punica_kernels.append_kv(*tables, key, value, *(place or cache.place))

    wrong_places = [(2, 2, 2, 4), (2, -1, 2, 4), (2, 1, 3, 4), (2, 1, 0, 4), (2, 1, 2, 0)]
    calls: list[Any] = [lambda place=place: decode(*place) for place in wrong_places]
    calls += [lambda place=place: append(*place) for place in wrong_places]
    calls += [
        lambda: decode(o=q[:1]),
        lambda: decode(o=framework.array(np.ones((2, 4, 8)), "bf16")),
        lambda: decode(
            queries=framework.array(np.ones((2, 4, 8)), "i32"),
            o=framework.array(np.ones((2, 4, 8)), "i32"),
        ),
        lambda: decode(rope="interleaved"),
        lambda: decode(rotary_dim=0),
        lambda: decode(rotary_dim=10),
        lambda: decode(lse=q),
        lambda: append(key=k[:1], value=k[:1]),
        lambda: append(value=framework.array(np.ones((2, 2, 8)), "f32")),
        lambda: append(value=k[:, :1]),
        lambda: punica_kernels.batch_prefill(q, q, short, *tables, None, *cache.place),
        lambda: punica_kernels.init_kv(*tables, k, k, short, *cache.place),
        lambda: punica_kernels.init_kv(tables[0], tables[2], tables[2], k, k, starts, *cache.place),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(RuntimeError):
            call()
            pytest.fail(f"call {number} did not raise")
    assert (framework.numpy(q) == 1).all()
    np.testing.assert_array_equal(cache.values(), before)


def test_validation_names_row_and_value(
    framework: Framework, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(framework, rng, [3, 6], 2, 4, 8, "f16")
    pointers, indptr, _ = cache.tables()
    last, before = framework.array([3, 5], "i32"), cache.values()  # a page has four tokens
    q, k = framework.array(np.ones((2, 4, 8)), "f16"), framework.array(np.ones((2, 2, 8)), "f16")
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(RuntimeError, match=r"\[1\] is 5, "):
        punica_kernels.batch_decode(q, q, pointers, indptr, last, None, *cache.place)
    with pytest.raises(RuntimeError, match=r"\[1\] is 5, "):
        punica_kernels.append_kv(pointers, indptr, last, k, k, *cache.place)
    assert (framework.numpy(q) == 1).all()
    np.testing.assert_array_equal(cache.values(), before)
