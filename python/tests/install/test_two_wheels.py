"""Both wheels in one environment: package heddle and the command say so; with one they are silent."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

BUILD = pathlib.Path(os.environ["HEDDLE_BUILD_DIR"]).resolve()
SOURCE = pathlib.Path(__file__).parents[2]


def site(folder: pathlib.Path, *wheels: str) -> pathlib.Path:
    """A folder of packages with both packages of a wheel, and what pip notes of these wheels."""
    (folder / "heddle").symlink_to(BUILD / "python/heddle")
    program = folder / "heddle_program"
    (program / "bin").mkdir(parents=True)
    (program / "__init__.py").write_text((SOURCE / "heddle_program/__init__.py").read_text())
    (program / "bin/heddle").write_text("#!/bin/sh\necho started\n")
    (program / "bin/heddle").chmod(0o755)
    for wheel in wheels:
        (folder / f"{wheel}-0.1.0.dist-info").mkdir()
    return folder


def said(folder: pathlib.Path, code: str) -> str:
    """What the code says on stderr, run with these packages."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stderr


@pytest.mark.parametrize(
    "code", ["import heddle", "import heddle_program; heddle_program.main()"], ids=["package", "command"]
)
def test_two_wheels_are_noticed(tmp_path: pathlib.Path, code: str) -> None:
    one = site(tmp_path, "heddle_lora_cu13")
    assert said(one, code) == ""
    (one / "heddle_lora-0.1.0.dist-info").mkdir()
    assert "are both installed and hold the same files" in said(one, code)
