"""The Python examples in the documentation run.

All blocks of a page run one after the other, in a process of their own.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
from frameworks import TORCH_WANTED

ROOT = pathlib.Path(__file__).parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def program_of(page: pathlib.Path) -> str:
    """The page's blocks, each on the line that it has in the page."""
    text = page.read_text()
    lines = [""] * (text.count("\n") + 1)
    for match in FENCE.finditer(text):
        first = text.count("\n", 0, match.start(1))
        code = match.group(1).splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines).rstrip()


PAGES = {
    str(p.relative_to(ROOT)): program_of(p)
    for p in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
}
PROGRAMS = {page: program for page, program in PAGES.items() if program}


def test_there_are_examples() -> None:
    assert {"docs/python.md", "docs/peft.md"} <= PROGRAMS.keys()


@pytest.mark.parametrize("page", PROGRAMS)
def test_examples_run(page: str, tmp_path: pathlib.Path) -> None:
    program = PROGRAMS[page]
    if not TORCH_WANTED and re.search(r"\b(torch|peft|transformers)\b", program):
        pytest.skip("skipped: HEDDLE_TEST_TORCH=0")
    file = tmp_path / "page.py"
    file.write_text(program + "\n")
    result = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert result.returncode == 0, f"{page}:\n{result.stderr}"
