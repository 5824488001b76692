"""Which adapters the prompts of `heddle.LLM` have: one by name, or a list of them with scales."""

from __future__ import annotations

import enum
import json
import os
import pathlib
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, TypeAlias, Union, cast

from heddle import _core

Adapters: TypeAlias = "str | None | Sequence[str | None]"
"""The adapter of all prompts, or one for each; None: the base model."""
AdapterList: TypeAlias = "Sequence[Mapping[str, Any]]"
"""Adapters that act together: `[{"name": "sql", "scale": 0.5}, {"name": "slug"}]`."""
AdapterLists: TypeAlias = "AdapterList | Sequence[AdapterList] | None"
"""The list of all prompts, or one for each."""
Merge: TypeAlias = "Mapping[str, Any]"
"""How such a list acts: `{"method": "ties", "density": 0.5, "majority_sign_method": "total"}`."""
Entry: TypeAlias = "str | None | AdapterList"
"""What one answer of `each_adapter` has; None: the base model."""
_Path: TypeAlias = "str | os.PathLike[str]"
AdapterPaths: TypeAlias = "Mapping[str, _Path] | Sequence[_Path] | _Path | None"
"""Folders or files of adapters: by name, or one or several that are called as their folders are."""
Choice: TypeAlias = Union[str, None, "list[tuple[str, float]]"]
"""What one prompt has: a name, or names with scales."""
BASE = "base"
"""What the programs call the model without an adapter."""


def _json_value(value: object) -> object:
    """What the fields of a PEFT config hold besides JSON's own: enumerations and sets."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Set):
        return sorted(value, key=str)
    if isinstance(value, pathlib.PurePath):
        return str(value)
    raise TypeError(f"config holds a {type(value).__name__}, which is no JSON")


def config_json(config: Any) -> str:
    """The text of an adapter_config.json: of a text, a mapping, or what has `to_dict`, such as
    peft.LoraConfig.

    Raises:
        TypeError: It is none of these, or holds what is no JSON.
    """
    if isinstance(config, str):
        return config
    fields = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(fields, Mapping):
        raise TypeError(
            f"config is {type(config).__name__}, expected a mapping, a text, or a peft.LoraConfig"
        )
    return json.dumps(dict(fields), default=_json_value)


def _array(name: str, tensor: Any) -> Any:
    """The tensor as it can be borrowed: without gradients and without gaps."""
    if hasattr(tensor, "detach"):  # of torch
        return tensor.detach().contiguous()
    flags = getattr(tensor, "flags", None)
    if flags is not None and not getattr(flags, "c_contiguous", True):
        raise ValueError(f'tensor "{name}" is not row-major without gaps')
    return tensor


def arrays_of(tensors: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """Names and arrays of the tensors of an adapter."""
    return list(tensors), [_array(name, tensor) for name, tensor in tensors.items()]


def _name_of_path(path: pathlib.Path) -> str:
    """What an adapter is called that has no other name: as its folder, its file or, of a snapshot
    in the Hugging Face cache, its repository."""
    if not path.name or path.name == "..":
        path = path.resolve()
    if path.parent.name == "snapshots" and path.parents[1].name.startswith("models--"):
        return path.parents[1].name.rsplit("--", 1)[1]
    return path.name.removesuffix(".gguf")


def named_adapters(adapters: AdapterPaths) -> dict[str, str]:
    """Paths by name.

    Raises:
        TypeError: It is no path, no sequence and no mapping of them.
        ValueError: Two without names would be called the same.
    """
    if adapters is None:
        return {}
    if isinstance(adapters, Mapping):
        return {name: os.fspath(path) for name, path in adapters.items()}
    paths = [adapters] if isinstance(adapters, (str, os.PathLike)) else adapters
    if not isinstance(paths, Sequence):
        kind = type(adapters).__name__
        raise TypeError(f"adapters is {kind}, expected a path, a list of paths or a mapping")
    named: dict[str, str] = {}
    for i, given in enumerate(paths):
        if not isinstance(given, (str, os.PathLike)):
            raise TypeError(f"adapters[{i}] is {type(given).__name__}, expected a path")
        path = os.fspath(given)
        name = _name_of_path(pathlib.Path(path))
        if name in named:
            raise ValueError(
                f"two adapters are called {name}: {named[name]} and {path};"
                " name them, adapters={name: path}"
            )
        named[name] = path
    return named


def check_name(name: str, folder: pathlib.Path, adapter_dir: pathlib.Path) -> None:
    """Whether a name that is given is not that of another adapter in `adapter_dir`.

    Raises:
        ValueError: It is.
    """
    for found in (adapter_dir / name, adapter_dir / f"{name}.gguf"):
        # What is not there as a path may be a name in the Hugging Face cache.
        if found.exists() and not (folder.exists() and found.samefile(folder)):
            raise ValueError(
                f"two adapters are called {name}: {folder} and {found}; give one of them another name"
            )


def choice_of(entries: AdapterList) -> Choice:
    """The list as the engine takes it; a scale left out is 1.

    Raises:
        ValueError: An entry has no name, or a field that there is not.
    """
    choice: list[tuple[str, float]] = []
    for i, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise TypeError(f"adapters[{i}] is {type(entry).__name__}, expected a mapping")
        if unknown := [key for key in entry if key not in ("name", "scale")]:
            raise ValueError(f"adapters[{i}] has {unknown[0]!r}, expected name and scale")
        if "name" not in entry:
            raise ValueError(f"adapters[{i}] has no name")
        choice.append((entry["name"], entry.get("scale", 1.0)))
    if not choice:
        raise ValueError("adapters is empty, expected at least one")
    return choice


def choices_of(adapter: Adapters, adapters: AdapterLists, count: int) -> list[Choice]:
    """The choice of each of `count` prompts.

    Raises:
        ValueError: Both are given, or another number of them than one or `count`.
    """
    if adapters is not None:
        if adapter is not None:
            raise ValueError("adapter and adapters are given, expected only one of them")
        if not adapters or isinstance(adapters[0], Mapping):
            return [choice_of(cast(AdapterList, adapters))] * count
        if len(adapters) != count:
            raise ValueError(f"adapters has {len(adapters)} lists, expected one or {count}")
        return [choice_of(entries) for entries in cast(Sequence[AdapterList], adapters)]
    if adapter is None or isinstance(adapter, str):
        return [adapter] * count
    if len(adapter) != count:
        raise ValueError(f"adapter has {len(adapter)} names, expected one or {count}")
    return list(adapter)


def name_of(choice: Choice) -> str | None:
    """The name of the one adapter; None for the base model and for a list."""
    return choice if isinstance(choice, str) else None


def list_of(choice: Choice) -> dict[str, float] | None:
    """The scales of a list by name; None where there is none."""
    return dict(choice) if isinstance(choice, list) else None


def core_list(choice: Choice) -> list[tuple[str, float]]:
    """The choice as a list, empty for the base model."""
    if isinstance(choice, str):
        return [(choice, 1.0)]
    return choice or []


def merge_of(merge: Merge) -> tuple[str, float, str, int]:
    """Method, density, majority sign and seed, as the engine takes them.

    Raises:
        ValueError: It has no method, or a field that there is not.
    """
    if not isinstance(merge, Mapping):
        raise TypeError(f"merge is {type(merge).__name__}, expected a mapping")
    fields = ("method", "density", "majority_sign_method", "seed")
    if unknown := [key for key in merge if key not in fields]:
        raise ValueError(f"merge has {unknown[0]!r}, expected {', '.join(fields)}")
    if "method" not in merge:
        raise ValueError("merge has no method")
    sign = merge.get("majority_sign_method", "total")
    return merge["method"], merge.get("density", 0.0), sign, merge.get("seed", 0)


def set_adapters(request: _core.Request, choice: Choice, merge: Merge | None = None) -> None:
    """Gives a request its list, if it has one, and how it acts."""
    if isinstance(choice, list):
        request.adapters = choice
    if merge is not None:
        request.merge = merge_of(merge)


Running: TypeAlias = Literal["finish", "switch"]


def switches(running: str, replace: bool = True) -> bool:
    """Whether prompts that run go on with the new adapter."""
    if running not in ("finish", "switch"):
        raise ValueError(f'running is {running!r}, expected "finish" or "switch"')
    if running == "switch" and not replace:
        raise ValueError('running="switch" needs replace=True')
    return running == "switch"
