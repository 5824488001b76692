"""heddle.compat.lorax.ops against the oracle."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest
from frameworks import FLOATS, INTEGERS, Framework
from layouts import LAYOUTS, Guarded, laid_out, rounded

from heddle.compat.lorax import ops

TOKENS, WIDTH, RANK, ADAPTERS = 23, 70, 9, 4


def stacked(framework: Framework, values: Any, dtype: str, layout: str, axes: int) -> Any:
    """Weights with three axes or, with an axis of size 1 between the first two, four."""
    return laid_out(framework, values if axes == 3 else values[:, None], dtype, layout)


def ids_of_rows(rng: np.random.Generator) -> Any:
    return rng.choice([-(2**31), -7, -1, *range(ADAPTERS), ADAPTERS, 2**31 - 1], TOKENS)


def rows_by_id(framework: Framework, rng: np.random.Generator, index: str, layout: str) -> Any:
    """What a bgmv call takes for its rows, and what gives the weight of each."""
    ids = ids_of_rows(rng)
    arguments = [laid_out(framework, ids, index, layout)]
    return arguments, lambda weights: oracle.weights_by_id(TOKENS, ids, weights)


def rows_by_segment(framework: Framework, rng: np.random.Generator, index: str, layout: str) -> Any:
    """What an sgmv call takes: in any order, with gaps, empty ones, and ids that name no adapter."""
    num = int(rng.integers(1, 9))
    cuts, order = np.sort(rng.integers(0, TOKENS + 1, 2 * num)), rng.permutation(num)
    starts, ends = cuts[0::2][order], cuts[1::2][order]
    ids = rng.choice([-7, -1, *range(ADAPTERS), ADAPTERS, 99], num)
    arrays = [laid_out(framework, m, index, layout) for m in (starts, ends - starts, ids)]

    def of_row(weights: Any) -> Any:
        of_segment = oracle.weights_by_id(num, ids, weights)
        return oracle.weights_by_segment(TOKENS, starts, ends, of_segment)

    return [*arrays, num, 1], of_row  # 1: a hint for a launch shape


ROWS = {"bgmv": rows_by_id, "sgmv": rows_by_segment}
each_kind = pytest.mark.parametrize("kind", ROWS)


@each_kind
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axes", [3, 4])
def test_shrink_accumulates(
    framework: Framework,
    rng: np.random.Generator,
    kind: str,
    dtype: str,
    index: str,
    layout: str,
    axes: int,
) -> None:
    x, a = rng.standard_normal((TOKENS, WIDTH)), rng.standard_normal((ADAPTERS, RANK, WIDTH))
    for out_dtype in {"f32", dtype}:
        y = rng.standard_normal((TOKENS, RANK))
        out = Guarded(framework, y, out_dtype, layout)
        rows, of_row = ROWS[kind](framework, rng, index, layout)
        want = oracle.product_of_rows(
            rounded(framework, y, out_dtype),
            rounded(framework, x, dtype),
            of_row(rounded(framework, a, dtype)),
            0.7,
        )
        inputs, weights = laid_out(framework, x, dtype, layout), stacked(framework, a, dtype, layout, axes)
        assert getattr(ops, f"{kind}_shrink")(inputs, weights, out.array, *rows, 0.7) is None
        want.check(out.values(), out_dtype)


@pytest.mark.parametrize("config", [None, {}, {"SPLIT_K": 64}, {"BLOCK_N": 16, "SPLIT_K": 1}])
def test_bgmv_shrink_overwrites_with_one_split(
    framework: Framework, rng: np.random.Generator, config: dict[str, int] | None
) -> None:
    x, a, y = (
        rng.standard_normal(s) for s in [(TOKENS, WIDTH), (ADAPTERS, RANK, WIDTH), (TOKENS, RANK)]
    )
    ids = ids_of_rows(rng)
    accumulate = not (config and config.get("SPLIT_K") == 1)
    values = [rounded(framework, v, "f32") for v in (y, x, a)]
    want = oracle.product_of_rows(
        values[0], values[1], oracle.weights_by_id(TOKENS, ids, values[2]), accumulate=accumulate
    )
    out = framework.array(y, "f32")
    ops.bgmv_shrink(
        inputs=framework.array(x, "f32"),
        lora_a_weights=framework.array(a, "f32"),
        output_tensor=out,
        lora_indices_tensor=framework.array(ids, "i64"),
        override_config=config,
    )
    want.check(framework.numpy(out), "f32")


@each_kind
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axes", [3, 4])
@pytest.mark.parametrize("add", [None, True, False])
def test_expand_and_its_slice(
    framework: Framework,
    rng: np.random.Generator,
    kind: str,
    dtype: str,
    layout: str,
    axes: int,
    add: bool | None,
) -> None:
    for offset, in_dtype, index in [(None, dtype, "i32"), (None, "f32", "i64"), (0, "f32", "i32"), (39, dtype, "i64")]:
        columns = slice(0, WIDTH) if offset is None else slice(offset, offset + 31)
        size = columns.stop - columns.start
        b, h = rng.standard_normal((ADAPTERS, size, RANK)), rng.standard_normal((TOKENS, RANK))
        y = rng.standard_normal((TOKENS, WIDTH))
        out, before = Guarded(framework, y, dtype, layout), rounded(framework, y, dtype)
        rows, of_row = ROWS[kind](framework, rng, index, layout)
        want = oracle.product_of_rows(
            before[:, columns],
            rounded(framework, h, in_dtype),
            of_row(rounded(framework, b, dtype)),
            accumulate=kind == "bgmv" if add is None else add,
        )
        inputs, weights = laid_out(framework, h, in_dtype, layout), stacked(framework, b, dtype, layout, axes)
        name, place = ("expand", []) if offset is None else ("expand_slice", [offset, size])
        options = {} if add is None else {"add_inputs": add}
        function = getattr(ops, f"{kind}_{name}")
        assert function(inputs, weights, out.array, *rows, *place, **options) is None
        got = out.values()
        want.check(got[:, columns], dtype)
        before[:, columns] = got[:, columns] = 0
        np.testing.assert_array_equal(got, before)


def test_by_keyword(framework: Framework) -> None:
    x, y = (framework.array(np.ones((3, n)), "f16") for n in (4, 6))
    a, b = (framework.array(np.ones((1, *shape)), "f16") for shape in ((2, 4), (6, 2)))
    v = framework.array(np.ones((3, 2)), "f32")
    ids = {"lora_indices_tensor": framework.array([0, -1, 0], "i32")}
    runs = {
        "max_seq_length": 2,
        "batches": 2,
        "lora_indices_tensor": framework.array([-1, 0], "i32"),
        "seq_len_tensor": framework.array([1, 2], "i64"),
        "b_seq_start_loc": framework.array([0, 1], "i32"),
    }
    none = {"override_config": None}
    ops.bgmv_shrink(**none, scaling=0.5, **ids, output_tensor=v, lora_a_weights=a, inputs=x)
    assert framework.numpy(v).tolist() == [[3, 3], [1, 1], [3, 3]]
    ops.sgmv_shrink(scaling=2.0, **runs, output_tensor=v, lora_a_weights=a, inputs=x)
    assert framework.numpy(v).tolist() == [[3, 3], [9, 9], [11, 11]]
    ops.bgmv_expand(**none, add_inputs=False, **ids, output_tensor=y, lora_b_weights=b, inputs=v)
    assert framework.numpy(y)[:, 5].tolist() == [6, 1, 22]
    ops.sgmv_expand(add_inputs=True, **runs, output_tensor=y, lora_b_weights=b, inputs=v)
    assert framework.numpy(y)[:, 5].tolist() == [6, 19, 44]
    part = {"slice_size": 2, "slice_offset": 1, "lora_b_weights": b[:, :2]}
    ops.bgmv_expand_slice(**none, add_inputs=True, **part, **ids, output_tensor=y, inputs=v)
    assert framework.numpy(y)[2].tolist() == [44, 66, 66, 44, 44, 44]
    ops.sgmv_expand_slice(add_inputs=False, **part, **runs, output_tensor=y, inputs=v)
    assert framework.numpy(y)[1].tolist() == [19, 18, 18, 19, 19, 19]


def test_empty_batches(framework: Framework) -> None:
    a, b = framework.array(np.ones((2, 3, 8)), "f16"), framework.array(np.ones((2, 8, 3)), "f16")
    x, v, y = (framework.array(np.zeros((0, n)), "f16") for n in (8, 3, 8))
    none = framework.array(np.zeros(0, int), "i64")
    ops.bgmv_shrink(x, a, v, none)
    ops.bgmv_expand(v, b, y, none)
    ops.bgmv_expand_slice(v, b, y, none, 0, 8)
    ops.sgmv_shrink(x, a, v, none, none, none, 0, 0, 1.0)
    ops.sgmv_expand(v, b, y, none, none, none, 0, 0)
    ops.sgmv_expand_slice(v, b, y, none, none, none, 0, 0, 0, 8)
    rows = framework.array(np.full((2, 3), 5.0), "f32")
    ops.sgmv_shrink(framework.array(np.ones((2, 8)), "f16"), a, rows, none, none, none, 0, 0, 1.0)
    assert framework.numpy(rows).tolist() == [[5.0] * 3] * 2


def test_wrong_calls_raise(framework: Framework) -> None:
    x, v, y = (framework.array(np.zeros((2, n)), "f16") for n in (8, 3, 8))
    a, b = framework.array(np.ones((2, 3, 8)), "f16"), framework.array(np.ones((2, 8, 3)), "f16")
    ids, three = framework.array([0, 1], "i64"), framework.array([0, 1, 1], "i64")

    def refused(error: Any, function: Callable[..., None], *arguments: Any, **options: Any) -> None:
        with pytest.raises(error):
            function(*arguments, **options)

    refused(ValueError, ops.bgmv_shrink, v, a, v, ids)
    refused(ValueError, ops.bgmv_shrink, x, a, v, three)
    refused(ValueError, ops.bgmv_shrink, x, framework.array(np.ones((2, 2, 3, 8)), "f16"), v, ids)
    refused(ValueError, ops.bgmv_shrink, x, a[0], v, ids)
    refused(TypeError, ops.bgmv_shrink, x, a, v, ids, override_config=64)
    refused(TypeError, ops.bgmv_expand, v, b, y, ids, override_config="SPLIT_N")
    refused(ValueError, ops.bgmv_expand_slice, v, b, y, ids, 0, 7)
    refused(ValueError, ops.bgmv_expand_slice, v, b, y, ids, 1, 8)
    refused(ValueError, ops.bgmv_expand_slice, v, b, y, ids, -1, 8)
    refused(ValueError, ops.sgmv_shrink, x, a, v, ids, ids, ids, 3, 1, 1.0)
    refused(ValueError, ops.sgmv_shrink, x, a, v, three, ids, ids, 2, 1, 1.0)
    refused(ValueError, ops.sgmv_expand, v, b, y, ids, three, ids, 2, 1)
    refused(ValueError, ops.sgmv_expand_slice, v, b, y, ids, ids, ids, 2, 1, 0, 9)
    refused(
        (ValueError, NotImplementedError),
        ops.bgmv_shrink,
        framework.array(np.zeros((2, 8)), "i32"),
        a,
        v,
        ids,
    )
    assert not framework.numpy(v).any() and not framework.numpy(y).any()


def test_validation_names_row_and_value(
    framework: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, v, a = (framework.array(np.zeros(s), "f16") for s in [(2, 8), (2, 3), (2, 3, 8)])
    ids = framework.array([1, 2], "i64")
    ops.bgmv_shrink(x, a, v, ids)
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match=r"\[1\] is 2, "):
        ops.bgmv_shrink(x, a, v, ids)


def test_signatures() -> None:
    def declared(function: Any) -> str:
        parameters = inspect.signature(function).parameters.values()
        return ", ".join(
            p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters
        )

    expand = "inputs, lora_b_weights, output_tensor, "
    batch = "b_seq_start_loc, seq_len_tensor, lora_indices_tensor, batches, max_seq_length, "
    assert declared(ops.bgmv_shrink) == (
        "inputs, lora_a_weights, output_tensor, lora_indices_tensor, "
        "scaling=1.0, override_config=None"
    )
    assert (
        declared(ops.bgmv_expand)
        == expand + "lora_indices_tensor, add_inputs=True, override_config=None"
    )
    assert declared(ops.bgmv_expand_slice) == (
        expand
        + "lora_indices_tensor, slice_offset, slice_size, add_inputs=True, override_config=None"
    )
    assert (
        declared(ops.sgmv_shrink) == "inputs, lora_a_weights, output_tensor, " + batch + "scaling"
    )
    assert declared(ops.sgmv_expand) == expand + batch + "add_inputs=False"
    assert (
        declared(ops.sgmv_expand_slice)
        == expand + batch + "slice_offset, slice_size, add_inputs=False"
    )
