"""How arrays come in: protocols, dtypes, strides, what is refused, and what is kept alive."""

from __future__ import annotations

import array
import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from frameworks import FLOATS, INTEGERS, NUMPY_DTYPES, Framework
from producers import OnlyDlpack

from heddle import ops


def rows(dtype: Any = np.float32) -> Any:
    return np.arange(1, 13).reshape(3, 4).astype(dtype)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_alone_for_inputs_and_outputs(versioned: bool) -> None:
    x, weight, want, y = (
        rows(),
        np.ones(4, np.float32),
        np.empty((3, 4), "f4"),
        np.zeros((3, 4), "f4"),
    )
    ops.rms_norm(want, x, weight)
    boxed = [OnlyDlpack(a, versioned=versioned) for a in (y, x, weight)]
    ops.rms_norm(*boxed)
    assert (y == want).all()
    assert [b.exports for b in boxed] == [1, 1, 1]


def test_a_read_only_array_is_no_output_but_an_input() -> None:
    x, y, weight = rows(), rows(), np.ones(4, np.float32)
    for a in (x, y):
        a.flags.writeable = False
    with pytest.raises(ValueError, match="output is read-only"):
        ops.rms_norm(y, x, weight)
    with pytest.raises(ValueError, match="output is read-only"):
        ops.rms_norm(OnlyDlpack(y), x, weight)
    out = np.empty((3, 4), np.float32)
    ops.rms_norm(out, x, weight)
    out_by_dlpack = np.empty((3, 4), np.float32)
    ops.rms_norm(out_by_dlpack, OnlyDlpack(x), weight)
    assert (out == out_by_dlpack).all()


def test_an_array_of_jax_is_no_output_though_its_capsule_cannot_say_so() -> None:
    x, weight = rows(), np.ones(4, np.float32)
    immutable = type("ArrayImpl", (OnlyDlpack,), {"__module__": "jaxlib._jax"})
    with pytest.raises(ValueError, match="output is read-only"):
        ops.rms_norm(immutable(rows(), versioned=False), x, weight)
    y, want = np.empty_like(x), np.empty_like(x)
    ops.rms_norm(y, immutable(x, versioned=False), weight)
    ops.rms_norm(want, x, weight)
    assert (y == want).all()


def test_rows_that_overlap_are_no_output_but_an_input() -> None:
    memory, weight = np.arange(12, dtype=np.float32), np.ones(4, np.float32)
    for step in (0, 1, 3):
        overlapping = np.lib.stride_tricks.as_strided(memory, (3, 4), (4 * step, 4))
        for output in (overlapping, OnlyDlpack(overlapping)):
            with pytest.raises(ValueError, match=rf"^output has elements .* strides \[{step}, 1\]$"):
                ops.rms_norm(output, rows(), weight)
        y, want = rows(), rows()
        ops.rms_norm(y, overlapping, weight)
        ops.rms_norm(want, overlapping.copy(), weight)
        assert (y == want).all() and (memory == np.arange(12)).all()


def test_read_only_bfloat16_is_no_output() -> None:
    y = rows(ml_dtypes.bfloat16)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="output is read-only"):
        ops.rms_norm(y, rows(ml_dtypes.bfloat16), np.ones(4, np.float32))


@pytest.mark.parametrize("dtype", [">f4", ">f2", ">i4"])
def test_the_byte_order_of_another_machine_is_refused(dtype: str) -> None:
    with pytest.raises(NotImplementedError, match="input has the byte order of another machine"):
        ops.rms_norm(rows(), rows(dtype), np.ones(4, np.float32))


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ("f8", 'format "d"'),
        ("u4", 'format "I"'),
        ("c8", 'format "Zf"'),
        (ml_dtypes.float8_e5m2, "float8_e5m2"),
    ],
)
def test_other_dtypes_are_not_implemented(dtype: Any, said: str) -> None:
    with pytest.raises(NotImplementedError, match=f"input has .*{said}.*supported: f32, f16, bf16"):
        ops.rms_norm(rows(), rows(dtype), np.ones(4, np.float32))


def test_what_is_no_array_is_a_type_error() -> None:
    for wrong in ([[1.0]], 3.0, "text", object()):
        with pytest.raises(TypeError, match=r"input is an? .*, expected an array|incompatible"):
            ops.rms_norm(rows(), wrong, np.ones(4, np.float32))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="rms_norm"):
        ops.rms_norm(rows(), None, np.ones(4, np.float32))  # type: ignore[arg-type]


def test_any_buffer_is_an_array() -> None:
    y = array.array("f", [0.0] * 4)
    ops.rms_norm(y, memoryview(array.array("f", [3.0] * 4)), array.array("f", [1.0] * 4))  # type: ignore[arg-type]
    assert np.allclose(y, 1)


def test_memory_that_is_not_aligned_to_elements_is_refused() -> None:
    shifted = np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float32)
    if shifted.ctypes.data % 4 == 0:
        pytest.skip("the allocation itself is not aligned")
    for array_of in (shifted, OnlyDlpack(shifted), OnlyDlpack(shifted, versioned=False)):
        with pytest.raises(ValueError, match="input is not aligned to its elements of 4 bytes"):
            ops.rms_norm(np.empty(4, np.float32), array_of, np.ones(4, np.float32))


def test_strides_that_are_no_multiple_of_an_element_are_refused() -> None:
    records = np.zeros(3, np.dtype([("value", np.float32), ("tail", np.uint8)]))["value"]
    with pytest.raises(
        ValueError, match=r"input.strides\[0\] is 5 bytes, expected a multiple of 4"
    ):
        ops.rms_norm(np.empty(3, np.float32), records, np.ones(3, np.float32))


def test_more_than_eight_axes_are_refused(framework: Framework) -> None:
    x = framework.array(np.ones((1,) * 9), "f32")
    with pytest.raises(ValueError, match="rank 9"):
        ops.rms_norm(x, x, framework.array([1.0], "f32"))


@pytest.mark.parametrize("dtype", FLOATS)
def test_transposed_negative_and_broadcast_strides_give_the_values_that_the_array_has(
    dtype: str,
) -> None:
    values = np.arange(1, 25).reshape(4, 6).astype(NUMPY_DTYPES[dtype])
    weight = np.ones(6, np.float32)
    for x in (values[::-1], values[::2], np.broadcast_to(values[1], (3, 6))):
        want, got = np.empty(x.shape, x.dtype), np.empty(x.shape, x.dtype)
        ops.rms_norm(want, np.ascontiguousarray(x), weight)
        ops.rms_norm(got, x, weight)
        assert (got == want).all()
    with pytest.raises(ValueError, match=r"input.stride\(1\) is 6, expected 1"):
        ops.rms_norm(np.empty((6, 4), values.dtype), values.T, np.ones(4, np.float32))


@pytest.mark.parametrize("ids", INTEGERS)
def test_index_arrays_of_any_stride(framework: Framework, ids: str) -> None:
    table = framework.array(np.arange(12).reshape(6, 2), "f32")
    y = framework.array(np.zeros((3, 2)), "f32")
    ops.embedding(y, framework.array([5, 9, 0, 9, 2, 9], ids)[::2], table)
    assert framework.numpy(y).tolist() == [[10, 11], [0, 1], [4, 5]]


@pytest.mark.parametrize("wrap", [lambda a: a, OnlyDlpack])
def test_nothing_is_kept_after_the_call(wrap: Any) -> None:
    class Owner(np.ndarray[Any, Any]):
        """An array that can be watched."""

    x = rows().view(Owner)
    watch = weakref.ref(x)
    ops.rms_norm(rows(), wrap(x), np.ones(4, np.float32))
    with pytest.raises(ValueError, match="weight"):
        ops.rms_norm(rows(), wrap(x), np.ones(5, np.float32))
    del x
    gc.collect()
    assert watch() is None


def test_a_table_keeps_its_weights_alive() -> None:
    import heddle

    class Owner(np.ndarray[Any, Any]):
        """An array that can be watched."""

    weight = np.ones((2, 4), np.float32).view(Owner)
    watch = weakref.ref(weight)
    table = heddle.AdapterTable(3, [4], 2)
    table.set(1, 0, weight)
    del weight
    gc.collect()
    assert watch() is not None
    table.clear(1)
    gc.collect()
    assert watch() is None
