#!/usr/bin/env python3
"""Every relative link in the documentation leads to a file or folder of the tree."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PAGES = ["*.md", "docs/**/*.md", "examples/**/*.md", "tests/**/*.md", "bench/**/*.md"]


def main():
    links = [(page, target) for pattern in PAGES for page in ROOT.glob(pattern) for target in LINK.findall(page.read_text())
             if "://" not in target]
    broken = [f"{page.relative_to(ROOT)}: no {target}" for page, target in links if not (page.parent / target).exists()]
    print("\n".join(broken) or f"{len(links)} links lead somewhere")
    return 1 if broken or not links else 0


if __name__ == "__main__":
    sys.exit(main())
