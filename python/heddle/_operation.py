"""How a declaration in `heddle.ops` becomes a function, and what is known of every operation."""

from __future__ import annotations

import functools
import sys
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
    """Names of the array arguments that it writes to."""
    declared: Callable[..., Any]
    """The declaration: signature, types and docstring."""
    traceable: bool
    """Whether it can be a torch operator: its arguments are arrays, lists of them and plain scalars."""


OPERATIONS: dict[str, Operation] = {}
"""All operations by name."""

_torch_operators: dict[str, Callable[..., Any]] | None = None
"""The torch operators by name, once heddle.torch has registered them."""


def _is_compiling() -> bool:
    return False


P = ParamSpec("P")
R = TypeVar("R")


def operation(*, mutates: Sequence[str], traceable: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes the function of heddle._core that has the declaration's name callable under it.

    An eager call goes straight to heddle._core; while torch.compile traces, it becomes a call of the torch operator.
    """

    def bind(declared: Callable[P, R]) -> Callable[P, R]:
        name = declared.__name__
        OPERATIONS[name] = Operation(name, tuple(mutates), declared, traceable)
        implementation: Callable[..., R] = getattr(_core, name)

        @functools.wraps(declared)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if _torch_operators is not None and _is_compiling() and name in _torch_operators:
                result: R = _torch_operators[name](*args, **kwargs)
                return result
            return implementation(*args, **kwargs)

        return call

    return bind


def use_torch_operators(operators: dict[str, Callable[..., Any]], is_compiling: Callable[[], bool]) -> None:
    """Called by heddle.torch: from now on traced calls go to these operators."""
    global _is_compiling, _torch_operators
    _is_compiling = is_compiling
    _torch_operators = operators


def is_torch_imported() -> bool:
    """Whether this process uses torch."""
    return "torch" in sys.modules
