#!/usr/bin/env python3
"""Figures of LoRA on the GPU: from measurements to docs. Needs Python's standard library alone.

plot_lora.py --collect REPORT  takes the records of bench_lora_cuda out of a report of tools/gpu_check, which must come from an H200,
                               adds the peers of bench/peers/lora_h200.json, writes bench/results/lora_h200.json, and then goes on as
plot_lora.py                   which draws docs/ops/lora_h200.svg and writes the tables between the markers in docs/ops/lora.md and,
                               where it has them, a short one in README.md
plot_lora.py --check           whether all that is what the results give
plot_lora.py --self-test       the same with made-up records in a temporary folder
"""

import argparse
import json
import math
import pathlib
import statistics
import sys
import tempfile
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = "bench/results/lora_h200.json"
PEERS = "bench/peers/lora_h200.json"
PLOT = "docs/ops/lora_h200.svg"
PAGE, FRONT_PAGE = "docs/ops/lora.md", "README.md"
BEGIN, END = "<!-- table of bench/results/lora_h200.json -->\n", "<!-- end of table -->\n"
CELL = ("op", "site", "rank", "tokens", "adapters")
MIN_SAMPLES = 5
FRONT_CELLS = ("qkv r16 1/1", "qkv r16 32/8", "qkv r16 32/32", "qkv r64 32/8", "gate_up r16 32/8", "down r16 32/8", "qkv r16 2048/8",
               "gate_up r16 2048/8")
PHASES = {"decode": "Decode: an adapter id for each token", "prefill": "Prefill: 8 adapters, 8 equal segments"}


def cell_of(record):
    return tuple(record[key] for key in CELL)


# From a report of gpu_check to the results.


def with_best_peer(record, peers_of):
    """The record with the fastest peer of its cell and how many times faster heddle is, where there is one."""
    peers = peers_of.get(cell_of(record), {}).get("peers_us")
    if not peers:
        return record
    name = min(peers, key=peers.get)
    return {**record, "best_peer": name, "best_peer_us": peers[name], "times_faster": round(peers[name] / record["us"], 3)}


def collect(report, peers):
    """The results: every record with its samples, machine, clocks and commit; stops at what is no proof."""
    device, commit = report["device"]["name"], report["commit"]
    if "H200" not in device:
        sys.exit(f"the report is of a {device}; the peers were measured on an H200")
    if report.get("quick"):
        sys.exit("the report is of a quick run")
    bench = next((b for b in report["benches"] if b["program"] == "bench_lora_cuda"), None)
    if bench is None or not bench["ok"]:
        sys.exit("the report has no successful run of bench_lora_cuda")
    peers_of = {cell_of(record): record for record in peers["records"]}
    records = []
    for record in bench["records"]:
        if len(record["samples"]) < MIN_SAMPLES:
            sys.exit(f"only {len(record['samples'])} samples: {cell_of(record)}")
        record = {**record, "us": statistics.median(record["samples"]), "device": device, "clocks": bench["clocks"], "commit": commit}
        records.append(with_best_peer(record, peers_of))
    if missing := set(peers_of) - {cell_of(record) for record in records}:
        sys.exit(f"the report lacks {sorted(missing)}")
    return {"what": "heddle's LoRA ops on one H200, written by tools/plot_lora.py from a report of tools/gpu_check",
            "device": report["device"], "nvcc": report["nvcc"], "records": records}


# The table.


class Row:
    """One cell with what heddle, the memory and the peers take, in microseconds."""

    def __init__(self, cell, forms):
        main = forms["default"]
        self.phase, self.site, self.rank = cell["phase"], cell["site"], cell["rank"]
        self.tokens, self.adapters = cell["tokens"], cell["adapters"]
        self.us, self.floor = main["us"], main["floor_us"]
        self.two = forms["two launches"]["us"] if "two launches" in forms else None
        self.peer, self.peer_us = main.get("best_peer"), main.get("best_peer_us")
        self.bar, self.target = cell["bar_us"], cell["target_us"]

    @property
    def label(self):
        return f"{self.site} r{self.rank} {self.tokens}/{self.adapters}"


def rows_of(results, peers):
    """Rows in the order of the peers' file."""
    forms = {}
    for record in results["records"]:
        forms.setdefault(cell_of(record), {})[record["form"]] = record
    return [Row(cell, forms[cell_of(cell)]) for cell in peers["records"]]


def number(us):
    return "" if us is None else f"{us:.0f}" if us >= 100 else f"{us:.1f}" if us >= 20 else f"{us:.2f}"


def table_of(rows):
    """Markdown. Bold is what heddle loses: slower than a peer, or above the bar."""
    lines = ["| site | rank | tokens / adapters | floor | heddle | two launches | best peer | its time | times faster | bar | target |",
             "|" + "---|" * 11]
    for row in rows:
        faster = row.peer_us / row.us
        lines.append("| " + " | ".join([
            row.site, str(row.rank), f"{row.tokens} / {row.adapters}", number(row.floor),
            number(row.us) if row.us <= row.bar else f"**{number(row.us)}**", number(row.two), row.peer.split(",")[0],
            number(row.peer_us), f"{faster:.2f}" if faster >= 1 else f"**{faster:.2f}**", number(row.bar), number(row.target)]) + " |")
    return lines


def summary_of(rows):
    faster, bar, target = (sum(row.us <= limit(row) for row in rows)
                           for limit in (lambda r: r.peer_us, lambda r: r.bar, lambda r: r.target))
    losses = ", ".join(row.label for row in rows if row.us > row.peer_us)
    return (f"Of {len(rows)} cells {faster} are as fast as the best peer or faster, {bar} are within the bar and {target} meet the "
            "target." + (f" Slower than the best peer: {losses}." if losses else ""))


def plan_line(results):
    plans = [r for r in results["records"] if r["op"] == "lora_plan"]
    parts = [f"{number(r['us'])} ({r['tokens']} / {r['adapters']}, rank {r['rank']})" for r in plans]
    return "`lora_plan`, once a step and not in the times above, us (tokens / adapters): " + ", ".join(parts) + "."


def page_part(results, peers):
    """What stands between the markers."""
    if results is None:
        return "No figures yet.\n"
    rows = rows_of(results, peers)
    device, commits = results["device"]["name"], sorted({r["commit"][:12] for r in results["records"]})
    lines = [f"{device}, bf16, us, medians of at least {MIN_SAMPLES} replays; commit {', '.join(commits)}. "
             "Bold: slower than the best peer, or above the bar.", "", f"![heddle and its peers]({pathlib.Path(PLOT).name})"]
    for phase, title in PHASES.items():
        of_phase = [row for row in rows if row.phase == phase]
        lines += ["", f"{title}. {summary_of(of_phase)}", "", *table_of(of_phase)]
    lines += [""]
    for row in rows:
        if row.adapters == 0:
            lines.append(f"{row.tokens} rows without an adapter at {row.site}, rank {row.rank}: {number(row.us)} us, "
                         f"asked: at most {number(row.bar)}.")
    return "\n".join([*lines, plan_line(results)]) + "\n"


def front_part(results, peers):
    """What stands between the markers of the front page: a choice of cells, and all losses."""
    if results is None:
        return "No figures yet.\n"
    rows = rows_of(results, peers)
    lines = [f"![heddle and its peers]({PLOT})", "", "| site, rank, tokens / adapters | heddle, us | best peer, us | times faster |",
             "|---|---|---|---|"]
    for row in rows:
        if row.label in FRONT_CELLS:
            lines.append(f"| {row.label} | {number(row.us)} | {number(row.peer_us)}, {row.peer} | {row.peer_us / row.us:.2f} |")
    lines.append("")
    lines += [f"{title}. {summary_of([row for row in rows if row.phase == phase])}" for phase, title in PHASES.items()]
    return "\n".join(lines) + "\n"


# The plot.

ROW, LEFT, WIDTH, RIGHT = 17, 150, 560, 70  # pixels; LEFT and RIGHT of the axis are labels
OURS, LOSS, PEER, FLOOR = "#1a7f5a", "#c2371f", "#7a7f87", "#b8860b"


class Drawing:
    """Lines of an SVG, with a logarithmic axis of microseconds."""

    def __init__(self, low, high):
        self.low, self.high, self.parts = math.log10(low), math.log10(high), []

    def x(self, us):
        return LEFT + WIDTH * (math.log10(us) - self.low) / (self.high - self.low)

    def text(self, x, y, text, anchor="start", colour="#222", weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}">'
                          f"{escape(text)}</text>")

    def line(self, x1, y1, x2, y2, colour, width=1.0):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>')

    def dot(self, x, y, colour):
        """Filled, but hollow for a peer."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{"white" if colour == PEER else colour}" '
                          f'stroke="{colour}" stroke-width="1.5"/>')

    def row(self, row, y):
        """The floor as a tick, heddle and the best peer as dots, joined; red where heddle is the slower one."""
        colour = OURS if row.us <= row.peer_us else LOSS
        self.text(LEFT - 10, y + 4, row.label, "end")
        self.line(self.x(row.us), y, self.x(row.peer_us), y, colour, 2)
        self.line(self.x(row.floor), y - 6, self.x(row.floor), y + 6, FLOOR, 2)
        self.dot(self.x(row.peer_us), y, PEER)
        self.dot(self.x(row.us), y, colour)
        self.text(LEFT + WIDTH + 12, y + 4, f"{row.peer_us / row.us:.2f}x", colour=colour,
                  weight="normal" if colour == OURS else "bold")

    def legend(self, y):
        for x, colour, name in ((0, OURS, "heddle"), (90, LOSS, "heddle, slower"), (220, PEER, "best peer")):
            self.dot(LEFT + x, y - 4, colour)
            self.text(LEFT + x + 10, y, name)
        self.line(LEFT + 320, y - 10, LEFT + 320, y + 2, FLOOR, 2)
        self.text(LEFT + 330, y, "bytes at 4.6 TB/s")
        self.text(LEFT + WIDTH + 12, y, "faster by")

    def axis(self, top, bottom):
        for exponent in range(math.ceil(self.low), math.floor(self.high) + 1):
            x = self.x(10.0**exponent)
            self.line(x, top, x, bottom, "#ddd")
            self.text(x, bottom + 14, f"{10.0**exponent:g} us", "middle")


def plot_of(results, peers):
    rows = [row for row in rows_of(results, peers) if row.peer_us]
    values = [us for row in rows for us in (row.us, row.floor, row.peer_us)]
    drawing = Drawing(10 ** math.floor(math.log10(min(values))), 1.2 * max(values))
    drawing.legend(20)
    y = 36
    for phase, title in PHASES.items():
        of_phase = [row for row in rows if row.phase == phase]
        drawing.text(LEFT, y + 10, f"{title} (site, rank, tokens/adapters)", weight="bold")
        y += 28
        drawing.axis(y - 8, y + ROW * len(of_phase) - 8)
        for row in of_phase:
            drawing.row(row, y)
            y += ROW
        y += 24
    width, body = LEFT + WIDTH + RIGHT, "\n".join(drawing.parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" '
            f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


# Files.


def load(path):
    return json.loads(path.read_text()) if path.exists() else None


def filled(path, part):
    """The page with `part` between its markers; None where it has none."""
    page = path.read_text()
    if BEGIN not in page:
        return None
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end or BEGIN in rest:
        sys.exit(f"{path}: {BEGIN.strip()} must stand there once and be followed by {END.strip()}")
    return before + BEGIN + "\n" + part + "\n" + END + after


def outputs(root):
    """What the files of docs should hold: (path, text) each."""
    results, peers = load(root / RESULTS), load(root / PEERS)
    pages = {root / PAGE: filled(root / PAGE, page_part(results, peers)),
             root / FRONT_PAGE: filled(root / FRONT_PAGE, front_part(results, peers))}
    if pages[root / PAGE] is None:
        sys.exit(f"{PAGE} lacks the line {BEGIN.strip()}")
    files = [(path, text) for path, text in pages.items() if text is not None]
    return files if results is None else [*files, (root / PLOT, plot_of(results, peers))]


def stale(root):
    """The files of docs that are not what the results give."""
    return [path for path, text in outputs(root) if not path.exists() or path.read_text() != text]


def update(root):
    for path, text in outputs(root):
        path.write_text(text)
        print(path.relative_to(root))


def write_results(root, results):
    """One record a line, so that differences can be read."""
    head = json.dumps({key: value for key, value in results.items() if key != "records"}, indent=1)
    lines = ",\n".join("  " + json.dumps(record) for record in results["records"])
    (root / RESULTS).write_text(f'{head[:-2]},\n "records": [\n{lines}\n ]\n}}\n')


def made_up_report(peers):
    """heddle is twice as fast as the best peer everywhere, but slower in the first cell."""
    records = []
    for cell in peers["records"]:
        us = min(cell["peers_us"].values(), default=2.0) / 2
        us = us * 3 if not records else us
        for form, factor in (("default", 1.0), ("two launches", 1.2)):
            records.append({**{key: cell[key] for key in CELL}, "form": form, "floor_us": us / 4,
                            "us": 0, "samples": [us * factor * scale for scale in (0.9, 0.95, 1, 1.05, 1.1)]})
    records.append({**records[0], "op": "lora_plan"})
    bench = {"program": "bench_lora_cuda", "ok": True, "clocks": {"clocks.sm": {"min": 1980.0, "max": 1980.0}}, "records": records}
    return {"device": {"name": "NVIDIA H200"}, "commit": "0123456789abcdef", "nvcc": "13.0", "quick": False, "benches": [bench]}


def self_test():
    peers = load(ROOT / PEERS)
    report = made_up_report(peers)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in (RESULTS, PEERS, PAGE):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / PEERS).write_text(json.dumps(peers))
        (root / PAGE).write_text(f"# Title\n\n{BEGIN}by hand\n{END}\nThe end.\n")
        (root / FRONT_PAGE).write_text("No markers.\n")
        assert stale(root) == [root / PAGE], "a page without results is filled, too"
        (root / FRONT_PAGE).write_text(BEGIN + END)
        write_results(root, collect(report, peers))
        update(root)
        assert stale(root) == []
        page, plot = (root / PAGE).read_text(), (root / PLOT).read_text()
        assert page.startswith("# Title\n\n") and page.endswith("\nThe end.\n") and "by hand" not in page
        assert "Of 22 cells 21 are as fast" in page and "Of 12 cells 12 are as fast" in page and "**0.67**" in page
        assert "Slower than the best peer: qkv r16 1/1." in page and (root / FRONT_PAGE).read_text().count("\n| ") == 9
        assert plot.count("2.00x") == 33 and plot.count("0.67x") == 1 and plot.count(LOSS) == 6
        (root / PAGE).write_text(page.replace("**0.67**", "1.67"))
        assert stale(root) == [root / PAGE], "a table changed by hand is noticed"
    for spoil, word in ((lambda r: r["device"].update(name="NVIDIA H100"), "H100"), (lambda r: r.update(quick=True), "quick"),
                        (lambda r: r["benches"][0]["records"].pop(0) and r["benches"][0]["records"].pop(0), "lacks"),
                        (lambda r: r["benches"][0]["records"][0]["samples"].clear(), "samples")):
        spoilt = json.loads(json.dumps(report))
        spoil(spoilt)
        try:
            collect(spoilt, peers)
        except SystemExit as refusal:
            assert word in str(refusal), refusal
        else:
            raise AssertionError(f"a report that should be refused was taken: {word}")
    print("plot_lora.py: self-test passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=pathlib.Path, metavar="REPORT")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
    elif arguments.check:
        old = stale(ROOT)
        print("\n".join(f"{path.relative_to(ROOT)} is not what {RESULTS} gives: run tools/plot_lora.py" for path in old)
              or f"docs are what {RESULTS} gives" if (ROOT / RESULTS).exists() else f"no {RESULTS} yet, and the docs say so")
        return 1 if old else 0
    else:
        if arguments.collect:
            write_results(ROOT, collect(load(arguments.collect), load(ROOT / PEERS)))
        update(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
