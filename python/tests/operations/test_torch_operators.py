"""Every operation of arrays and scalars under torch.compile, and as a registered torch operator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frameworks import TORCH_WANTED

if not TORCH_WANTED:
    pytest.skip("skipped: HEDDLE_TEST_TORCH=0", allow_module_level=True)

import torch
from operator_cases import CASES, arrays_of, converted

import heddle.torch
from heddle import ops
from heddle._operation import OPERATIONS

each_operation = pytest.mark.parametrize("name", [name for name in CASES if name in OPERATIONS])


@pytest.fixture(autouse=True)
def seed_of_torch(rng: np.random.Generator) -> None:
    """Torch's random data repeat with HEDDLE_TEST_SEED, too."""
    torch.manual_seed(int(rng.integers(2**31)))


def arguments_of(name: str) -> dict[str, Any]:
    """The arguments of a case as tensors."""
    arguments: dict[str, Any] = converted(CASES[name]()[0], torch.from_numpy)
    return arguments


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = a.contiguous(), b.contiguous()
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@each_operation
def test_compiled_without_graph_break_gives_the_bits_of_the_eager_call(name: str) -> None:
    """Also of other values than those that were traced."""
    operation: Callable[..., None] = getattr(ops, name)
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(given: dict[str, Any]) -> None:
        operation(**given)

    for _ in range(2):
        given = arguments_of(name)
        before = [t.clone() for t in arrays_of(given, torch.Tensor)]
        eager = converted(given, torch.Tensor.clone, torch.Tensor)
        operation(**eager)
        results = arrays_of(eager, torch.Tensor)
        assert not all(map(same_bits, before, results)), f"the call {name} changes nothing"
        step(given)
        assert all(map(same_bits, arrays_of(given, torch.Tensor), results))


@each_operation
def test_opcheck(name: str) -> None:
    given = heddle.torch.flattened(arguments_of(name), heddle.torch.schema_of(OPERATIONS[name]))
    torch.library.opcheck(getattr(torch.ops.heddle, name).default, (), given)


def test_an_eager_call_does_not_pass_the_dispatcher() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Refuse(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise AssertionError(f"{func} was dispatched")

    x, y, weight = torch.ones(2, 8), torch.empty(2, 8), torch.ones(8)
    with Refuse():
        ops.rms_norm(y, x, weight)
    assert (y - 1).abs().max() < 1e-6


def test_inductor_keeps_calls_in_order_with_the_code_around_them() -> None:
    @torch.compile(fullgraph=True)
    def step(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        ops.rms_norm(y, x, weight)
        y += 1
        ops.fused_add_rms_norm(y, x, y, weight)
        return x * 2

    x, weight = torch.randn(3, 16), torch.randn(16)
    want = x.clone()
    y = torch.empty_like(x)
    ops.rms_norm(y, want, weight)
    ops.fused_add_rms_norm(y, want, y + 1, weight)
    assert torch.equal(step(x, weight), want * 2)
    assert torch.equal(x, want)


def test_tensors_that_require_grad_are_taken_as_values() -> None:
    x = torch.randn(2, 8, requires_grad=True)
    weight = torch.nn.Parameter(torch.ones(8))
    y = torch.empty(2, 8)
    ops.rms_norm(y, x, weight)
    assert not y.requires_grad
    want = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    assert (y - want).abs().max() < 1e-6


def test_a_meta_tensor_is_refused() -> None:
    x = torch.ones(2, 8)
    with pytest.raises(ValueError, match="input: its framework does not export it"):
        ops.rms_norm(x, x.to("meta"), x[0])


def test_import_heddle_leaves_torch_alone() -> None:
    code = "import sys, heddle; assert not {'torch', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = (
        "import torch, sys, heddle; assert 'heddle.torch' in sys.modules; torch.ops.heddle.rms_norm"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
