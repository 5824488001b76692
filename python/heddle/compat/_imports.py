"""Makes the import paths of other packages resolve to the drop-in modules, and undoes it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

_LORAX_OPS = (
    "bgmv_expand",
    "bgmv_expand_slice",
    "bgmv_shrink",
    "sgmv_expand",
    "sgmv_expand_slice",
    "sgmv_shrink",
)
_MEGATRON = "megatron.core.inference.text_generation_controllers"
_PUNICA = {"punica_kernels": "heddle.compat.punica_kernels"}

# What each name of install() makes resolve: original path to our module, or to "module:function"
# where a module of the original holds one function of its own name.
_TARGETS: dict[str, dict[str, str]] = {
    "lorax": {
        **_PUNICA,
        "lorax_server.models.metadata_kernels": "heddle.compat.lorax.metadata_kernels",
        **{
            f"lorax_server.utils.ops.{name}": f"heddle.compat.lorax.ops:{name}"
            for name in _LORAX_OPS
        },
    },
    "megatron": {
        f"{_MEGATRON}.mtp_utils_pytorch": "heddle.compat.megatron.mtp_utils",
        f"{_MEGATRON}.mtp_utils_triton": "heddle.compat.megatron.mtp_utils",
    },
    "punica": _PUNICA,
}

_ABSENT = object()


class _FunctionModule(ModuleType):
    """A module that holds the function of its name and can be called like it.

    So `from lorax_server.utils.ops import bgmv_shrink` gives something to call whether or not the
    module `lorax_server.utils.ops.bgmv_shrink`, which takes the same place in its package, has been
    imported.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


class _Resolver(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads the paths in `targets`; None means a package that only holds others."""

    def __init__(self) -> None:
        self.targets: dict[str, str | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.targets:
            return None
        is_package = self.targets[fullname] is None
        return importlib.machinery.ModuleSpec(
            fullname, self, origin="heddle.compat", is_package=is_package
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        holds_function = ":" in (self.targets[spec.name] or "")
        return _FunctionModule(spec.name) if holds_function else None

    def exec_module(self, module: ModuleType) -> None:
        target = self.targets[module.__name__]
        if target is None:
            return
        module_name, _, function_name = target.partition(":")
        ours = importlib.import_module(module_name)
        if function_name:
            function = getattr(ours, function_name)
            module.__doc__ = function.__doc__
            setattr(module, function_name, function)
        else:
            sys.modules[module.__name__] = ours  # the import system goes on with what it finds here


class _Replaced(NamedTuple):
    """What an original path held before: in sys.modules, and as an attribute of its package."""

    module: ModuleType | None
    attribute: object


_resolver = _Resolver()
_installed: set[str] = set()
_replaced: dict[str, _Replaced] = {}


def install(name: str) -> None:
    """Makes the original import paths of `name` resolve to heddle's modules, until uninstall(name).

    Packages above those paths are made up where they are not installed; where they are, they stay,
    and only the modules named here are replaced. Modules that have imported a function before keep
    it. A second call changes nothing.

    Args:
        name: "punica" (punica_kernels), "lorax" (punica_kernels,
            lorax_server.models.metadata_kernels and lorax_server.utils.ops with its modules) or
            "megatron" (both mtp_utils modules).

    Raises:
        ValueError: Another name.
    """
    targets = _targets_of(name)
    if name in _installed:
        return
    _installed.add(name)
    if _resolver not in sys.meta_path:
        sys.meta_path.insert(0, _resolver)
    added = {path: ours for path, ours in targets.items() if path not in _resolver.targets}
    for path, ours in added.items():
        _resolver.targets.update((package, None) for package in _missing_packages(path))
        _replaced[path] = _take_out(path)
        _resolver.targets[path] = ours
    try:
        for path in added:
            # Packages that are installed but not loaded are left to their first import: they may be
            # heavy, or fail.
            if all(
                package in sys.modules or package in _resolver.targets
                for package in _packages_above(path)
            ):
                importlib.import_module(path)
    except BaseException:
        uninstall(name)
        raise


def uninstall(name: str) -> None:
    """Undoes install(name): the paths are again what they were before, or again absent.

    A path that another name has installed, too, stays until that one is uninstalled. Without an
    install nothing happens.

    Raises:
        ValueError: A name that install() does not know.
    """
    _targets_of(name)
    _installed.discard(name)
    needed = {path for other in _installed for path in _targets_of(other)}
    needed |= {package for path in needed for package in _packages_above(path)}
    for path in sorted(_resolver.targets.keys() - needed, key=len, reverse=True):
        del _resolver.targets[path]
        _put_back(path, _replaced.pop(path, _Replaced(None, _ABSENT)))
    if not _resolver.targets and _resolver in sys.meta_path:
        sys.meta_path.remove(_resolver)


def _targets_of(name: str) -> dict[str, str]:
    if name not in _TARGETS:
        raise ValueError(f'name is "{name}", expected one of {", ".join(_TARGETS)}')
    return _TARGETS[name]


def _packages_above(path: str) -> Iterator[str]:
    """The packages that hold `path`, outermost first."""
    parts = path.split(".")
    return (".".join(parts[:depth]) for depth in range(1, len(parts)))


def _missing_packages(path: str) -> list[str]:
    """The packages above `path` that are not loaded and that no other finder has; imports nothing."""
    missing: list[str] = []
    search: Sequence[str] | None = None
    for package in _packages_above(path):
        if package in sys.modules:
            search = getattr(sys.modules[package], "__path__", None)
            continue
        spec = None if missing else _find_elsewhere(package, search)
        if spec is None:
            missing.append(package)
        else:
            search = spec.submodule_search_locations
    return missing


def _find_elsewhere(
    fullname: str, search: Sequence[str] | None
) -> importlib.machinery.ModuleSpec | None:
    finders: list[Any] = [finder for finder in sys.meta_path if finder is not _resolver]
    for finder in finders:
        if finder is importlib.machinery.PathFinder:
            spec = _find_on_path(fullname, sys.path if search is None else search)
        elif hasattr(finder, "find_spec"):
            spec = finder.find_spec(fullname, search)
        else:
            spec = None
        if spec is not None:
            return spec
    return None


def _find_on_path(
    fullname: str, search: Sequence[str]
) -> importlib.machinery.ModuleSpec | None:
    """What PathFinder finds, which itself wants the parent of a namespace package to be loaded."""
    portions: list[str] = []
    for entry in search:
        finder = pkgutil.get_importer(entry or os.getcwd())
        spec = finder.find_spec(fullname) if finder is not None else None
        if spec is None:
            continue
        if spec.loader is not None:
            return spec
        portions += spec.submodule_search_locations or []
    if not portions:
        return None
    namespace = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
    namespace.submodule_search_locations = portions
    return namespace


def _take_out(path: str) -> _Replaced:
    package, _, name = path.rpartition(".")
    attribute = vars(sys.modules[package]).pop(name, _ABSENT) if package in sys.modules else _ABSENT
    return _Replaced(sys.modules.pop(path, None), attribute)


def _put_back(path: str, replaced: _Replaced) -> None:
    _take_out(path)
    package, _, name = path.rpartition(".")
    if replaced.module is not None:
        sys.modules[path] = replaced.module
    if replaced.attribute is not _ABSENT and package in sys.modules:
        setattr(sys.modules[package], name, replaced.attribute)
