"""The notebooks in examples: every cell runs, and what it asserts holds. No notebook program is needed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import pathlib
import subprocess
from typing import Any

import pytest

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def run_cell(source: str, name: str, variables: dict[str, Any]) -> None:
    """As a notebook does, `await` outside of functions included."""
    code = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, variables)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(result)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_cell_runs(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command = [EXAMPLES.parent / "tools" / "fetch_model"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    monkeypatch.chdir(EXAMPLES)
    notebook = json.loads(path.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert notebook["nbformat"] == 4 and len(cells) > 3
    variables: dict[str, Any] = {}
    for i, cell in enumerate(cells):
        assert cell["outputs"] == [] and cell["execution_count"] is None, "outputs are not stored"
        run_cell("".join(cell["source"]), f"{path.name}, cell {i}", variables)
    assert len("".join(cells[0]["source"]).splitlines()) <= 5, "the first answer takes five lines"
    assert capsys.readouterr().out.count("\n") > len(cells)


def test_there_is_one() -> None:
    assert NOTEBOOKS
