#!/usr/bin/env python3
"""No source file is longer than 500 lines, but those of LONGER."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["include", "src", "apps", "tests", "examples", "tools", "cmake", "bench", "python"]
SUFFIXES = {".h", ".cpp", ".c", ".cu", ".py", ".sh", ".cmake", ".txt"}
LIMIT = 500
# File: why it is one.
LONGER = {"include/heddle/c_api.h": "one header for other languages to bind to"}


def main():
    paths = [p for f in FOLDERS for p in (ROOT / f).rglob("*") if p.suffix in SUFFIXES and p.is_file()]
    lengths = {p.relative_to(ROOT): len(p.read_text().splitlines()) for p in paths}
    too_long = [f"{path} has {n} lines, at most {LIMIT}" for path, n in lengths.items() if n > LIMIT and str(path) not in LONGER]
    print("\n".join(too_long) or f"{len(lengths)} files, the longest has {max(lengths.values())} lines")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
