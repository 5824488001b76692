#!/usr/bin/env python3
"""Tables of conformance: from what `make conformance` found to docs. Needs Python's standard library alone.

conformance_tables.py --collect build/conformance.json  takes what a run on a clean tree found as tests/conformance/record.json, and then goes
                                                        on as
conformance_tables.py                                   which writes the tables between the markers in docs/conformance.md
conformance_tables.py --check                           whether the page is what the record gives
conformance_tables.py --self-test                       the same with made-up records in a temporary folder
"""

import sys

from figure_files import END, filled, load, made_up_root, run_tool, stale, update, write_results

RECORD, PAGE = "tests/conformance/record.json", "docs/conformance.md"
KINDS = {"family": "Families of models", "tokenizer": "Tokenizers", "template": "Chat templates"}
BEGIN = "<!-- tables of tests/conformance/record.json -->\n"
# The families' tables: column, and what the record calls it.
FOLDERS = {"F32": "folder F32", "F16": "folder F16", "BF16": "folder BF16", "adapter": "folder, adapter", "merged adapter": "folder, merged adapter",
           "settings of transformers 4": "folder of transformers 4", "KV cache f16": "folder, KV cache f16",
           "KV cache bf16": "folder, KV cache bf16"}
FILES = {kind: "GGUF " + kind for kind in ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "Q6_K", "Q5_K", "Q4_K")} | {
    f"{kind} of llama.cpp": f"GGUF {kind} of llama.cpp" for kind in ("Q6_K", "Q4_K_M")} | {
    "adapter": "GGUF, adapter", "in parts": "GGUF in parts"}
ELSEWHERE = {"adapter and merged"}  # heddle next to itself
NAMES = "pre-tokenizer "  # how names of pre-tokenizers begin that were tried on one vocabulary


# From a run to the record.


def collect(reports, _old):
    """The one report, if it is a whole run on a clean tree that found nothing to differ in."""
    if len(reports) != 1:
        sys.exit(f"{len(reports)} reports, expected one: a run tells all")
    report = reports[0]
    if report["changed files"]:
        sys.exit(f"{report['changed files']} files of the tree were not those of commit {report['commit']}")
    if report["not covered"] or report["short"]:
        sys.exit(f"the run was not whole: not covered {report['not covered']}, short {report['short']}")
    missing = [kind for kind in KINDS if not of_kind(report, kind)]
    if missing:
        sys.exit(f"the run has no record of kind {', '.join(missing)}")
    known = {*FOLDERS.values(), *FILES.values(), *ELSEWHERE}
    unknown = {record["read as"] for record in of_kind(report, "family")} - known
    if unknown:
        sys.exit(f"no table has a place for {sorted(unknown)}")
    return report


def of_kind(record, kind):
    return [line for line in record["records"] if line["kind"] == kind]


# From the record to the page.


def row(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def table(head, rows):
    return [row(*head), "|" + "---|" * len(head), *rows]


def counted(count, what):
    return f"{count} {what}" + ("" if count == 1 else "s")


def family_cell(line):
    """The largest relative error and the number of cases; bold where one differs."""
    if line is None:
        return "-"
    if line["differ"]:
        return f"**{line['differ']} of {line['compared']} differ**"
    error = "same bits" if line["read as"] == FOLDERS["settings of transformers 4"] else f"{line['largest error']:.1e}"
    return f"{error} ({line['compared']})"


def family_table(lines, title, columns):
    """A row for each family; columns of which the run has nothing are left out."""
    found = {(line["name"], line["read as"]): line for line in lines}
    families = sorted({line["name"] for line in lines})
    columns = {column: form for column, form in columns.items() if any(line["read as"] == form for line in lines)}
    return table([title, *columns], (row(family, *(family_cell(found.get((family, form))) for form in columns.values())) for family in families))


def tokenizer_cell(lines):
    """What a tokenizer in one form was held against, and on how many texts."""
    cells = []
    for line in lines:
        if "refused" in line:
            cells.append(f"{'**' if line['differ'] else ''}refused{'**' if line['differ'] else ' by name'}")
        elif line["differ"]:
            cells.append(f"**{line['held against']}: {line['differ']} differ**")
        else:
            cells.append(f"{line['held against']}: {line['compared']}")
    return ", ".join(cells) or "-"


def tokenizer_table(lines):
    rows = []
    names = [line for line in lines if line["name"].startswith(NAMES)]
    for name in dict.fromkeys(line["name"] for line in lines if line not in names):
        own = [line for line in lines if line["name"] == name]
        cells = (tokenizer_cell([line for line in own if line.get("read as") == form]) for form in ("GGUF", "tokenizer.json"))
        rows.append(row(name, own[0].get("shipped as", ""), *cells))
    differ = sum(line["differ"] > 0 for line in names)
    if names:
        told = f"**{differ} differ**" if differ else f"tokenizers: {names[0]['compared']} each"
        rows.append(row(counted(len(names), "name") + " of pre-tokenizers", "GPT-2's GGUF", told, "-"))
    return table(["tokenizer", "shipped as", "as GGUF", "as tokenizer.json"], rows)


def template_table(lines):
    rows = []
    for package in dict.fromkeys(line["name"].split("/")[0] for line in lines):
        own = [line["verdict"] for line in lines if line["name"].split("/")[0] == package]
        differ, refused = own.count("differs"), own.count("refused")
        rows.append(row(package, len(own), own.count("equal"), *(f"**{count}**" if count else 0 for count in (differ, refused))))
    return table(["templates of", "templates", "equal", "differ", "refused"], rows)


def page_part(record):
    """What stands between the markers."""
    if record is None:
        return "No record yet.\n"
    lines = {kind: of_kind(record, kind) for kind in KINDS}
    packages = ", ".join(f"{name} {version}" for name, version in record["packages"].items())
    conversations = lines["template"][0]["compared"]
    return "\n".join([
        f"Commit {record['commit'][:7]}, {record['date']}, random strings of seed {record['seed']}; {packages}. Bold is what differs.",
        "", f"{KINDS['family']}: the largest relative error of a logit against transformers in f32 (of a KV cache in 16 bits: against one in f32), and in "
        "brackets the number of models.", "",
        *family_table(lines["family"], "in folders", FOLDERS), "", *family_table(lines["family"], "in GGUF", FILES), "",
        f"{KINDS['tokenizer']}: what each was held against, and the number of texts, all equal.", "", *tokenizer_table(lines["tokenizer"]), "",
        f"{KINDS['template']}: equal are those that render all {conversations} conversations as transformers does.", "",
        *template_table(lines["template"]), ""])


def outputs(root):
    """What the page should hold: (path, text)."""
    text = filled(root / PAGE, {BEGIN: page_part(load(root / RECORD))})
    if text is not None:
        yield root / PAGE, text


def self_test():
    family = {"kind": "family", "name": "olmo2", "read as": "folder F32", "held against": "transformers", "compared": 2, "differ": 0,
              "largest error": 2.34e-6}
    tokenizer = {"kind": "tokenizer", "name": "falcon", "shipped as": "GGUF", "read as": "GGUF", "held against": "tokenizers", "compared": 9,
                 "differ": 0}
    template = {"kind": "template", "name": "trl/a/b.jinja", "held against": "transformers", "compared": 12, "differ": 0, "verdict": "equal",
                "raised by both": 3}
    fine = {"what": "", "commit": "36235a568c8d", "changed files": 0, "date": "2026-11-23", "packages": {"gguf": "0.19.0"}, "seed": 7,
            "short": False, "not covered": [], "records": [
                family, {**family, "read as": "folder of transformers 4"}, {**family, "read as": "GGUF Q4_0", "differ": 1},
                tokenizer, {**tokenizer, "read as": "tokenizer.json", "differ": 4}, {**tokenizer, "name": "bert", "refused": "no"},
                {**tokenizer, "name": NAMES + "mpt"}, {**tokenizer, "name": NAMES + "gpt-2"},
                template, {**template, "verdict": "refused", "differ": 1}]}
    assert collect([fine], None) == fine
    for spoilt, word in (({"changed files": 2}, "2 files"), ({"not covered": ["trl"]}, "trl"), ({"short": True}, "short"),
                         ({"records": fine["records"][:6]}, "template"), ({"records": [{**family, "read as": "GGUF Q9"}, tokenizer, template]}, "Q9")):
        try:
            collect([{**fine, **spoilt}], None)
        except SystemExit as refusal:
            assert word in str(refusal), refusal
        else:
            raise AssertionError(f"a report is taken in spite of: {word}")
    with made_up_root({PAGE: f"Text.\n\n{BEGIN}{END}"}, RECORD) as root:
        update(outputs(root), root)
        assert "No record yet." in (root / PAGE).read_text()
        write_results(root / RECORD, fine)
        assert load(root / RECORD) == fine
        assert stale(outputs(root)) == [root / PAGE]
        update(outputs(root), root)
        assert not stale(outputs(root))
        page = (root / PAGE).read_text()
        for part in ("Commit 36235a5, 2026-11-23", "seed 7", "gguf 0.19.0", "| olmo2 | 2.3e-06 (2) | same bits (2) |",
                     "| in GGUF | Q4_0 |", "| olmo2 | **1 of 2 differ** |",
                     "| falcon | GGUF | tokenizers: 9 | **tokenizers: 4 differ** |", "| bert | GGUF | refused by name | - |",
                     "| 2 names of pre-tokenizers | GPT-2's GGUF | tokenizers: 9 each | - |", "| trl | 2 | 1 | 0 | **1** |"):
            assert part in page, part


if __name__ == "__main__":
    sys.exit(run_tool(__doc__, RECORD, collect, outputs, self_test))
