#!/usr/bin/env python3
"""What the pages of docs/coming say that heddle has is there, and what it does not have has a reason.

  python3 tests/docs/coming_test.py HEDDLE

Each table of these pages has three columns: the other project's name, heddle's, what differs. The second heading says what
heddle's names are: options of commands (`heddle serve`), keywords and methods of `heddle.LLM`, a field of heddle (of requests), an
answer (a field of one), route, metric or variable of heddle. "the same" stands for the names of the first column, "always" for what
needs no name, and "no" for what is not there: then the third column says why, or what to use instead.
"""

import ast
import dataclasses
import pathlib
import re
import subprocess
import sys
import unittest

HEDDLE = None
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/coming"
COMMANDS = ("serve", "run-batch", "generate", "chat", "pull", "embed", "inspect")
SPAN = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"(?<!\S)--[a-z][a-z0-9-]*")
CALL = re.compile(r"(?:build/)?heddle (%s)\b((?:[^\n|;&\\]|\\\n)*)" % "|".join(COMMANDS))
LITERAL = re.compile(r'"([^"\\\n]+)"')
# Lists of the names of fields in C++: to_array<std::string_view>({...}), array<std::string_view, N> kNames = {...} and
# string_view kNames[] = {...}; and the entries of field_table.cpp.
FIELD_LISTS = re.compile(r"(?:to_array<std::string_view>\(\s*|array<std::string_view, \d+> \w+ = |string_view \w+\[\] = )\{([^{}]*)\}")
TABLE_ENTRIES = re.compile(r"^    (?:\{|hint\()(\"\w+\")", re.MULTILINE)
# kind, by the heading of the second column: what its names look like.
NAMES = {
    "field": re.compile(r"[a-z][a-z0-9_]*"),
    "answer": re.compile(r"[a-z][a-z0-9_]*"),
    "route": re.compile(r"/[a-z0-9_/-]*"),
    "metric": re.compile(r"[a-z]+:[a-z0-9_]+"),
    "variable": re.compile(r"[A-Z][A-Z0-9_]+"),
}


@dataclasses.dataclass
class Row:
    """One row of a table. `line` is counted from 1, `heading` is that of the second column."""
    line: int
    heading: str
    theirs: str
    ours: str
    differs: str


def cells_of(line):
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def rows_of(text):
    """(rows of all tables of a page, errors)."""
    rows, errors, heading, is_code = [], [], None, False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            is_code = not is_code
        if is_code or not line.startswith("|"):
            heading = None
            continue
        cells = cells_of(line)
        if len(cells) != 3:
            errors.append(f"line {number}: {len(cells)} columns, expected 3")
        elif heading is None:
            heading = cells[1]
        elif not set(line) <= set("|- "):
            rows.append(Row(number, heading, *cells))
    return rows, errors


def help_options(command):
    done = subprocess.run([HEDDLE, "help", command], capture_output=True, text=True, check=True)
    # Where an option begins a line of the help, not where a text mentions one.
    lines = re.findall(r"^ {2,6}(?:-\w, )?--[a-z0-9-]+(?:, --[a-z0-9-]+)*", done.stdout, re.MULTILINE)
    return set(re.findall(r"--[a-z][a-z0-9-]*", "\n".join(lines)))


def sources(*patterns):
    """The text of C++ sources without tests."""
    paths = [path for pattern in patterns for path in ROOT.glob(pattern) if path.suffix in (".cpp", ".h") and "test" not in path.parts]
    return "\n".join(path.read_text() for path in paths)


def request_fields():
    server = "apps/heddle-serve"
    lists = FIELD_LISTS.findall(sources(f"{server}/**/*", "apps/request_json/*"))
    return set(LITERAL.findall("\n".join(lists + TABLE_ENTRIES.findall(sources(f"{server}/api/field_table.cpp")))))


def python_names():
    """(keywords, methods) of heddle.LLM and of what it gives."""
    keywords, methods = set(), set()
    for path in (ROOT / "python/heddle").glob("_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
                methods.add(node.name)
                keywords |= {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                keywords.add(node.target.id)
    return keywords, methods


class Known:
    """The names that heddle has."""

    def __init__(self):
        self.options = {command: help_options(command) for command in COMMANDS}
        self.keywords, self.methods = python_names()
        variables = {"HEDDLE_SERVE_" + option[2:].upper().replace("-", "_") for option in self.options["serve"]}
        self.names = {
            "field": request_fields(),
            "answer": set(LITERAL.findall(sources("apps/heddle-serve/api/*"))),
            "route": set(LITERAL.findall(sources("apps/heddle-serve/routes/route.cpp"))),
            "metric": set(LITERAL.findall(sources("apps/heddle-serve/service/*"))),
            "variable": variables | set(LITERAL.findall(sources("apps/**/*", "src/**/*"))),
        }

    def of_commands(self, commands):
        return set().union(*(self.options[command] for command in commands))

    def wrong_calls(self, text):
        """Options in commands such as `heddle pull --revision REV` that the command does not have."""
        for command, rest in CALL.findall(text):
            for option in OPTION.findall(rest):
                if option not in self.options[command]:
                    yield f"heddle {command} has no {option}"


def names_in(row, known):
    """(names of heddle in the row's second column, those of them that are not there)."""
    cell = row.theirs if row.ours == "the same" else row.ours
    spans = [span for span in SPAN.findall(cell) if not CALL.match(span)]
    commands = re.findall(r"`heddle (\w+)`", row.heading)
    if commands:
        options = [option for span in spans for option in OPTION.findall(span)]
        return options, [o for o in options if o not in known.of_commands(commands)]
    if row.heading == "`heddle.LLM`":
        keywords = [k for span in spans for k in re.findall(r"^(\w+)=", span)]
        methods = [m for span in spans for m in re.findall(r"^(\w+)\(\)$", span)]
        if row.ours == "the same":
            keywords = [span for span in spans if span.isidentifier()]
        return keywords + methods, [k for k in keywords if k not in known.keywords] + [m for m in methods if m not in known.methods]
    kind = row.heading.removesuffix(" of heddle")
    if kind not in NAMES:
        return [kind], [f"tables of {row.heading!r}"]
    names = [name for span in spans for name in span.split() if NAMES[kind].fullmatch(name)]
    return names, [name for name in names if name not in known.names[kind]]


def row_errors(row, known):
    names, unknown = names_in(row, known)
    errors = [f"heddle has no {name}" for name in unknown]
    has_call = any(CALL.match(span) for span in SPAN.findall(row.ours))
    if row.ours == "no":
        if not row.differs:
            errors.append("a no without a reason")
    elif row.ours != "always" and not names and not has_call:
        errors.append(f"{row.ours!r} names nothing of heddle")
    commands = re.findall(r"`heddle (\w+)`", row.heading) or ["serve"]
    for span in SPAN.findall(row.differs):
        for option in OPTION.findall(span) if not CALL.match(span) else []:
            if option not in known.of_commands(commands) and option not in row.theirs:
                errors.append(f"heddle has no {option}")
    return [f"line {row.line}: {error}" for error in errors]


def page_errors(text, known):
    """What the page says of heddle that is not so."""
    rows, errors = rows_of(text)
    for row in rows:
        errors += row_errors(row, known)
    errors += known.wrong_calls(text)
    theirs = " ".join(row.theirs for row in rows)
    prose = "\n".join(line for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).split("\n") if not line.startswith("|"))
    for span in SPAN.findall(prose):
        for option in OPTION.findall(span):
            if option not in known.of_commands(COMMANDS) and option not in theirs:
                errors.append(f"no command of heddle, and no table, has {option}")
        if NAMES["metric"].fullmatch(span) and span not in known.names["metric"]:
            errors.append(f"heddle has no {span}")
    return errors


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.known = Known()

    def test_what_the_pages_name_is_there(self):
        pages = sorted(FOLDER.glob("*.md"))
        self.assertEqual([page.stem for page in pages], ["from_llama_cpp", "from_lorax", "from_peft", "from_vllm"])
        for page in pages:
            with self.subTest(page=page.name):
                text = page.read_text()
                self.assertGreater(len(rows_of(text)[0]), 50)
                self.assertEqual(page_errors(text, self.known), [])
                self.assertEqual([line for line in text.split("\n") if len(line) > 140], [])

    def errors(self, heading, *row):
        return page_errors(f"| them | {heading} | what differs |\n|---|---|---|\n| {' | '.join(row)} |\n", self.known)

    def test_what_is_not_there_is_found(self):
        for heading, row in (
                ("`heddle serve`", ("`--x`", "`--max-batches`", "")), ("`heddle pull`", ("`--x`", "`--max-batch`", "")),
                ("`heddle serve`", ("`--no-such`", "the same", "")), ("`heddle serve`", ("`--x`", "`heddle pull --max-batch 2`", "")),
                ("`heddle serve`", ("`--x`", "`--max-batch`", "or `--max-batches`")), ("`heddle serve`", ("`--x`", "often", "")),
                ("`heddle serve`", ("`--x`", "no", "")), ("`heddle.LLM`", ("x", "`max_batches=`", "")),
                ("`heddle.LLM`", ("x", "`generates()`", "")), ("field of heddle", ("x", "`n_predict`", "")),
                ("route of heddle", ("x", "`/v1/generate`", "")), ("metric of heddle", ("x", "`vllm:requests`", "")),
                ("variable of heddle", ("x", "`HEDDLE_SERVE_BATCH`", "")), ("setting of heddle", ("x", "`max_batch`", ""))):
            with self.subTest(heading=heading, row=row):
                self.assertEqual(len(self.errors(heading, *row)), 1)
        self.assertEqual(len(page_errors("Use `--max-batches` and look at `vllm:requests`.", self.known)), 2)
        self.assertEqual(len(page_errors("```text\nheddle serve --port 1 \\\n  --batch 2\n```", self.known)), 1)

    def test_what_is_there_passes(self):
        for heading, row in (
                ("`heddle serve`", ("`--x`", "`--max-batch`", "as `--x`")), ("`heddle serve`, `heddle pull`", ("`--x`", "`--revision REV`", "")),
                ("`heddle serve`", ("`--host`", "the same", "")), ("`heddle.LLM`", ("x", "`max_batch=`, `generate()`", "")),
                ("field of heddle", ("`top_k`", "the same", "")), ("route of heddle", ("x", "`POST /v1/completions`", "")),
                ("metric of heddle", ("x", "`vllm:num_requests_running`", "")), ("variable of heddle", ("x", "`HEDDLE_SERVE_PORT`", "")),
                ("field of heddle", ("`x`", "no", "leave it out")), ("`heddle serve`", ("`--x`", "always", ""))):
            with self.subTest(heading=heading, row=row):
                self.assertEqual(self.errors(heading, *row), [])


if __name__ == "__main__":
    HEDDLE = sys.argv.pop(1)
    unittest.main()
