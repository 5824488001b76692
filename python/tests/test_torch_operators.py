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

import operator_cases
import torch

import heddle.torch
from heddle import ops
from heddle._arguments import TUPLES
from heddle._operation import OPERATIONS

TRACEABLE = [
    name
    for name, op in OPERATIONS.items()
    if op.traceable and name not in operator_cases.CUDA_ALONE
]


@pytest.fixture(autouse=True)
def seed_of_torch(rng: np.random.Generator) -> None:
    """Torch's random data repeat with HEDDLE_TEST_SEED, too."""
    torch.manual_seed(int(rng.integers(2**31)))


def call_of(name: str) -> tuple[list[Any], dict[str, Any]]:
    assert name in operator_cases.CASES, f"operator_cases.py has no call of {name}"
    return operator_cases.CASES[name]()


def clones(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return values.clone()
    if isinstance(values, TUPLES):
        return type(values)(*(clones(v) for v in values))
    if isinstance(values, list):
        return [clones(v) for v in values]
    if isinstance(values, dict):
        return {k: clones(v) for k, v in values.items()}
    return values


def tensors(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    items = values.values() if isinstance(values, dict) else values
    return [
        t for v in items if isinstance(v, (torch.Tensor, list, tuple, dict)) for t in tensors(v)
    ]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("name", TRACEABLE)
def test_compiled_without_graph_break_gives_the_bits_of_the_eager_call(name: str) -> None:
    operation: Callable[..., None] = getattr(ops, name)
    args, kwargs = call_of(name)
    before = clones(tensors([args, kwargs]))
    eager_args, eager_kwargs = clones(args), clones(kwargs)
    operation(*eager_args, **eager_kwargs)
    eager = tensors([eager_args, eager_kwargs])
    changed = [
        not same_bits(a.contiguous(), b.contiguous()) for a, b in zip(before, eager, strict=True)
    ]
    assert any(changed), f"the call of {name} in operator_cases.py changes nothing"

    torch._dynamo.reset()

    def step(args: list[Any], kwargs: dict[str, Any]) -> None:
        operation(*args, **kwargs)

    torch.compile(step, fullgraph=True, backend="aot_eager")(args, kwargs)
    for got, want in zip(tensors([args, kwargs]), eager, strict=True):
        assert same_bits(got.contiguous(), want.contiguous())


@pytest.mark.parametrize("name", TRACEABLE)
def test_opcheck(name: str) -> None:
    args, kwargs = call_of(name)
    names = list(OPERATIONS[name].declared.__code__.co_varnames)
    given = dict(zip(names, args, strict=False)) | kwargs
    schema = heddle.torch.schema_of(OPERATIONS[name])
    given = heddle.torch.flattened(given, schema)
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
