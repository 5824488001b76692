#!/usr/bin/env python3
"""Every header compiles alone, public ones and those of src/. Only *-inl.h, which Highway compiles per target, do not."""

import sys

import syntax_check


def main():
    arguments = syntax_check.parse_arguments(__doc__)
    pieces = []
    for root in ("include", "src"):
        folder = syntax_check.ROOT / root
        for header in sorted(folder.rglob("*.h")):
            if not header.name.endswith("-inl.h"):
                pieces.append((f"{root}/{header.relative_to(folder)}", f'#include "{header.relative_to(folder)}"\n'))
    return syntax_check.run(arguments, pieces, ["include", "src", "src/testing"])


if __name__ == "__main__":
    sys.exit(main())
