"""What is declared in Python agrees with heddle._core, is documented, and has right types."""

from __future__ import annotations

import ast
import inspect
import os
import pathlib
import re
import subprocess
import sys
import typing
from typing import Any

import numpy as np
import pytest

import heddle
from heddle import _core, ops
from heddle._operation import OPERATIONS, Array


def test_all_operations_are_exported() -> None:
    assert sorted(n for n in ops.__all__ if not n.isupper()) == sorted(OPERATIONS)
    assert all(callable(getattr(ops, name)) for name in OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_declaration_has_the_names_order_and_defaults_of_the_implementation(name: str) -> None:
    # The signature as nanobind knows it: text with \\0, \\1 ... for the defaults, and the defaults.
    ((text, _, *defaults),) = getattr(_core, name).__nb_signature__
    defaults = list(defaults[0]) if defaults and isinstance(defaults[0], tuple) else defaults
    inside = text[text.index("(") + 1 : text.rindex(") ->")]
    if inside.startswith("**"):  # too many to be given one by one: it must look at the names itself
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
def test_the_docstring_is_a_contract(name: str) -> None:
    text = inspect.getdoc(getattr(ops, name)) or ""
    head = text.split("Args:")[0]
    assert re.search(r"`[^`]*[-+=(][^`]*`|` = ", head), "no formula"
    assert re.search(r"rounded|rounding|exact|integers|bytes", head, re.IGNORECASE), "no rounding"
    assert re.search(r"\b(f32|i64|dtype)\b", text), "no dtypes"
    assert "Raises:" in text and "ValueError:" in text and "NotImplementedError:" in text
    assert re.search(r"^Source: .*\.$", text, re.MULTILINE | re.DOTALL), "no source"
    hints = typing.get_type_hints(OPERATIONS[name].declared)
    for argument in inspect.signature(getattr(ops, name)).parameters:
        told = re.search(rf"^    {argument}: (.*)", text, re.MULTILINE)
        assert told, argument
        if Array in (hints[argument], *typing.get_args(hints[argument])):
            shape = r"\[|One element|[Aa]s `|[Tt]he same|u8 array|list of|starts of|requests"
            assert re.search(shape, told.group(1), re.IGNORECASE), f"no shape of {argument}"


@pytest.mark.parametrize("name", OPERATIONS)
def test_mutated_arguments_exist_and_come_first(name: str) -> None:
    arguments = list(inspect.signature(getattr(ops, name)).parameters)
    operation = OPERATIONS[name]
    assert {written.partition(".")[0] for written in operation.mutates} <= set(arguments)
    assert set(operation.only_read) <= set(operation.mutates)
    assert arguments[0] in {written.partition(".")[0] for written in operation.mutates}


def test_version_is_that_of_the_project() -> None:
    cmake = (pathlib.Path(__file__).parents[2] / "CMakeLists.txt").read_text()
    assert f"project(heddle VERSION {heddle.__version__} " in cmake
    assert heddle.has_cuda() is False or heddle.has_cuda() is True


WRONG = """
import numpy as np
from heddle import ops
x = np.ones((1, 2), np.float32)
ops.rms_norm(x, x, "weight")
ops.rms_norm(x, x)
"""


@pytest.fixture(scope="module")
def mypy_lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy --strict says of the package, of right calls, and of the wrong ones above."""
    wrong = tmp_path_factory.mktemp("typed") / "wrong.py"
    wrong.write_text(WRONG)
    build = pathlib.Path(os.environ["HEDDLE_BUILD_DIR"])
    files = [build / "python" / "heddle", pathlib.Path(__file__).parent / "typed_calls.py", wrong]
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", build / "mypy_cache"]
    result = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert "checked" in result.stdout, result.stdout + result.stderr
    return result.stdout.splitlines()[:-1]


def test_the_package_and_calls_of_it_satisfy_mypy(mypy_lines: list[str]) -> None:
    assert [line for line in mypy_lines if "wrong.py" not in line] == []


def test_wrong_types_are_found_by_mypy(mypy_lines: list[str]) -> None:
    found = [re.search(r"wrong.py:(\d+): error: .*(\[[a-z-]+\])", line) for line in mypy_lines]
    assert {m.groups() for m in found if m} == {("5", "[arg-type]"), ("6", "[call-arg]")}


def names_of_stub() -> dict[str, ast.AST]:
    """The names of _core.pyi and what they are; members of a class as "Class.member"."""
    stub = pathlib.Path(os.environ["HEDDLE_BUILD_DIR"]) / "python" / "heddle" / "_core.pyi"
    found: dict[str, ast.AST] = {}
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ClassDef):
            members = [m for m in node.body if isinstance(m, ast.FunctionDef) and m.name not in ("__repr__", "__str__")]
            found.update({f"{node.name}.{m.name}": m for m in members})
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def test_the_stub_has_the_names_of_the_module() -> None:
    in_module = set()
    for name, value in vars(_core).items():
        if not name.startswith("_"):
            in_module.add(name)
            if inspect.isclass(value):
                members = [m for m in vars(value) if not m.startswith("_")]
                if hasattr(vars(value)["__init__"], "__nb_signature__"):  # else it has no constructor
                    members.append("__init__")
                in_module.update(f"{name}.{m}" for m in members)
    assert set(names_of_stub()) == in_module


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_stub_has_the_arguments_and_defaults_of_the_declaration(name: str) -> None:
    node = names_of_stub()[name]
    assert isinstance(node, ast.FunctionDef)
    positional, keywords = node.args.args, node.args.kwonlyargs
    if node.args.kwarg:  # told in the declaration alone
        assert not positional and not keywords
        return
    defaults: list[ast.expr | None] = [*node.args.defaults, *node.args.kw_defaults]
    missing = len(positional) + len(keywords) - len(defaults)
    values = [None] * missing + defaults
    parameters = inspect.signature(getattr(ops, name)).parameters.values()
    for argument, value, parameter in zip(
        [*positional, *keywords], values, parameters, strict=True
    ):
        assert argument.arg == parameter.name
        is_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert (argument in keywords) == is_keyword
        if value is None:
            assert parameter.default is inspect.Parameter.empty
        else:
            told = ast.literal_eval(value)
            is_float = isinstance(told, float)  # an option in C++ may be of f32
            assert told == (pytest.approx(parameter.default) if is_float else parameter.default)
