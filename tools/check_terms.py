#!/usr/bin/env python3
"""One word for one thing. Two rules over the names of include and src, and one over prose:

- A word for a piece of work in the name of a type or constant (tile, chunk, window, ...; PIECES has all that the check knows)
  has its row in docs/terms.md; tests and benches are left out. So a second word for the same thing is noticed: RowTile passes, RowPortion does not.
- Words that were given up (RETIRED) do not come back in any name.
- Comments, docstrings and pages use the words of the field: "after", not "behind" (PROSE has the list).

tools/check_terms.py              checks the tree
tools/check_terms.py --self-test  checks the checker on names that it must accept and refuse
"""

import pathlib
import re
import subprocess
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
# Phrase of a comment or page: what CUDA and serving engineers write.
PROSE = {
    r"behind(?! (?:a|the) (?:proxy|gateway|load balancer))": "after, next, past the end",
    r"in front of(?! (?:a|the) server)": "before, previous", r"beside": "concurrently with, next to, as well as",
    r"nobody": "no thread, no request, nothing", r"(?:is|are|was|were|be|been) told": "is reported", r"tells? of": "reports",
    r"under way": "in flight, pending", r"for want of": "for lack of", r"(?:sets?|setting) aside": "reserve",
    r"tak(?:en|es|ing) in(?= (?:prompts?|tokens?|rows?|chunks?|anew|again)\b)": "prefilled", r"asks? for no memory": "does not allocate",
    r"(?<=[/#*] )the same (?:of|for)": "say what it is",
}
PROSE = {re.compile(rf"(?<!\w){phrase}\b", re.IGNORECASE): instead for phrase, instead in PROSE.items()}
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


def prose_of(name, text):
    """(line, its comment or prose) of a source or page; code, strings and code blocks are left out."""
    suffix, is_block = name.suffix, False
    for number, line in enumerate(text.split("\n"), 1):
        if suffix == ".md":
            if line.startswith("```"):
                is_block = not is_block
            elif not is_block:
                yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)
        elif suffix in (".h", ".cpp", ".cu", ".c"):
            place = re.search(r"//|/\*|^\s*\*", line)
            if place and line[:place.start()].count('"') % 2 == 0:
                yield number, line[place.start():]
        else:
            quotes = line.count('"""') if suffix == ".py" else 0
            if is_block or quotes:
                yield number, line
            elif "#" in line and re.sub(r"\\.", "", line.partition("#")[0]).count('"') % 2 == 0:
                yield number, "#" + line.partition("#")[2]
            is_block ^= quotes % 2 == 1


def prose_problems_of(path, text):
    for number, line in prose_of(path, text):
        for phrase, instead in PROSE.items():
            found = phrase.search(line)
            if found:
                yield f"{path}:{number}: {found[0]!r}: say {instead}"


def prose_files():
    """Sources and pages, but for records, recorded texts and what has happened before (CHANGELOG.md)."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    kinds = (".h", ".cpp", ".cu", ".c", ".py", ".sh", ".cmake", ".md")
    for name in names:
        is_source = name.endswith(kinds) or name.endswith("CMakeLists.txt")
        if is_source and not name.startswith(("bench/results/", "tests/corpus/", "tests/fixtures/tokenizer/", "CHANGELOG", "tools/check_terms.py")) and (ROOT / name).is_file():
            yield pathlib.Path(name)


def check_tree():
    terms = terms_of((ROOT / "docs/terms.md").read_text())
    files = [p for f in ("include", "src/ops", "src/cuda", "src/cpu") for p in sorted((ROOT / f).rglob("*"))
             if p.suffix in (".h", ".cpp", ".cu")]
    problems = [p for f in files for p in problems_of(f.relative_to(ROOT), f.read_text(), terms)]
    pages = list(prose_files())
    problems += [p for f in pages for p in prose_problems_of(f, (ROOT / f).read_text())]
    return problems, f"{len(files)} files use the names of docs/terms.md, {len(pages)} the words"


def self_test():
    terms = terms_of("| word | meaning |\n|---|---|\n| row tile, chunk | rows |\n| work item | one |\n")
    accepted = ["struct RowTile {", "constexpr int kChunks = 8;", "int away = 1;", "// a strand", 'f("team");', "struct Plan;",
                "struct WorkItem { int tiles; };", "bool anything;"]
    refused = ["struct RowPortion {", "struct Segments {", "int strand = 1;", "bool is_plain(int);", "run_any();", "kMostX",
               "enum class LoraWay {", "constexpr int kPieces = 2;"]
    wrong = [f"should be accepted: {code}" for code in accepted if list(problems_of("x.h", code, terms))]
    wrong += [f"should be refused once: {code}" for code in refused if len(list(problems_of("x.h", code, terms))) != 1]
    prose = {
        "x.h": (["int behind = 1;", 'f("behind");  // after it', "// asks for nothing", "// runs behind a proxy", "// of the same size"],
                ["// the row behind it", "int a;  // told of nobody", "/// The same of a row.", " * beside the steps", "// a step is under way"]),
        "x.md": (["`--beside N`", "[x](#beside)", "A story was written."], ["Runs beside others.", "In front of it."]),
        "x.py": (['"behind"', "x = 1  # after it"], ['"""What is behind."""', "x = 1  # nobody waits", 'f("a")  # it asks for no memory']),
    }
    for name, (good, bad) in prose.items():
        wrong += [f"should be accepted: {line}" for line in good if list(prose_problems_of(pathlib.Path(name), line))]
        wrong += [f"should be refused: {line}" for line in bad if not list(prose_problems_of(pathlib.Path(name), line))]
    accepted, refused = (kind + [line for lines in prose.values() for line in lines[i]] for i, kind in enumerate((accepted, refused)))
    return wrong, f"self-test: {len(accepted)} lines accepted, {len(refused)} refused"


def main():
    problems, summary = self_test() if sys.argv[1:] == ["--self-test"] else check_tree()
    print("\n".join(problems) or summary)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
