#!/usr/bin/env python3
"""One word for one thing. Two rules over the names of include and src:

- A word for a piece of work in the name of a type or constant (tile, chunk, window, ...; PIECES has all that the check knows)
  has its row in docs/terms.md; tests and benches are left out. So a second word for the same thing is noticed: RowTile passes, RowPortion does not.
- Words that were given up (RETIRED) do not come back in any name.

tools/check_terms.py              checks the tree
tools/check_terms.py --self-test  checks the checker on names that it must accept and refuse
"""

import pathlib
import re
import sys

from check_names import COMMENT_OR_TEXT, LEFT_OUT

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What people call a part of the work of a kernel or an op.
PIECES = set("""bundle chain chunk fragment group item lot part pass piece portion quad range round segment shard share slab slice
                split stage step strand strip stripe task team tile unit wave window work""".split())
# Word of a name: what it is called now. Names are read as words: kAnyWay is any, way.
RETIRED = {
    "strand": "chain", "team": "lane group", "guess": "speculative start", "guesses": "speculative start",
    "rare": "general", "way": "route",
}
RETIRED_NAMES = {
    r"is_plain|kPlain\w*|Plain[A-Z]\w*|plain_\w+": "aligned (addresses) or contiguous (strides)",
    r"kAny|Any[A-Z]\w*|\w+_any": "general", r"kMost[A-Z]\w*|most_\w+": "max",
    r"is_wide": "is_int64 or has_rank_above_16", r"twice|is_twice": "double width",
}
NAME = re.compile(r"[A-Za-z_]\w*")
DEFINED = re.compile(r"\b(?:struct|class|enum class|using|constexpr [\w:<> ]+?)\s+([A-Za-z]\w*)\s*(?=[{=:;\[])")


def words_of(name):
    """The words of a name in lower case: kMaxRowTiles is max, row, tile. Plurals lose their s."""
    words = [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", re.sub(r"^k(?=[A-Z])", "", name))]
    return [w[:-1] if w.endswith("s") and w[:-1] in PIECES else w for w in words]


def terms_of(page):
    """The words that have a row in the page's tables; `a`, b and c in one cell are three."""
    cells = re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)
    return {w for cell in cells for w in re.findall(r"[a-z]+", cell.lower())}


def problems_of(path, text, terms):
    code = COMMENT_OR_TEXT.sub(" ", text)
    for name in sorted(set(DEFINED.findall(code))) if not LEFT_OUT.search(str(path)) else []:
        for word in words_of(name):
            if word in PIECES and word not in terms:
                yield f"{path}: {name}: docs/terms.md has no row for {word!r}"
    for name in sorted(set(NAME.findall(code))):
        for word in words_of(name):
            if word in RETIRED:
                yield f"{path}: {name}: {word!r} is called {RETIRED[word]!r}"
        for pattern, instead in RETIRED_NAMES.items():
            if re.fullmatch(pattern, name):
                yield f"{path}: {name}: is called {instead}"


def check_tree():
    terms = terms_of((ROOT / "docs/terms.md").read_text())
    files = [p for f in ("include", "src/ops", "src/cuda", "src/cpu") for p in sorted((ROOT / f).rglob("*"))
             if p.suffix in (".h", ".cpp", ".cu")]
    problems = [p for f in files for p in problems_of(f.relative_to(ROOT), f.read_text(), terms)]
    return problems, f"{len(files)} files use the words of docs/terms.md"


def self_test():
    terms = terms_of("| word | meaning |\n|---|---|\n| row tile, chunk | rows |\n| work item | one |\n")
    accepted = ["struct RowTile {", "constexpr int kChunks = 8;", "int away = 1;", "// a strand", 'f("team");', "struct Plan;",
                "struct WorkItem { int tiles; };", "bool anything;"]
    refused = ["struct RowPortion {", "struct Segments {", "int strand = 1;", "bool is_plain(int);", "run_any();", "kMostX",
               "enum class LoraWay {", "constexpr int kPieces = 2;"]
    wrong = [f"should be accepted: {code}" for code in accepted if list(problems_of("x.h", code, terms))]
    wrong += [f"should be refused once: {code}" for code in refused if len(list(problems_of("x.h", code, terms))) != 1]
    return wrong, f"self-test: {len(accepted)} lines accepted, {len(refused)} refused"


def main():
    problems, summary = self_test() if sys.argv[1:] == ["--self-test"] else check_tree()
    print("\n".join(problems) or summary)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
