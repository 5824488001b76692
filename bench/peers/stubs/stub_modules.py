"""Fake modules, for race/ and for the test files of other projects that tests/ runs."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types
from typing import Any


def module(name: str, **members: Any) -> types.ModuleType:
    """A module of these members, which `import` finds from now on."""
    made = types.ModuleType(name)
    vars(made).update(members)
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, made)
    return made


def package(name: str, folder: pathlib.Path = pathlib.Path("/nowhere"), **members: Any) -> types.ModuleType:
    """A package whose modules are the files of the folder, without running its __init__."""
    return module(name, __path__=[str(folder)], **members)


def load(name: str, file: pathlib.Path) -> None:
    """The file as the module `name`."""
    spec = importlib.util.spec_from_file_location(name, file)
    spec.loader.exec_module(module(name, **vars(importlib.util.module_from_spec(spec))))
