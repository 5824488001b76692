"""The LoRA functions and rms_norm of heddle.compat.punica_kernels against the oracle."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import oracle
import pytest
from frameworks import FLOATS, INTEGERS, Framework
from layouts import LAYOUTS, Guarded, address, laid_out, pointer_table, rounded

from heddle.compat import punica_kernels

LAYERS, LAYER, ADAPTERS = 3, 1, 4
WIDTHS = [(70, 8), (8, 33), (1, 5)]  # (in, out)
WIDE = [(640, 530), (16, 1100)]  # wider than the ranks that one call of a LoRA operation takes


def adapters(
    framework: Framework, rng: np.random.Generator, rows: int, columns: int, dtype: str
) -> tuple[Any, Any]:
    """Weights [layers, rows, columns] of adapters, one without: arrays, and values of LAYER."""
    values = [rng.standard_normal((LAYERS, rows, columns)) for _ in range(ADAPTERS)]
    arrays = [framework.array(v, dtype) for v in values]
    return [*arrays[:2], None, arrays[3]], [
        None if i == 2 else rounded(framework, v, dtype)[LAYER] for i, v in enumerate(values)
    ]


def tmp_buffer(framework: Framework, num_bytes: int) -> Any:
    """0xFF is NaN in every float type and -1 in every integer."""
    return framework.array(np.full(num_bytes, 255), "u8")


def check_bgmv(
    framework: Framework, rng: np.random.Generator, dtype: str, index: str, layout: str, wide: bool
) -> None:
    for h_in, h_out in WIDE if wide else WIDTHS:
        tokens = int(rng.integers(1, 40))
        weights, values = adapters(framework, rng, h_out, h_in, dtype)
        x, y = rng.standard_normal((tokens, h_in)), rng.standard_normal((tokens, h_out))
        ids = rng.choice([-(2**31), -7, -1, 0, 1, 2, 3, ADAPTERS, 2**31 - 1], tokens)
        out = Guarded(framework, y, dtype, layout)
        want = oracle.product_of_rows(
            rounded(framework, y, dtype),
            rounded(framework, x, dtype),
            oracle.weights_by_id(tokens, ids, values),
            0.6,
        )
        returned = punica_kernels.dispatch_bgmv(
            out.array,
            laid_out(framework, x, dtype, layout),
            pointer_table(framework, weights, layout),
            laid_out(framework, ids, index, layout),
            LAYER,
            0.6,
        )
        assert returned is None
        want.check(out.values(), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bgmv(
    framework: Framework, rng: np.random.Generator, dtype: str, index: str, layout: str
) -> None:
    check_bgmv(framework, rng, dtype, index, layout, wide=False)


def test_bgmv_of_any_width(framework: Framework, rng: np.random.Generator) -> None:
    check_bgmv(framework, rng, "f16", "i64", "whole", wide=True)


@pytest.mark.parametrize("spelling", ["indicies", "indices"])
def test_bgmv_by_keyword(framework: Framework, spelling: str) -> None:
    weights = framework.array([[[1.0, 2.0, 3.0]]], "f16")
    y, x = framework.array([[10.0]], "f16"), framework.array([[1.0, 1.0, 1.0]], "f16")
    arguments = {spelling: framework.array([0], "i64"), "layer_idx": 0, "scale": 0.5}
    punica_kernels.dispatch_bgmv(y=y, x=x, w_ptr=pointer_table(framework, [weights]), **arguments)
    assert framework.numpy(y).tolist() == [[13.0]]
    with pytest.raises(TypeError):
        punica_kernels.dispatch_bgmv(
            y, x, pointer_table(framework, [weights]), layer_idx=0, scale=1.0
        )
    with pytest.raises(TypeError):
        punica_kernels.dispatch_bgmv(y, x, x, x, 0, 1.0, indices=x)


def test_bgmv_with_f32_on_one_side(framework: Framework, rng: np.random.Generator) -> None:
    """Sums between shrink and expand may be f32; weights have the dtype of the other side."""
    for h_in, h_out, x_dtype, y_dtype in [(40, 8, "bf16", "f32"), (8, 40, "f32", "f16")]:
        weights, values = adapters(
            framework, rng, h_out, h_in, "bf16" if y_dtype == "f32" else y_dtype
        )
        x, y, ids = (
            rng.standard_normal((6, h_in)),
            rng.standard_normal((6, h_out)),
            np.array([0, 3, 1, -1, 0, 0]),
        )
        out = framework.array(y, y_dtype)
        want = oracle.product_of_rows(
            rounded(framework, y, y_dtype),
            rounded(framework, x, x_dtype),
            oracle.weights_by_id(6, ids, values),
        )
        punica_kernels.dispatch_bgmv(
            out,
            framework.array(x, x_dtype),
            pointer_table(framework, weights),
            framework.array(ids, "i64"),
            LAYER,
            1.0,
        )
        want.check(framework.numpy(out), y_dtype)


def test_bgmv_takes_a_table_of_uint64(framework: Framework) -> None:
    weights = framework.array([[[2.0]]], "f32")
    table = np.array([address(weights)], np.uint64)
    if not isinstance(weights, np.ndarray):
        import torch

        table = torch.from_numpy(table)
    y = framework.array([[1.0]], "f32")
    punica_kernels.dispatch_bgmv(
        y, framework.array([[3.0]], "f32"), table, framework.array([0], "i64"), 0, 1.0
    )
    assert framework.numpy(y).tolist() == [[7.0]]


def random_segments(rng: np.random.Generator, tokens: int, num: int) -> tuple[Any, Any]:
    """Starts and ends in any order, with gaps, among them three ways to say: empty."""
    cuts = np.sort(rng.integers(0, tokens + 1, 2 * num))
    pairs = [*zip(cuts[0::2], cuts[1::2]), (-1, -1), (5, 5), (7, 3)]
    pairs = [pairs[i] for i in rng.permutation(len(pairs))]
    return np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])


def check_sgmv(
    framework: Framework,
    rng: np.random.Generator,
    name: str,
    dtype: str,
    index: str,
    layout: str,
    wide: bool,
) -> None:
    function = getattr(punica_kernels, name)
    for h_in, h_out in WIDE if wide else WIDTHS:
        tokens = int(rng.integers(1, 60))
        starts, ends = random_segments(rng, tokens, int(rng.integers(0, 9)))
        shape = (h_out, h_in) if name == "sgmv_shrink" else (h_in, h_out)
        weights, values = [], []
        for start, end in zip(starts, ends):
            weight = rng.standard_normal((LAYERS, *shape))
            without = (
                end <= start or rng.random() < 0.2
            )  # a null pointer: an empty segment's, or no adapter
            weights.append(None if without else framework.array(weight, dtype))
            plain = rounded(framework, weight, dtype)[LAYER]
            values.append(None if without else plain if name == "sgmv_shrink" else plain.T)
        x, y = rng.standard_normal((tokens, h_in)), rng.standard_normal((tokens, h_out))
        out = Guarded(framework, y, dtype, layout)
        of_row = oracle.weights_by_segment(tokens, starts, ends, values)
        want = oracle.product_of_rows(
            rounded(framework, y, dtype), rounded(framework, x, dtype), of_row
        )
        tmp = [None, tmp_buffer(framework, 3), tmp_buffer(framework, 8 << 20)][rng.integers(3)]
        returned = function(
            out.array,
            laid_out(framework, x, dtype, layout),
            pointer_table(framework, weights, layout),
            laid_out(framework, starts, index, layout),
            laid_out(framework, ends, index, layout),
            tmp,
            LAYER,
        )
        assert returned is None
        want.check(out.values(), dtype)
        assert tmp is None or (framework.numpy(tmp) == 255).all()  # not even used


@pytest.mark.parametrize("name", ["sgmv_shrink", "sgmv_cutlass"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sgmv(
    framework: Framework, rng: np.random.Generator, name: str, dtype: str, index: str, layout: str
) -> None:
    check_sgmv(framework, rng, name, dtype, index, layout, wide=False)


@pytest.mark.parametrize("name", ["sgmv_shrink", "sgmv_cutlass"])
def test_sgmv_of_any_width(framework: Framework, rng: np.random.Generator, name: str) -> None:
    check_sgmv(framework, rng, name, "f16", "i32", "whole", wide=True)


def test_sgmv_ends_with_the_rows(framework: Framework) -> None:
    weights = framework.array(np.ones((1, 2, 3)), "f32")
    y, x = framework.array(np.zeros((2, 2)), "f32"), framework.array(np.ones((2, 3)), "f32")
    punica_kernels.sgmv_shrink(
        y=y,
        x=x,
        w_ptr=pointer_table(framework, [weights]),
        s_start=framework.array([1], "i32"),
        s_end=framework.array([1000], "i32"),
        tmp=None,
        layer_idx=0,
    )
    assert framework.numpy(y).tolist() == [[0.0, 0.0], [3.0, 3.0]]


def test_sgmv_of_ones_is_exact(framework: Framework) -> None:
    """The original's shrink gives 2528 in half of the output."""
    weights = framework.array(np.ones((1, 4096, 32)), "f16")
    y, x = framework.array(np.zeros((5, 32)), "f16"), framework.array(np.ones((5, 4096)), "f16")
    segment = [framework.array([bound], "i32") for bound in (0, 5)]
    tmp = tmp_buffer(framework, punica_kernels.sgmv_cutlass_tmp_size(1))
    punica_kernels.sgmv_cutlass(y, x, pointer_table(framework, [weights]), *segment, tmp, 0)
    assert (framework.numpy(y) == 4096).all()


def test_tmp_size() -> None:
    assert [punica_kernels.sgmv_cutlass_tmp_size(n) for n in (0, 1, 32)] == [0, 60, 1920]
    assert punica_kernels.sgmv_cutlass_tmp_size(num_problems=np.int64(2)) == 120
    with pytest.raises(TypeError):
        punica_kernels.sgmv_cutlass_tmp_size(1.5)


def test_empty_batches(framework: Framework) -> None:
    weights = framework.array(np.ones((1, 2, 3)), "f16")
    table, no_table = pointer_table(framework, [weights]), framework.array(np.zeros(0, int), "i64")
    y, x = framework.array(np.full((2, 2), 5.0), "f16"), framework.array(np.ones((2, 3)), "f16")
    none = framework.array(np.zeros(0, int), "i32")
    punica_kernels.dispatch_bgmv(y[:0], x[:0], table, none, 0, 1.0)
    punica_kernels.dispatch_bgmv(y, x, no_table, framework.array([0, 0], "i64"), 0, 1.0)
    for function in (punica_kernels.sgmv_shrink, punica_kernels.sgmv_cutlass):
        function(y[:0], x[:0], no_table, none, none, None, 0)
        function(y, x, no_table, none, none, None, 0)
    punica_kernels.rms_norm(y[:0], y[:0], y[0], 1e-6)
    assert (framework.numpy(y) == 5).all()


def test_wrong_calls_raise_runtime_error(framework: Framework) -> None:
    table = pointer_table(framework, [framework.array(np.ones((1, 2, 3)), "f16")])
    y, x = framework.array(np.zeros((2, 2)), "f16"), framework.array(np.ones((2, 3)), "f16")
    ids, bounds = framework.array([0, 0], "i64"), framework.array([0], "i32")
    integers = framework.array(np.zeros((2, 3)), "i32")
    for arguments in [
        (y, x, table, ids[:1], 0, 1.0),
        (y[:1], x, table, ids, 0, 1.0),
        (y[0], x, table, ids, 0, 1.0),
        (y, x, table, ids, -1, 1.0),
        (y, integers, table, ids, 0, 1.0),
        (framework.array(np.zeros((2, 2)), "bf16"), x, table, ids, 0, 1.0),
        (y, x, bounds, ids, 0, 1.0),
        (y, x, table, x, 0, 1.0),
    ]:
        with pytest.raises(RuntimeError):
            punica_kernels.dispatch_bgmv(*arguments)
    for function in (punica_kernels.sgmv_shrink, punica_kernels.sgmv_cutlass):
        for segments in [(bounds, ids), (bounds, x)]:
            with pytest.raises(RuntimeError):
                function(y, x, table, *segments, None, 0)
        with pytest.raises(RuntimeError):
            function(y, x, table, bounds, bounds, None, -1)
    with pytest.raises(RuntimeError):
        punica_kernels.rms_norm(y, x, x[0], 1e-6)
    with pytest.raises(RuntimeError):
        punica_kernels.rms_norm(y, y, x[0], 1e-6)
    assert not framework.numpy(y).any()


def test_validation_names_row_and_value(
    framework: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = framework.array(np.ones((1, 2, 3)), "f16")
    table = pointer_table(framework, [weights, None])
    y, x = framework.array(np.zeros((2, 2)), "f16"), framework.array(np.ones((2, 3)), "f16")
    starts, ends = framework.array([0, 0], "i32"), framework.array([0, 2], "i32")

    def calls() -> None:
        punica_kernels.dispatch_bgmv(y, x, table, framework.array([-1, 2], "i64"), 0, 1.0)

    def null_pointers() -> None:
        punica_kernels.dispatch_bgmv(y, x, table, framework.array([-1, 1], "i64"), 0, 1.0)
        punica_kernels.sgmv_shrink(y, x, table, starts, ends, None, 0)

    calls()
    null_pointers()
    assert not framework.numpy(y).any()
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(RuntimeError, match=r"\[1\] is 2, "):
        calls()
    with pytest.raises(RuntimeError, match=r"\[1\]"):
        null_pointers()
    with pytest.raises(RuntimeError, match=r"\[1\]"):
        punica_kernels.sgmv_shrink(y, x, table, starts, ends, None, 0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("weight_dtype", ["same", "f32"])
def test_rms_norm(
    framework: Framework, rng: np.random.Generator, dtype: str, layout: str, weight_dtype: str
) -> None:
    for shape in [(17, 64), (3, 1), (2, 1001), (5,), (2, 3, 20)]:
        x, w = rng.standard_normal(shape), rng.standard_normal(shape[-1])
        w_dtype = dtype if weight_dtype == "same" else "f32"
        out = Guarded(framework, np.full(shape, np.nan), dtype, layout)
        epsilon = 1e-3
        returned = punica_kernels.rms_norm(
            out.array,
            laid_out(framework, x, dtype, layout),
            laid_out(framework, w, w_dtype, layout),
            epsilon,
        )
        assert returned is None
        want = oracle.rms_norm(
            rounded(framework, x, dtype), rounded(framework, w, w_dtype), epsilon
        )
        oracle.Sum(want, np.abs(want), shape[-1]).check(out.values(), dtype)


def test_rms_norm_in_place_and_by_keyword(framework: Framework, rng: np.random.Generator) -> None:
    x, w = (
        framework.array(rng.standard_normal((4, 32)), "f32"),
        framework.array(np.full(32, 2.0), "f32"),
    )
    want = oracle.rms_norm(framework.numpy(x), framework.numpy(w), 1e-5)
    punica_kernels.rms_norm(output=x, input=x, weight=w, epsilon=1e-5)
    oracle.Sum(want, np.abs(want), 32).check(framework.numpy(x), "f32")
    with pytest.raises(TypeError):
        punica_kernels.rms_norm(x, x, w)


def test_signatures() -> None:
    def declared(name: str) -> str:
        parameters = inspect.signature(getattr(punica_kernels, name)).parameters.values()
        parts = ["*"[: p.kind is p.KEYWORD_ONLY] + p.name for p in parameters]
        return ", ".join(
            part if p.default is p.empty else f"{part}={p.default}"
            for part, p in zip(parts, parameters)
        )

    pages = "kv_ptrs, kv_indptr, last_page_offset, "
    place = "num_layers, layer_idx, num_kv_heads, page_size"
    rope = "*rope=llama, *rope_theta=10000.0, *rope_scale=1.0, *rotary_dim=None, *sm_scale=None, "
    limits = "*window_left=-1, *logits_soft_cap=0.0, *lse=None"
    assert (
        declared("batch_prefill")
        == f"o, q, qo_indptr, {pages}tmpbuf, {place}, {rope}*causal=True, {limits}"
    )
    assert declared("batch_decode") == f"o, q, {pages}tmpbuf, {place}, {rope}{limits}"
    assert declared("init_kv") == f"{pages}k, v, seqlen_indptr, {place}"
    assert declared("append_kv") == f"{pages}k, v, {place}"
    assert declared("dispatch_bgmv") == "y, x, w_ptr, indicies, layer_idx, scale"
    for name in ("sgmv_cutlass", "sgmv_shrink"):
        assert declared(name) == "y, x, w_ptr, s_start, s_end, tmp, layer_idx"
    assert declared("sgmv_cutlass_tmp_size") == "num_problems"
    assert declared("rms_norm") == "output, input, weight, epsilon"
