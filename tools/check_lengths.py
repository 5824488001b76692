#!/usr/bin/env python3
"""No source file is longer than 500 lines, but those of LONGER, no folder holds more than 30 source files, and no line of C++,
CUDA or C that has a comment is longer than 100 columns (clang-format sees to those without)."""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["include", "src", "apps", "tests", "examples", "tools", "cmake", "bench", "python"]
SUFFIXES = {".h", ".cpp", ".c", ".cu", ".py", ".sh", ".cmake", ".txt"}
LIMIT = 500
FOLDER_LIMIT = 30
COLUMNS = 100
COMMENT = re.compile(r"//|/\*|^ \*")
# File: why it is one.
LONGER = {"include/heddle/c_api.h": "one header for other languages to bind to"}
DATA = "tests/corpus"  # inputs of fuzz targets


def main():
    paths = [p for f in FOLDERS for p in (ROOT / f).rglob("*") if p.suffix in SUFFIXES and p.is_file()]
    lengths = {p.relative_to(ROOT): len(p.read_text().splitlines()) for p in paths if DATA not in str(p)}
    counts = collections.Counter(path.parent for path in lengths)
    problems = [f"{path} has {n} lines, at most {LIMIT}" for path, n in lengths.items() if n > LIMIT and str(path) not in LONGER]
    problems += [f"{folder} has {n} source files, at most {FOLDER_LIMIT}" for folder, n in counts.items() if n > FOLDER_LIMIT]
    for path in lengths:
        if path.suffix in {".h", ".cpp", ".cu", ".c"}:
            for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
                if len(line) > COLUMNS and COMMENT.search(line):
                    problems.append(f"{path}:{number} has {len(line)} columns, at most {COLUMNS}")
    print("\n".join(problems) or f"{len(lengths)} files of up to {max(lengths.values())} lines, up to {max(counts.values())} in a folder")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
