"""Every operation on torch's CUDA tensors: called, and as a captured graph that takes other values."""

from __future__ import annotations

from typing import Any

import pytest
from operator_cases import CASES, arrays_of, check_values, converted, operation_of
from torch_on_gpu import GPU, seed_of_torch, torch

from heddle import ops

__all__ = ["seed_of_torch"]

CPU_ALONE = {"dequantize"}


def there(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments on the GPU, each tensor with the strides that the array has."""

    def on_gpu(array: Any) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        strides = [abs(stride) for stride in tensor.stride()]
        moved = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=GPU)
        return moved.copy_(tensor)

    moved: dict[str, Any] = converted(given, on_gpu)
    return moved


def back(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments as NumPy's arrays."""
    arrays: dict[str, Any] = converted(given, lambda t: t.cpu().numpy(), torch.Tensor)
    return arrays


@pytest.mark.parametrize("name", [name for name in CASES if operation_of(name) not in CPU_ALONE])
def test_outputs_have_the_values_of_the_formula(name: str) -> None:
    operation = getattr(ops, operation_of(name))
    given, want = CASES[name]()
    called = there(given)
    operation(**called)
    check_values(back(called), want, 8e-3)

    replayed = there(given)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        operation(**replayed)
    given, want = CASES[name]()
    for to, source in zip(arrays_of(replayed, torch.Tensor), arrays_of(given), strict=True):
        to.copy_(torch.from_numpy(source))
    graph.replay()
    check_values(back(replayed), want, 8e-3)


@pytest.mark.parametrize("name", sorted(CPU_ALONE))
def test_an_operation_without_cuda_kernel_is_refused(name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"{name}: no implementation for cuda:0"):
        getattr(ops, name)(**there(CASES[name]()[0]))
