"""Files of figures: results as JSON, and pages that have tables of them between two markers; and the command line of the tools."""

import argparse
import contextlib
import json
import pathlib
import re
import statistics
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent

MIN_SAMPLES = 5
END = "<!-- end of table -->\n"


def load(path):
    return json.loads(path.read_text()) if path.exists() else None


def write_results(path, results):
    """One record a line, so that differences can be read."""
    head = json.dumps({key: value for key, value in results.items() if key != "records"}, indent=1)
    lines = ",\n".join("  " + json.dumps(record) for record in results["records"])
    path.write_text(f'{head[:-2]},\n "records": [\n{lines}\n ]\n}}\n')


def records_of(report, bench, case_of):
    """The records of one program with their machine, clocks and commit; stops at what is no proof."""
    if not bench["ok"]:
        sys.exit(f"the run of {bench['program']} failed")
    for record in bench["records"]:
        if len(record["samples"]) < MIN_SAMPLES:
            sys.exit(f"only {len(record['samples'])} samples: {case_of(record)}")
        yield {**record, "us": statistics.median(record["samples"]), "program": bench["program"],
               "device": report["device"]["name"], "clocks": bench["clocks"], "commit": report["commit"],
               "date": report["date"]}


def collected(what, reports, programs, case_of, old=None):
    """The results of `programs`: later reports replace earlier ones and the old results, program by program."""
    records, found = {program: [] for program in programs}, old or {"device": None, "nvcc": None}
    for record in (old or {"records": []})["records"]:
        records[record["program"]].append(record)
    for report in reports:
        if "H200" not in report["device"]["name"]:
            sys.exit(f"the report is of a {report['device']['name']}; the peers were measured on an H200")
        if report.get("quick"):
            sys.exit("the report is of a quick run")
        benches = [bench for bench in report["benches"] if bench["program"] in programs]
        if not benches:
            sys.exit(f"the report has no run of {', '.join(programs)}")
        for bench in benches:
            records[bench["program"]] = list(records_of(report, bench, case_of))
            found = report
    return {"what": f"{what} on one H200, from reports of tools/gpu_check", "device": found["device"], "nvcc": found["nvcc"],
            "records": [record for program in programs for record in records[program]]}


def measured_at(records):
    """Commit and day of the records: "commit 36235a5, 2026-11-23"."""
    return "commit " + ", ".join(sorted({f"{r['commit'][:7]}, {r['date']}" for r in records}))


def with_best_peer(record, peers_us):
    """The record with the fastest of its peers and how many times faster heddle is, where there is one."""
    if not peers_us:
        return record
    name = min(peers_us, key=peers_us.get)
    return {**record, "best_peer": name, "best_peer_us": peers_us[name], "times_faster": round(peers_us[name] / record["us"], 3)}


def wrapped(text):
    """Prose in lines of at most 100 columns; tables and pictures as they are."""
    lines = []
    for line in text.split("\n"):
        is_prose = line and not line.startswith(("|", "!"))
        kept = line.replace(" %", "\0%")  # stays with its number
        lines += textwrap.wrap(kept, 100, break_long_words=False, break_on_hyphens=False) if is_prose else [kept]
    return "\n".join(lines).replace("\0", " ")


def unwrapped(page):
    """The page with each paragraph in one line, for tests that look for words."""
    return re.sub(r"(?<=[^\n|])\n(?=[^\n|<])", " ", page)


def filled(path, parts):
    """The page with each of `parts` between the line that is its key and END; None where the page lacks such a line."""
    page = path.read_text() if path.exists() else ""
    for begin, part in parts.items():
        if begin not in page:
            return None
        before, _, rest = page.partition(begin)
        _, end, after = rest.partition(END)
        if not end or begin in rest:
            sys.exit(f"{path}: {begin.strip()} must stand there once and be followed by {END.strip()}")
        page = before + begin + "\n" + wrapped(part) + "\n" + END + after
    return page


# Cells of the tables. Bold is what heddle loses.


def number(us):
    return "" if us is None else f"{us:.0f}" if us >= 100 else f"{us:.1f}" if us >= 20 else f"{us:.2f}"


def bold_above(value, limit, text=number):
    return text(value) if value <= limit else f"**{text(value)}**"


def bold_below_one(faster):
    return f"{faster:.2f}" if faster >= 1 else f"**{faster:.2f}**"


# What the tools do. `outputs` gives (path, text) of what the files of docs should hold.


def stale(outputs):
    """The files that are not what the results give."""
    return [path for path, text in outputs if not path.exists() or path.read_text() != text]


def update(outputs, root=ROOT):
    for path, text in outputs:
        path.write_text(text)
        print(path.relative_to(root))


@contextlib.contextmanager
def made_up_root(texts, *later):
    """A temporary folder in ROOT's place, with files of these texts, and with the folders of files that come later."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in (*texts, *later):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (root / name).write_text(text)
        yield root


def assert_refuses_no_proof(collect, report, *more):
    """That collect([report]) stops at a report that is no proof. `more`: (what spoils a report, word of the reason)."""
    for spoil, word in ((lambda r: r["device"].update(name="NVIDIA H100"), "H100"), (lambda r: r.update(quick=True), "quick"),
                        (lambda r: r["benches"][0]["records"][0]["samples"].clear(), "samples"),
                        (lambda r: r["benches"][0].update(ok=False), "failed"), (lambda r: r["benches"].clear(), "no run of"), *more):
        spoilt = json.loads(json.dumps(report))
        spoil(spoilt)
        try:
            collect([spoilt])
        except SystemExit as refusal:
            assert word in str(refusal), refusal
        else:
            raise AssertionError(f"a report is taken in spite of: {word}")


def run_tool(doc, results, collect, outputs, self_test):
    """The command line that all tools have. `collect(reports, old)` gives the results, which lie at ROOT / results."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=pathlib.Path, metavar="REPORT", nargs="+")
    parser.add_argument("--into", metavar="RESULTS", default=results)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
        print(f"{parser.prog}: self-test passed")
        return 0
    if arguments.check:
        old = stale(outputs(ROOT))
        print("\n".join(f"{path.relative_to(ROOT)} is not what {results} gives: run tools/{parser.prog}" for path in old)
              or (f"docs are what {results} gives" if (ROOT / results).exists() else f"no {results} yet, and the docs say so"))
        return 1 if old else 0
    if arguments.collect:
        into = ROOT / arguments.into
        write_results(into, collect([load(path) for path in arguments.collect], load(into)))
    update(outputs(ROOT))
    return 0
