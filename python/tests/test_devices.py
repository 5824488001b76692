"""Arrays on a GPU: the stream of a call, and what is said without a kernel. No GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import operator_cases
import pytest
from producers import OfTorch, OnGpu

import heddle
from heddle import _core, ops


def rows() -> Any:
    return np.ones((3, 4), np.float32)


@pytest.fixture
def torch_stream() -> Any:
    """Sets the stream that torch works on."""

    def choose(stream: int) -> None:
        OfTorch.current_stream = stream

    yield choose
    OfTorch.current_stream = 0


def test_arrays_of_the_cpu_have_no_stream() -> None:
    assert _core.place_of_call(rows(), rows()) == ("cpu", 0)


@pytest.mark.parametrize("versioned", [True, False])
def test_a_call_runs_on_the_stream_that_the_array_tells(versioned: bool) -> None:
    x, weight = (OnGpu(rows(), stream=0x50, versioned=versioned) for _ in range(2))
    assert _core.place_of_call(x, weight) == ("cuda:99", 0x50)
    assert x.asked_for == weight.asked_for == [0x50]


def test_a_framework_that_tells_no_stream_is_asked_for_the_default_one() -> None:
    for x in (OnGpu(rows()), OnGpu(rows(), stream=1)):
        assert _core.place_of_call(x) == ("cuda:99", 0)
        assert x.asked_for == [1]


def test_torch_works_on_its_current_stream(torch_stream: Callable[[int], None]) -> None:
    x = OfTorch(rows())
    for stream in (0, 0x70, 0x80):
        torch_stream(stream)
        assert _core.place_of_call(x, x) == ("cuda:99", stream)
    assert x.asked_for == []  # its work and the call's are in one order already


def test_an_array_of_another_stream_is_asked_to_be_ready_on_the_first_ones(
    torch_stream: Callable[[int], None],
) -> None:
    torch_stream(0x70)
    of_torch, of_cupy, of_jax = OfTorch(rows()), OnGpu(rows(), stream=0x50), OnGpu(rows())
    assert _core.place_of_call(of_torch, of_cupy, of_jax) == ("cuda:99", 0x70)
    assert (of_torch.asked_for, of_cupy.asked_for, of_jax.asked_for) == ([], [0x70], [0x70])
    assert _core.place_of_call(of_cupy, of_torch) == ("cuda:99", 0x50)
    assert of_torch.asked_for == [0x50]


def test_an_array_on_another_device_is_named() -> None:
    with pytest.raises(ValueError, match="input is on cuda:99, but output is on cpu"):
        ops.rms_norm(rows(), OnGpu(rows()), np.ones(4, np.float32))
    with pytest.raises(ValueError, match="weight is on cpu, but output is on cuda:99"):
        ops.rms_norm(OfTorch(rows()), OnGpu(rows()), np.ones(4, np.float32))


def test_no_operation_reads_the_memory_of_a_device_that_is_not_there() -> None:
    for name, case in operator_cases.CASES.items():
        operation = operator_cases.operation_of(name)
        refusal = f"^({operation}: no implementation for|device is) cuda:99"
        with pytest.raises((ValueError, NotImplementedError), match=refusal):
            getattr(ops, operation)(**operator_cases.converted(case()[0], OnGpu))


def test_a_device_that_is_not_there_is_named() -> None:
    x, slots = OnGpu(rows()), OnGpu(np.zeros(3, np.int64))
    a = OnGpu(np.ones((1, 4, 4), np.float32))
    plan, batch = OnGpu(np.zeros(1 << 16, np.uint8)), heddle.LoraBatch(slot_ids=slots)
    for call in (
        lambda: ops.lora_shrink(x, x, a, batch),
        lambda: ops.lora_expand(x, x, a, batch),
        lambda: ops.lora_plan(plan, batch, 3, 1, 4),
        lambda: heddle.AdapterTable(1, [4], 4, device="cuda:99"),
    ):
        with pytest.raises((ValueError, NotImplementedError), match="device is cuda:99"):
            call()


def test_neither_do_operations_with_tables_and_packed_weights() -> None:
    x, y, slots = OnGpu(rows()), OnGpu(rows()), OnGpu(np.zeros(3, np.int64))
    packed = heddle.PackedWeight(np.ones((4, 4), np.float32), "F32", 4, 4)
    with pytest.raises(NotImplementedError, match="PackedWeight.*cuda:99"):
        heddle.PackedWeight(OnGpu(np.ones((4, 4), np.float32)), "F32", 4, 4)
    on_cpu = "is on cpu, but the arrays are on cuda:99"
    for name, call in (
        ("weight", lambda: ops.linear(y, x, packed)),
        (r"weight\[0\]", lambda: ops.linear([y], x, [packed])),
        (r"weight\[0\]", lambda: ops.linear_site([y], x, [packed])),
        ("table", lambda: ops.embedding(y, slots, packed)),
    ):
        with pytest.raises(ValueError, match=f"^{name} {on_cpu}$"):
            call()


def test_a_packed_weight_moves_to_devices_that_are_there() -> None:
    packed = heddle.PackedWeight(np.ones((4, 4), np.float32), "F32", 4, 4)
    assert packed.device == "cpu"
    copy = packed.to("cpu")
    assert (copy.device, copy.type, copy.nbytes) == ("cpu", "F32", packed.nbytes)
    y = rows()
    ops.linear(y, rows(), copy)
    want = rows()
    ops.linear(want, rows(), packed)
    assert (y == want).all()
    with pytest.raises(ValueError, match='device is "gpu", expected'):
        packed.to("gpu")
    with pytest.raises((NotImplementedError, ValueError), match="cuda:99"):
        packed.to("cuda:99")


def test_a_table_takes_weights_of_its_device() -> None:
    table = heddle.AdapterTable(1, [4], 4)
    assert table.device == "cpu"
    with pytest.raises(ValueError, match="weight is on cuda:99, but the table on cpu"):
        table.set(0, 0, OnGpu(rows()))
    for name in ("gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x"):
        with pytest.raises(ValueError, match=f'device is "{name}", expected'):
            heddle.AdapterTable(1, [4], 4, device=name)
