"""The programs heddle and heddle-serve of a wheel, and the command `heddle` that starts them.

They lie in bin, the examples of `heddle demo` in share/heddle/examples, as `make install` has them. This package needs nothing but
Python, so that the command starts in little more time than the program.
"""

from __future__ import annotations

import os
import pathlib
import sys

_FOLDER = pathlib.Path(__file__).resolve().parent


def names_model(arguments: list[str]) -> bool:
    """Whether `heddle demo` with these arguments needs no model from the cache."""
    given = any(a.startswith(("-m", "--model")) for a in arguments)
    return given or bool({"-h", "--help"} & set(arguments)) or bool(os.environ.get("HEDDLE_MODEL"))


def warn_of_two_wheels() -> None:
    """Says so where heddle-lora and heddle-lora-cu13 are both installed: package heddle warns, too."""
    folder = _FOLDER.parent
    found = sorted({path.name.split("-")[0] for path in folder.glob("heddle_lora*-*.dist-info")})
    if len(found) > 1:
        names = " and ".join(name.replace("_", "-") for name in found)
        print(
            f"heddle: {names} are both installed and hold the same files, those of the last one: "
            "uninstall both, then install one of them",
            file=sys.stderr,
        )


def main() -> None:
    """The command `heddle`; the demo's model is fetched where it is missing."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["demo"] and not names_model(arguments):
        from . import fetch_model

        fetch_model.model_in_cache()
    warn_of_two_wheels()
    program = _FOLDER / "bin" / "heddle"
    try:
        os.execv(program, ["heddle", *arguments])
    except OSError as error:
        sys.exit(f"heddle: {program}: {error.strerror}")
