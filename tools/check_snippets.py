#!/usr/bin/env python3
"""The C++ and C in the documentation compiles.

A block fenced as ```cpp is the body of a function inside namespace heddle, below the #include lines it begins with; one
fenced as ```cpp file is a whole file; one fenced as ```c is the body of a function in C. Only public headers can be included.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(cpp|cpp file|c)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused"]
LANGUAGE = {"cpp": ["-x", "c++", "-std=c++20"], "cpp file": ["-x", "c++", "-std=c++20"], "c": ["-x", "c", "-std=c11", "-pedantic"]}


def compilable(code, kind):
    if kind == "cpp file":
        return code
    lines = code.splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    body = ["" if line.startswith("#include") else line for line in lines]
    using = [] if kind == "c" else ["using namespace heddle;"]
    return "\n".join([*includes, "void snippet(void);", "void snippet(void) {", *using, "#line 1", *body, "}", ""])


def snippets():
    pages = [p for p in ROOT.glob("*.md")] + [p for f in ("docs", "examples") for p in (ROOT / f).rglob("*.md")]
    for page in sorted(pages):
        text = page.read_text()
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{page.relative_to(ROOT)}:{line}", compilable(match.group(2), match.group(1)), LANGUAGE[match.group(1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder, for heddle/config.h")
    arguments = parser.parse_args()
    command = [arguments.compiler, *FLAGS, f"-I{ROOT / 'include'}", f"-I{arguments.build / 'include'}"]

    def error_of(snippet):
        place, source, language = snippet
        result = subprocess.run([*command, *language, "-"], input=source, capture_output=True, text=True)
        return f"{place} does not compile:\n{result.stderr}" if result.returncode else None

    found = list(snippets())
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [e for e in pool.map(error_of, found) if e]
    print("\n".join(errors) or f"{len(found)} snippets compile")
    return 1 if errors or not found else 0


if __name__ == "__main__":
    sys.exit(main())
