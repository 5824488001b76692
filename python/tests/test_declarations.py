"""What is declared in Python agrees with heddle._core, is documented, and has right types."""

from __future__ import annotations

import inspect
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import heddle
from heddle import _core, ops
from heddle._operation import OPERATIONS


def test_all_operations_are_exported() -> None:
    assert sorted(n for n in ops.__all__ if not n.isupper()) == sorted(OPERATIONS)
    assert all(callable(getattr(ops, name)) for name in OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_declaration_has_the_names_order_and_defaults_of_the_implementation(name: str) -> None:
    # The signature as nanobind knows it: text with \\0, \\1 ... for the defaults, and the defaults.
    ((text, _, *defaults),) = getattr(_core, name).__nb_signature__
    defaults = list(defaults[0]) if defaults and isinstance(defaults[0], tuple) else defaults
    inside = text[text.index("(") + 1 : text.rindex(") ->")]
    if inside.startswith("**"):  # too many to be told one by one: it must look at the names itself
        with pytest.raises(TypeError, match="no_such_argument"):
            getattr(_core, name)(no_such_argument=None)
        return
    got: list[tuple[str, Any]] = []
    for argument in re.split(r", (?=\w+:|\*)", inside):
        if argument != "*":
            default = re.search(r"= \\(\d+)$", argument)
            value = defaults[int(default.group(1))] if default else inspect.Parameter.empty
            got.append((argument.split(":")[0], value))
    declared = inspect.signature(getattr(ops, name)).parameters.values()
    assert [n for n, _ in got] == [p.name for p in declared]
    for (_, value), parameter in zip(got, declared, strict=True):
        if isinstance(value, float):
            assert np.float32(value) == np.float32(parameter.default), parameter.name
        else:
            assert value == parameter.default, parameter.name
    keyword_only = inside.split("*, ")[1] if "*, " in inside else ""
    for parameter in declared:
        is_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert is_keyword == bool(re.search(rf"(^|, ){parameter.name}:", keyword_only))


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_docstring_tells_every_argument(name: str) -> None:
    text = inspect.getdoc(getattr(ops, name)) or ""
    for argument in inspect.signature(getattr(ops, name)).parameters:
        assert re.search(rf"^    {argument}: ", text, re.MULTILINE), argument
    for section in ("Args:", "Raises:"):
        assert section in text


@pytest.mark.parametrize("name", OPERATIONS)
def test_mutated_arguments_exist_and_come_first(name: str) -> None:
    arguments = list(inspect.signature(getattr(ops, name)).parameters)
    operation = OPERATIONS[name]
    assert set(operation.mutates) <= set(arguments)
    assert set(operation.only_read) <= set(operation.mutates)
    assert arguments[0] in operation.mutates


def test_version_is_that_of_the_project() -> None:
    cmake = (pathlib.Path(__file__).parents[2] / "CMakeLists.txt").read_text()
    assert f"project(heddle VERSION {heddle.__version__} " in cmake
    assert heddle.has_cuda() is False or heddle.has_cuda() is True


def test_types() -> None:
    """The package and calls with NumPy's arrays satisfy mypy --strict."""
    package = pathlib.Path(os.environ["HEDDLE_BUILD_DIR"]) / "python" / "heddle"
    files = [str(package), str(pathlib.Path(__file__).parent / "typed_calls.py")]
    command = [sys.executable, "-m", "mypy", "--cache-dir", os.devnull, *files]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_a_wrong_type_is_found_by_mypy(tmp_path: pathlib.Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import numpy as np\nfrom heddle import ops\nx = np.ones((1, 2), np.float32)\n"
        'ops.rms_norm(x, x, "weight")\nops.rms_norm(x, x)\n'
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, str(wrong)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "wrong.py:4" in result.stdout and "wrong.py:5" in result.stdout, result.stdout
