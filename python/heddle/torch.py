"""The operations as torch operators `torch.ops.heddle.<name>`, for torch.compile and CUDA graphs.

`import heddle` imports this module where torch has been imported before; import it yourself where
torch comes later. Calls of `heddle.ops` then need nothing else: eager ones go past torch's
dispatcher, traced ones become operators that state what they write and leave no graph break.

The operators take flat arguments: `batch=heddle.LoraBatch(slot_ids=...)` becomes
`batch_slot_ids=...`, and so for the fields of all such tuples.

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

from heddle._arguments import TUPLES
from heddle._core import watch_tracing
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


def _default_of(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return ""
    return f'="{default}"' if isinstance(default, str) else f"={default}"


@dataclass(frozen=True)
class _Argument:
    """An argument of a declaration, or a field of one that is a tuple."""

    name: str
    options: list[Any]
    """The alternatives of its type."""
    default: Any


@dataclass(frozen=True)
class _Schema:
    text: str
    names: tuple[str, ...]
    """The arguments in the schema's order."""
    counts: tuple[str, ...]
    """Those that are an array or an int. A schema knows no such unions: the array keeps the name,
    and an int is given as `<name>_value`."""
    tuples: dict[str, type[Any]]
    """Those that are tuples: argument `batch` becomes `batch_slot_ids` and so on."""
    absent: dict[str, Any]
    """The defaults of arrays that are written to. The schema has none for them: torch before 2.15
    looks for each such array where a call has left it out."""


def _tuple_of(options: list[Any]) -> type[Any] | None:
    return next((option for option in options if option in TUPLES), None)


def _arguments_of(operation: Operation) -> tuple[list[_Argument], dict[str, type[Any]]]:
    """All arguments, with the fields of tuples in place of these, and which of them are tuples."""
    hints = typing.get_type_hints(operation.declared)
    flat: list[_Argument] = []
    tuples: dict[str, type[Any]] = {}
    for parameter in inspect.signature(operation.declared).parameters.values():
        options = _alternatives(hints[parameter.name])
        kind = _tuple_of(options)
        if kind is None:
            flat.append(_Argument(parameter.name, options, parameter.default))
            continue
        tuples[parameter.name] = kind
        for field, hint in typing.get_type_hints(kind).items():
            default = kind._field_defaults.get(field, inspect.Parameter.empty)
            flat.append(_Argument(f"{parameter.name}_{field}", _alternatives(hint), default))
    return flat, tuples


def mutated_by(operation: Operation) -> list[str]:
    """The names of what an operation writes to as its torch operator has them."""
    return [name.replace(".", "_") for name in operation.mutates]


def schema_of(operation: Operation) -> _Schema:
    """The torch schema that follows from a declaration; all arguments may be given by position."""
    flat, tuples = _arguments_of(operation)
    mutates = mutated_by(operation)
    required: list[str] = []
    defaulted: list[str] = []
    counts: list[str] = []
    absent: dict[str, Any] = {}
    for place, given in enumerate(flat):
        alias = f"(a{place}!)" if given.name in mutates else ""
        found = {t for t in (_type_of(option, alias) for option in given.options) if t is not None}
        optional = "?" if type(None) in given.options else ""
        default = _default_of(given.default)
        if alias and default:
            absent[given.name], default = given.default, ""
        if found == {"Tensor", "SymInt"}:
            counts.append(given.name)
            defaulted.append(f"SymInt? {given.name}_value=None")
            found, optional, default = {"Tensor"}, "?", "=None"
        if len(found) != 1:
            raise TypeError(f"{operation.name}: no schema for {given.name}: {given.options}")
        argument = f"{found.pop()}{optional} {given.name}{default}"
        (defaulted if default else required).append(argument)
    arguments = required + defaulted
    names = tuple(argument.split("=")[0].split()[-1] for argument in arguments)
    return _Schema(f"({', '.join(arguments)}) -> ()", names, tuple(counts), tuples, absent)


def flattened(given: dict[str, Any], schema: _Schema) -> dict[str, Any]:
    """The arguments of a call as those of its torch operator, by name."""
    flat = dict(schema.absent)
    for name, value in given.items():
        if name in schema.tuples:
            if value is not None:
                for field in value._fields:
                    flat[f"{name}_{field}"] = getattr(value, field)
        elif name in schema.counts and value is not None and not isinstance(value, torch.Tensor):
            flat[name] = None
            flat[f"{name}_value"] = value
        else:
            flat[name] = value
    return flat


def _register(operation: Operation) -> Callable[..., Any]:
    schema = schema_of(operation)
    counts, tuples = schema.counts, schema.tuples

    def run(*args: Any) -> None:
        given = dict(zip(schema.names, args, strict=False))
        for name in counts:
            value = given.pop(f"{name}_value", None)
            given[name] = value if given.get(name) is None else given[name]
        for name, kind in tuples.items():
            fields = {field: f"{name}_{field}" for field in kind._fields}
            given[name] = kind(**{f: given.pop(n) for f, n in fields.items() if n in given})
        operation.implementation(**given)

    operator = torch.library.custom_op(
        f"heddle::{operation.name}", run, mutates_args=mutated_by(operation), schema=schema.text
    )
    # Outputs are given by the caller: a call makes no tensor, so there is nothing to make up.
    operator.register_fake(lambda *args: None)
    overload = getattr(torch.ops.heddle, operation.name).default
    declared_names = tuple(inspect.signature(operation.declared).parameters)

    def call(*args: Any, **kwargs: Any) -> None:
        given = dict(zip(declared_names, args, strict=False)) | kwargs
        overload(**flattened(given, schema))

    return call


OPERATORS = {name: _register(op) for name, op in OPERATIONS.items() if op.traceable}
"""The torch operators by the names of the operations."""

use_torch_operators(OPERATORS, torch.compiler.is_compiling)
watch_tracing(vars(torch.compiler), "_is_compiling_flag")
