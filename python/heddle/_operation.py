"""How a declaration in `heddle.ops` becomes a function, and what is known of every operation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

from heddle import _core


class Array(Protocol):
    """Whatever holds an array: NumPy, torch, CuPy, JAX, or anybody else who offers DLPack."""

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """DLPack's device type and index."""


@dataclass(frozen=True)
class Operation:
    """One public operation."""

    name: str
    mutates: tuple[str, ...]
    """Names of the array arguments that it writes to; of a tuple's field as "cache.k_pages"."""
    only_read: tuple[str, ...]
    """Those of them that it only reads: what it writes is memory that they give addresses of."""
    declared: Callable[..., Any]
    """The declaration: signature, types and docstring."""
    implementation: Callable[..., Any]
    """The function of heddle._core."""
    traceable: bool
    """Whether it can be a torch operator: it takes arrays, lists of them and plain scalars."""


OPERATIONS: dict[str, Operation] = {}
"""All operations by name."""

_OBJECTS = (_core.AdapterTable, _core.PackedWeight)

# Set by heddle.torch: the torch operators by name, and torch.compiler.is_compiling.
_torch_operators: dict[str, Callable[..., Any]] | None = None
_is_compiling: Callable[[], bool] | None = None

P = ParamSpec("P")
R = TypeVar("R")


def operation(
    *, mutates: Sequence[str], only_read: Sequence[str] = (), traceable: bool = True
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes the function of heddle._core that has the declaration's name callable under it.

    An eager call goes straight to heddle._core, from Python 3.12 on without running the function
    made here; while torch.compile traces, it becomes a call of the torch operator that
    heddle.torch makes of the declaration.
    """

    def bind(declared: Callable[P, R]) -> Callable[P, R]:
        name = declared.__name__
        implementation: Callable[..., R] = getattr(_core, name)
        OPERATIONS[name] = Operation(
            name, tuple(mutates), tuple(only_read), declared, implementation, traceable
        )

        @functools.wraps(declared)
        def traced(*args: P.args, **kwargs: P.kwargs) -> R:
            return _traced_call(name, implementation, args, kwargs)

        return eagerly(implementation)(traced)

    return bind


def eagerly(
    implementation: Callable[..., Any],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes eager calls of a function calls of `implementation`, which takes the same arguments.

    The function itself is for torch.compile, and says in operations what the other does.
    """

    def bind(traced: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(traced)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if _is_compiling is not None and _is_compiling():
                return traced(*args, **kwargs)
            result: R = implementation(*args, **kwargs)
            return result

        _core.call_directly(call, implementation)
        return call

    return bind


def _traced_call(
    name: str, implementation: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> R:
    operators = _torch_operators or {}
    takes_object = any(isinstance(a, _OBJECTS) for a in (*args, *kwargs.values()))
    if name in operators and not takes_object:
        result: R = operators[name](*args, **kwargs)
        return result
    return implementation(*args, **kwargs)


def use_torch_operators(
    operators: dict[str, Callable[..., Any]], is_compiling: Callable[[], bool]
) -> None:
    """Called by heddle.torch: from now on traced calls go to these operators."""
    global _is_compiling, _torch_operators
    _torch_operators = operators
    _is_compiling = is_compiling
