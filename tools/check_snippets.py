#!/usr/bin/env python3
"""The C++ in the documentation compiles.

A block fenced as ```cpp is the body of a function inside namespace heddle, below the #include lines it begins with; one
fenced as ```cpp file is a whole file. Only public headers can be included.
"""

import re
import sys

import syntax_check

FENCE = re.compile(r"^```cpp( file)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def compilable(code, is_file):
    if is_file:
        return code
    lines = code.splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    body = ["" if line.startswith("#include") else line for line in lines]
    return "\n".join([*includes, "void snippet();", "void snippet() {", "using namespace heddle;", "#line 1", *body, "}", ""])


def snippets():
    root = syntax_check.ROOT
    pages = [p for p in root.glob("*.md")] + [p for f in ("docs", "examples") for p in (root / f).rglob("*.md")]
    for page in sorted(pages):
        text = page.read_text()
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{page.relative_to(root)}:{line}", compilable(match.group(2), match.group(1))


def main():
    arguments = syntax_check.parse_arguments(__doc__.splitlines()[0])
    return syntax_check.run(arguments, list(snippets()), ["include"], ["-Wno-unused"])


if __name__ == "__main__":
    sys.exit(main())
