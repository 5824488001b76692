"""The operations as torch operators `torch.ops.heddle.<name>`, for torch.compile and CUDA graphs.

`import heddle` imports this module where torch has been imported before; import it yourself where
torch comes later. Calls of `heddle.ops` then need nothing else: eager ones go past torch's
dispatcher, traced ones become operators that state what they write and leave no graph break.

Operations that take a `heddle.AdapterTable` or a `heddle.PackedWeight` are no operators:
torch.compile breaks the graph around such a call.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from heddle._operation import OPERATIONS, Array, Operation, use_torch_operators

_SCALARS = {int: "SymInt", float: "float", bool: "bool", str: "str"}


def _alternatives(annotation: Any) -> list[Any]:
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return list(typing.get_args(annotation)) if is_union else [annotation]


def _type_of(annotation: Any, alias: str) -> str | None:
    """The schema's type of one alternative of an annotation, None where torch has none."""
    if annotation is Array:
        return f"Tensor{alias}"
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if typing.get_origin(annotation) in (list, tuple, Sequence):
        element = _type_of(typing.get_args(annotation)[0], alias)
        return element and f"{element}[]"
    return None


def _default_of(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return ""
    if isinstance(parameter.default, str):
        return f'="{parameter.default}"'
    return f"={parameter.default}"


@dataclass(frozen=True)
class _Schema:
    text: str
    names: tuple[str, ...]
    """The arguments in the schema's order."""
    counts: tuple[str, ...]
    """Those that are an array or an int. A schema knows no such unions: the array keeps the name,
    and an int is given as `<name>_value`."""


def schema_of(operation: Operation) -> _Schema:
    """The torch schema that follows from a declaration; all arguments may be given by position."""
    hints = typing.get_type_hints(operation.declared)
    parameters = inspect.signature(operation.declared).parameters.values()
    required: list[str] = []
    defaulted: list[str] = []
    counts: list[str] = []
    for place, parameter in enumerate(parameters):
        alias = f"(a{place}!)" if parameter.name in operation.mutates else ""
        options = _alternatives(hints[parameter.name])
        found = {t for t in (_type_of(option, alias) for option in options) if t is not None}
        optional = "?" if type(None) in options else ""
        default = _default_of(parameter)
        if found == {"Tensor", "SymInt"}:
            counts.append(parameter.name)
            defaulted.append(f"SymInt? {parameter.name}_value=None")
            found, optional, default = {"Tensor"}, "?", "=None"
        if len(found) != 1:
            raise TypeError(f"{operation.name}: no schema for {parameter.name}: {options}")
        argument = f"{found.pop()}{optional} {parameter.name}{default}"
        (defaulted if default else required).append(argument)
    arguments = required + defaulted
    names = tuple(argument.split("=")[0].split()[-1] for argument in arguments)
    return _Schema(f"({', '.join(arguments)}) -> ()", names, tuple(counts))


def _register(operation: Operation) -> Callable[..., Any]:
    schema = schema_of(operation)

    def run(*args: Any) -> None:
        given = dict(zip(schema.names, args, strict=False))
        for name in schema.counts:
            value = given.pop(f"{name}_value", None)
            given[name] = value if given.get(name) is None else given[name]
        operation.implementation(**given)

    operator = torch.library.custom_op(
        f"heddle::{operation.name}", run, mutates_args=operation.mutates, schema=schema.text
    )
    # Outputs are given by the caller: a call makes no tensor, so there is nothing to make up.
    operator.register_fake(lambda *args: None)
    overload = getattr(torch.ops.heddle, operation.name).default
    declared_names = tuple(inspect.signature(operation.declared).parameters)
    counts = schema.counts

    def call(*args: Any, **kwargs: Any) -> None:
        given = dict(zip(declared_names, args, strict=False)) | kwargs
        for name in counts:
            value = given.get(name)
            if value is not None and not isinstance(value, torch.Tensor):
                given[name] = None
                given[f"{name}_value"] = value
        overload(**given)

    return call


OPERATORS = {name: _register(op) for name, op in OPERATIONS.items() if op.traceable}
"""The torch operators by the names of the operations."""

use_torch_operators(OPERATORS, torch.compiler.is_compiling)
