"""The fenced blocks of the documentation, and the rules that pages and blocks keep.

A block of a language of RUN is run by docs_test.py, one of DATA must be what it says, and `text` is output, syntax or code of
other projects: nothing to paste. The line before a block may take it out, with one of REASONS:

    <!-- docs-test: needs a GPU -->
"""

import dataclasses
import json
import pathlib
import re

PAGES = ["*.md", "docs/**/*.md", "examples/**/*.md", "bench/**/*.md", "tests/golden/*.md"]
REASONS = ("needs a GPU", "needs a network", "installs system packages", "is this test")
MOST_MARKED = 8
README_WORDS, PAGE_WORDS = 700, 2500  # a minute's reading, and ten; tables and code count, tables that a tool writes do not
WRITTEN_TABLE = re.compile(r"<!-- table of .*?<!-- end of table -->", re.DOTALL)
FIRST_EXAMPLE = 40  # the line of a page of an op by which its first example begins
RUN = ("sh", "python", "cpp", "c")
DATA = ("json", "jsonl")

FENCE = re.compile(r"( *)(```+|~~~+) *(.*)")
MARKER = re.compile(r" *<!-- *docs-test: *(.*?) *-->")
LIST_ITEM = re.compile(r" *([-*+]|\d+[.)]) ")


@dataclasses.dataclass
class Block:
    """One fenced block. `line` is that of its first line of code, counted from 1."""
    page: str
    line: int
    language: str
    code: str
    reason: str | None = None  # of its mark

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def data_error(block):
    """Why the block's text is not what its language says, or nothing."""
    try:
        for text in block.code.splitlines() if block.language == "jsonl" else [block.code]:
            json.loads(text)
    except ValueError as error:
        return f"{block.place}: no {block.language}: {error}"
    return None


def check(block):
    """What is wrong with the block as it stands, before anything runs."""
    errors = []
    if not block.language:
        errors.append(f"{block.place}: the block names no language; output and syntax are ```text")
    elif block.language not in (*RUN, *DATA, "text"):
        errors.append(f"{block.place}: language {block.language!r}, known: {', '.join((*RUN, *DATA, 'text'))}")
    elif block.language in DATA:
        errors.append(data_error(block))
    if block.reason is not None and block.reason not in REASONS:
        errors.append(f"{block.place}: reason {block.reason!r}, known: {'; '.join(REASONS)}")
    if block.reason is not None and block.language not in RUN:
        errors.append(f"{block.place}: a mark on a block that would not run")
    return [e for e in errors if e]


def parse(page, text):
    """(blocks, errors) of a page."""
    blocks, errors, lines = [], [], text.split("\n")
    in_list, number = False, 0
    while number < len(lines):
        line = lines[number]
        fence, marker = FENCE.fullmatch(line), MARKER.fullmatch(line)
        number += 1
        if marker:
            if number == len(lines) or not FENCE.fullmatch(lines[number]):
                errors.append(f"{page}:{number}: a mark without a block in the next line")
            continue
        if line.strip() and not line.startswith(" "):
            in_list = bool(LIST_ITEM.match(line))
        if not fence:
            if line.startswith("    ") and line.strip() and not in_list:
                errors.append(f"{page}:{number}: an indented block; fence it and name its language")
            continue
        indent, ticks, language = fence.groups()
        first = number
        while number < len(lines) and lines[number].strip() != ticks:
            number += 1
        if number == len(lines):
            errors.append(f"{page}:{first}: the block has no end")
        before = MARKER.fullmatch(lines[first - 2]) if first > 1 else None
        code = "".join(line.removeprefix(indent) + "\n" for line in lines[first:number])
        blocks.append(Block(page, first + 1, language, code, before.group(1) if before else None))
        number += 1
    for block in blocks:
        errors += check(block)
    return blocks, errors


def page_errors(page, text, blocks):
    """What is wrong with the page as a whole."""
    errors = []
    words = sum(any(c.isalnum() for c in word) for word in WRITTEN_TABLE.sub("", text).split())
    limit = README_WORDS if page == "README.md" else PAGE_WORDS
    if words > limit and page != "CHANGELOG.md":
        errors.append(f"{page} has {words} words, at most {limit}")
    if page.startswith("docs/ops/") and not any(b.language in RUN and b.line <= FIRST_EXAMPLE for b in blocks):
        errors.append(f"{page} shows no code in its first {FIRST_EXAMPLE} lines")
    return errors


def read_pages(root):
    """({page: its blocks}, errors) of all pages under `root`; too many marks are an error, too."""
    pages, errors = {}, []
    for path in sorted({p for pattern in PAGES for p in pathlib.Path(root).glob(pattern)}):
        name = str(path.relative_to(root))
        text = path.read_text()
        pages[name], wrong = parse(name, text)
        errors += wrong + page_errors(name, text, pages[name])
    marked = [b for blocks in pages.values() for b in blocks if b.reason is not None]
    if len(marked) > MOST_MARKED:
        errors.append(f"{len(marked)} blocks are marked, at most {MOST_MARKED}: {', '.join(b.place for b in marked)}")
    return pages, errors
