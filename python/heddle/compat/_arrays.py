"""What the drop-in modules need of array frameworks, none of which is imported here."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from heddle import _core


def is_torch(array: Any) -> bool:
    """Whether it is a tensor of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def empty(like: Any, shape: Sequence[int], dtype: str) -> Any:
    """A new array of `like`'s framework on its device; `dtype` is "bool", "int32" or "int64"."""
    if is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
    return _namespace(like).empty(shape, dtype=dtype)


def empty_like(like: Any, dtype: str | None = None) -> Any:
    """A new array of the same framework, device and shape; `dtype` None is that of `like`."""
    if is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty_like(like, dtype=None if dtype is None else getattr(torch, dtype))
    return _namespace(like).empty_like(like, dtype=dtype)


def addresses(table: Any) -> Any:
    """A table of addresses as int64; one of uint64 is looked at as such."""
    if is_torch(table):
        torch = sys.modules["torch"]
        return table.view(torch.int64) if table.dtype is torch.uint64 else table
    dtype = getattr(table, "dtype", None)
    return (
        table.view("int64")
        if getattr(dtype, "kind", None) == "u" and table.itemsize == 8
        else table
    )


def dtype_name(array: Any) -> str:
    """ "f32", "f16", "bf16", and other dtypes by the name that their framework gives them."""
    return name_of(array.dtype)


@functools.cache
def name_of(dtype: Any) -> str:
    """The name of a dtype of any framework."""
    name = str(dtype).rpartition(".")[2]
    return {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}.get(name, name)


def last_axis_has_gaps(array: Any) -> bool:
    """Whether neighbours along the last axis lie apart in memory."""
    if is_torch(array):
        return bool(array.ndim and array.stride(-1) != 1 and array.shape[-1] > 1)
    # In bytes; frameworks whose arrays have no gaps have none.
    strides = getattr(array, "strides", None)
    return bool(strides and strides[-1] != array.itemsize and array.shape[-1] > 1)


def without_gaps(array: Any) -> Any:
    """The array, or a copy of it where the last axis has gaps."""
    if not last_axis_has_gaps(array):
        return array
    return array.detach().contiguous() if is_torch(array) else array.copy(order="C")


def in_any_layout(call: Callable[..., None], output: Any, *inputs: Any) -> None:
    """call(output, *inputs), where the operation called may refuse gaps in a last axis.

    Those that have any are then copied, the output too, and its copy is written back. To look at
    them first would take longer than a call. An operation checks everything before it writes.
    """
    try:
        call(output, *inputs)
        return
    except (ValueError, NotImplementedError):
        scratch, *copies = given = [without_gaps(addresses(array)) for array in (output, *inputs)]
        if all(copy is array for copy, array in zip(given, (output, *inputs), strict=True)):
            raise
        if scratch is not output:
            _core.check_output("output", output)
    call(scratch, *copies)
    if scratch is not output:
        (output.detach() if is_torch(output) else output)[...] = scratch


def _namespace(array: Any) -> Any:
    """The module that an array's type comes from: numpy, cupy, and others with their functions."""
    return sys.modules[type(array).__module__.partition(".")[0]]
