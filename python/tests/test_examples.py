"""The examples in examples/python that need no GPU."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


def run_example(name: str) -> list[str]:
    """The lines that it prints; it must say itself that its numbers are right."""
    command = [sys.executable, EXAMPLES / f"{name}.py"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mixed_batch", [f"row {i}: .* relative error .*" for i in range(4)]),
        ("paged_attention", [f"sequence {i}: error of the prompt .*" for i in range(2)]),
    ],
)
def test_an_example_tells_that_it_is_right(name: str, expected: list[str]) -> None:
    lines = run_example(name)
    assert len(lines) == len(expected)
    assert all(re.fullmatch(*pair) for pair in zip(expected, lines, strict=True)), lines


def test_every_example_is_run() -> None:
    tests = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("test_*.py"))
    is_run = [f'"{path.stem}"' in tests or f"from {path.stem} import" in tests for path in EXAMPLES.glob("*.py")]
    assert is_run and all(is_run)
