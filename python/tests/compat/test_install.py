"""heddle.compat.install and uninstall: which module an import gives before, between and after."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from heddle import compat

ROOTS = ("punica_kernels", "lorax_server", "megatron")
CONTROLLERS = "megatron.core.inference.text_generation_controllers"
OPS = [
    "bgmv_expand",
    "bgmv_expand_slice",
    "bgmv_shrink",
    "sgmv_expand",
    "sgmv_expand_slice",
    "sgmv_shrink",
]


def of_others() -> dict[str, Any]:
    """The loaded modules whose paths the tests deal with."""
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in ROOTS}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Each test starts without originals and without an install, and leaves none."""
    assert not of_others()
    finders = list(sys.meta_path)
    yield
    for name in ("lorax", "megatron", "punica"):
        compat.uninstall(name)
    for name in of_others():
        del sys.modules[name]
    assert sys.meta_path == finders


def write_package(folder: pathlib.Path, path: str, text: str = "") -> None:
    """The module `path` in `folder`, with the packages above it."""
    *packages, name = path.split(".")
    for package in packages:
        folder = folder / package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    (folder / f"{name}.py").write_text(text)


@pytest.fixture
def originals(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Packages that stand for the originals, on sys.path."""
    mark = "ORIGIN = 'original'\n"
    write_package(tmp_path, "punica_kernels", mark + "def dispatch_bgmv(): return 'original'\n")
    write_package(
        tmp_path,
        "lorax_server.models.metadata_kernels",
        mark + "def has_triton(): return 'original'\n",
    )
    write_package(
        tmp_path,
        "lorax_server.models.flash_causal_lm",
        "from .metadata_kernels import has_triton\n",
    )
    write_package(tmp_path, "lorax_server.utils.ops.libentry", mark)
    for name in OPS:
        write_package(
            tmp_path, f"lorax_server.utils.ops.{name}", mark + f"def {name}(): return 'original'\n"
        )
    for name in ("mtp_utils_triton", "mtp_utils_pytorch"):
        write_package(
            tmp_path, f"{CONTROLLERS}.{name}", mark + "def rewind_kv_cache(): return 'original'\n"
        )
    write_package(tmp_path, f"{CONTROLLERS}.text_generation_controller", mark)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def absent(path: str) -> bool:
    try:
        importlib.import_module(path)
    except ModuleNotFoundError:
        return True
    return False


def test_punica_without_the_original() -> None:
    assert absent("punica_kernels")
    compat.install("punica")
    import punica_kernels
    from punica_kernels import dispatch_bgmv

    assert punica_kernels is compat.punica_kernels is sys.modules["punica_kernels"]
    assert dispatch_bgmv is compat.punica_kernels.dispatch_bgmv
    assert punica_kernels.__name__ == "heddle.compat.punica_kernels"
    assert importlib.util.find_spec("heddle.compat.punica_kernels") is punica_kernels.__spec__
    assert absent("lorax_server") and absent("megatron")
    compat.uninstall("punica")
    assert absent("punica_kernels") and not of_others()


def test_lorax_without_the_original() -> None:
    compat.install("lorax")
    import lorax_server.models.metadata_kernels
    import lorax_server.models.metadata_kernels as by_alias
    import lorax_server.utils.ops.sgmv_shrink
    import punica_kernels
    from lorax_server.models import metadata_kernels
    from lorax_server.models.metadata_kernels import has_triton
    from lorax_server.utils import ops

    ours = compat.lorax.metadata_kernels
    assert lorax_server.models.metadata_kernels is by_alias is metadata_kernels is ours
    assert has_triton is ours.has_triton and punica_kernels is compat.punica_kernels
    assert (
        lorax_server.utils.ops is ops
        and lorax_server.utils.ops.sgmv_shrink is sys.modules[ops.__name__ + ".sgmv_shrink"]
    )
    for name in OPS:
        module = importlib.import_module(f"lorax_server.utils.ops.{name}")
        assert module.__name__ == f"lorax_server.utils.ops.{name}" and getattr(ops, name) is module
        assert getattr(module, name) is getattr(compat.lorax.ops, name)
    assert absent("lorax_server.utils.ops.libentry") and absent("lorax_server.server")
    compat.uninstall("lorax")
    assert not of_others() and absent("lorax_server")


def test_lorax_ops_are_functions_in_ours_and_callable_modules_in_theirs() -> None:
    for name in OPS:
        assert type(getattr(compat.lorax.ops, name)).__name__ == "function"
    compat.install("lorax")
    importlib.import_module("lorax_server.utils.ops.bgmv_shrink")
    from lorax_server.utils.ops import bgmv_shrink

    assert type(compat.lorax.ops.bgmv_shrink).__name__ == "function"
    assert bgmv_shrink.__doc__ == compat.lorax.ops.bgmv_shrink.__doc__
    with pytest.raises(TypeError, match="override_config is a int"):
        bgmv_shrink(None, None, None, None, override_config=1)
    assert absent("heddle.compat.lorax.ops.bgmv_shrink")


def test_megatron_without_the_original() -> None:
    compat.install("megatron")
    for name in ("mtp_utils_triton", "mtp_utils_pytorch"):
        assert importlib.import_module(f"{CONTROLLERS}.{name}") is compat.megatron.mtp_utils
    from megatron.core.inference.text_generation_controllers.mtp_utils_pytorch import (
        rewind_kv_cache,
    )
    from megatron.core.inference.text_generation_controllers.mtp_utils_triton import (
        verify_speculative_tokens,
    )

    assert rewind_kv_cache is compat.megatron.mtp_utils.rewind_kv_cache
    assert verify_speculative_tokens is compat.megatron.mtp_utils.verify_speculative_tokens
    compat.uninstall("megatron")
    assert not of_others() and absent("megatron")


@pytest.mark.parametrize("name", ["lorax", "megatron", "punica"])
def test_twice_is_once(name: str) -> None:
    compat.install(name)
    before = of_others()
    compat.install(name)
    assert of_others() == before
    compat.uninstall(name)
    assert not of_others()
    compat.uninstall(name)
    compat.install(name)
    assert of_others().keys() == before.keys()


def test_a_path_stays_while_another_name_needs_it() -> None:
    for first, second in [("lorax", "punica"), ("punica", "lorax")]:
        compat.install("lorax")
        compat.install("punica")
        compat.uninstall(first)
        assert importlib.import_module("punica_kernels") is compat.punica_kernels
        assert absent("lorax_server") == (first == "lorax")
        compat.uninstall(second)
        assert not of_others() and absent("punica_kernels")


def test_unknown_names() -> None:
    for function in (compat.install, compat.uninstall):
        with pytest.raises(
            ValueError, match='name is "vllm", expected one of lorax, megatron, punica'
        ):
            function("vllm")
    assert not of_others()


@pytest.mark.usefixtures("originals")
@pytest.mark.parametrize("loaded_before", [False, True])
def test_originals_come_back(loaded_before: bool) -> None:
    paths = ["punica_kernels", "lorax_server.models.metadata_kernels"]
    paths += [f"lorax_server.utils.ops.{name}" for name in OPS]
    paths += [f"{CONTROLLERS}.mtp_utils_triton", f"{CONTROLLERS}.mtp_utils_pytorch"]
    before = {path: importlib.import_module(path) for path in paths} if loaded_before else {}
    loaded = of_others()
    attributes = {name: dict(vars(module)) for name, module in loaded.items()}
    for name in ("lorax", "megatron", "punica"):
        compat.install(name)
    for path in paths:
        module = importlib.import_module(path)
        assert not hasattr(module, "ORIGIN"), path
        package, _, name = path.rpartition(".")
        assert not package or getattr(sys.modules[package], name) is module
    assert importlib.import_module("lorax_server.utils.ops.libentry").ORIGIN == "original"
    assert importlib.import_module(f"{CONTROLLERS}.text_generation_controller").ORIGIN == "original"
    for name in ("punica", "lorax", "megatron"):
        compat.uninstall(name)
    if loaded_before:
        assert {name: module for name, module in of_others().items() if name in loaded} == loaded
        for extra in ("libentry", "text_generation_controller"):
            for values in attributes.values():
                values.pop(extra, None)
        for name, module in loaded.items():
            now = {
                key: value
                for key, value in vars(module).items()
                if key not in ("libentry", "text_generation_controller")
            }
            assert now == attributes[name], name
    for path in paths:
        module = importlib.import_module(path)
        assert module.ORIGIN == "original" and (not before or module is before[path])
        package, _, name = path.rpartition(".")
        assert not package or getattr(sys.modules[package], name) is module


@pytest.mark.usefixtures("originals")
def test_an_original_that_imports_a_replaced_module_gets_ours() -> None:
    compat.install("lorax")
    assert "lorax_server" not in sys.modules  # nothing of the original is loaded by install
    from lorax_server.models import flash_causal_lm

    assert flash_causal_lm.has_triton is compat.lorax.metadata_kernels.has_triton
    compat.uninstall("lorax")
    from lorax_server.models import metadata_kernels

    assert metadata_kernels.ORIGIN == "original"


@pytest.mark.usefixtures("originals")
def test_every_form_of_import_with_the_originals() -> None:
    compat.install("lorax")
    import lorax_server.models.metadata_kernels
    import lorax_server.utils.ops.bgmv_expand as bgmv_expand_module
    from lorax_server.models import metadata_kernels
    from lorax_server.utils.ops import bgmv_expand
    from lorax_server.utils.ops.bgmv_expand import bgmv_expand as function

    assert lorax_server.models.metadata_kernels is metadata_kernels is compat.lorax.metadata_kernels
    assert bgmv_expand is bgmv_expand_module and function is compat.lorax.ops.bgmv_expand


def test_a_package_of_which_only_the_top_is_installed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "megatron" / "energon").mkdir(parents=True)
    (tmp_path / "megatron" / "energon" / "__init__.py").write_text("ORIGIN = 'original'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    compat.install("megatron")
    import megatron.core.inference.text_generation_controllers.mtp_utils_triton
    import megatron.energon

    assert megatron.energon.ORIGIN == "original"
    controllers = megatron.core.inference.text_generation_controllers
    assert controllers.mtp_utils_triton is compat.megatron.mtp_utils
    compat.uninstall("megatron")
    assert not hasattr(megatron, "core") and absent("megatron.core")
    assert importlib.import_module("megatron.energon").ORIGIN == "original"


@pytest.mark.parametrize("namespaces", range(5))
def test_namespace_packages_at_every_depth(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, namespaces: int
) -> None:
    """The outermost packages have no __init__.py, and a part in another folder of sys.path."""
    packages = CONTROLLERS.split(".")
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        monkeypatch.syspath_prepend(str(folder))
    for name in ("mtp_utils_triton", "text_generation_controller"):
        write_package(tmp_path / "first", f"{CONTROLLERS}.{name}", "ORIGIN = 'original'\n")
    for depth in range(namespaces):
        (tmp_path.joinpath("first", *packages[: depth + 1]) / "__init__.py").unlink(missing_ok=True)
        tmp_path.joinpath("second", *packages[: depth + 1]).mkdir()
    compat.install("megatron")
    assert not of_others()  # nothing of the original is loaded by install
    for name in ("mtp_utils_triton", "mtp_utils_pytorch"):
        assert importlib.import_module(f"{CONTROLLERS}.{name}") is compat.megatron.mtp_utils
    assert importlib.import_module(f"{CONTROLLERS}.text_generation_controller").ORIGIN == "original"
    top = sys.modules["megatron"].__path__
    assert len(list(top)) == (2 if namespaces else 1)
    compat.uninstall("megatron")
    assert importlib.import_module(f"{CONTROLLERS}.mtp_utils_triton").ORIGIN == "original"
    assert absent(f"{CONTROLLERS}.mtp_utils_pytorch")


def test_two_namespace_packages_of_which_only_the_top_is_installed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "megatron" / "core" / "models").mkdir(parents=True)
    (tmp_path / "megatron" / "core" / "models" / "gpt.py").write_text("ORIGIN = 'original'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    compat.install("megatron")
    assert importlib.import_module(f"{CONTROLLERS}.mtp_utils_triton") is compat.megatron.mtp_utils
    assert importlib.import_module("megatron.core.models.gpt").ORIGIN == "original"
    compat.uninstall("megatron")
    assert absent("megatron.core.inference")
    assert importlib.import_module("megatron.core.models.gpt").ORIGIN == "original"


def test_import_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; import heddle.compat as c; "
        "[c.install(n) for n in ('lorax', 'megatron', 'punica')]; "
        "import lorax_server.utils.ops.bgmv_shrink, punica_kernels; "
        "print([m for m in ('torch', 'numpy', 'triton') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
