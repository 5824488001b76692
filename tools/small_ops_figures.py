#!/usr/bin/env python3
"""Figures of the small ops on the GPU: from measurements to docs. Needs Python's standard library alone.

small_ops_figures.py --collect REPORT...  takes the records of the programs in PAGES out of reports of tools/gpu_check, which must come
                                          from an H200, writes bench/results/small_ops_h200.json, where the records of programs that no
                                          report has stay, and then goes on as
small_ops_figures.py                      which writes the table between the markers of each page in PAGES that has them
small_ops_figures.py --check              whether the pages are what the results give
small_ops_figures.py --self-test          the same with made-up records in a temporary folder

A record has `op`, `floor_us`, `samples` (at least MIN_SAMPLES, in microseconds) and whatever names its case: all members but those in
NO_CASE. Peers and limits stand in bench/peers/small_ops_h200.json; a row there applies to each record that has all members of `where`.
"""

import json
import sys

from figure_files import (END, MIN_SAMPLES, assert_refuses_no_proof, bold_above, bold_below_one, collected, filled, load,
                          made_up_root, measured_at, number, run_tool, stale, update, write_results)

RESULTS, PEERS = "bench/results/small_ops_h200.json", "bench/peers/small_ops_h200.json"
PAGES = {"bench_metadata_cuda": "docs/benchmarks/metadata.md", "bench_speculation_cuda": "docs/benchmarks/speculation.md",
         "bench_verify_cuda": "docs/benchmarks/verify.md", "bench_rms_norm_cuda": "docs/benchmarks/norm.md",
         "bench_mamba_state_selective_copy_cuda": "docs/benchmarks/mamba.md"}
BEGIN = "<!-- table of bench/results/small_ops_h200.json -->\n"
# What is measured, or the same for all records of a program.
NO_CASE = {"op", "floor_us", "us", "samples", "calls", "calls_in_graph", "bytes", "program", "device", "clocks", "commit",
           "date", "note"}


# From reports of gpu_check to the results.


def collect(reports, old=None):
    return collected("heddle's small ops", reports, PAGES, case_of, old)


# From the results to the pages.


def case_of(record):
    values = [(key, value) for key, value in record.items() if key not in NO_CASE]
    return ", ".join(str(value) if isinstance(value, str) else f"{value} {key}" for key, value in values)


def row_of(record, peers):
    """A line of the table. Bold is what heddle loses: slower than a peer, or above the limit."""
    rows = [row for row in peers if row["op"] == record["op"] and row["where"].items() <= record.items()]
    peer = min((row for row in rows if row.get("us") is not None), key=lambda row: row["us"], default=None)
    limit = min((row["bar_us"] for row in rows if row.get("bar_us") is not None), default=None)
    us, name, peer_us, faster = record["us"], "", "", ""
    if peer is not None:
        name, peer_us, ratio = peer["peer"], number(peer["us"]), peer["us"] / us
        faster = bold_below_one(ratio)
    own = number(us) if limit is None else bold_above(us, limit)
    floor = number(record["floor_us"]) if record["floor_us"] > 0 else ""
    return f"| `{record['op']}` | {case_of(record)} | {floor} | {own} | {name} | {peer_us} | {faster} | {number(limit)} |"


def page_part(results, peers, programs):
    """What stands between the markers."""
    records = [r for r in (results or {"records": []})["records"] if r["program"] in programs]
    if not records:
        return "No figures yet.\n"
    lines = [f"{records[0]['device']}, us, medians of at least {MIN_SAMPLES} samples; {measured_at(records)}. Bold: slower than the best "
             "peer, or above the limit.", "",
             "| op | case | floor | heddle | best peer | its time | times faster | limit |", "|" + "---|" * 8]
    return "\n".join([*lines, *(row_of(record, peers) for record in records)]) + "\n"


def outputs(root):
    """What the pages should hold: (path, text) each."""
    results, peers = load(root / RESULTS), load(root / PEERS)["records"]
    for page in dict.fromkeys(PAGES.values()):
        text = filled(root / page, {BEGIN: page_part(results, peers, [program for program, of in PAGES.items() if of == page])})
        if text is not None:
            yield root / page, text


def self_test():
    program, page = next(iter(PAGES.items()))
    record = {"op": "some_op", "batch": "4 each", "form": "graph", "requests": 256, "calls": 100, "floor_us": 0.5, "us": 9,
              "samples": [3.0, 1.9, 2.0, 2.1, 1.0]}
    report = {"device": {"name": "NVIDIA H200"}, "commit": "0123456789abcdef", "date": "2026-01-31", "nvcc": "13.0", "quick": False, "benches": [
        {"program": program, "ok": True, "clocks": {}, "records": [record, {**record, "form": "host", "floor_us": 0}]},
        {"program": "bench_other_cuda", "ok": True, "clocks": {}, "records": [record]}]}
    peers = [{"op": "some_op", "where": {"batch": "4 each", "form": "graph"}, "peer": "slow", "us": 5.0, "bar_us": 1.5},
             {"op": "some_op", "where": {"form": "graph"}, "peer": "fast", "us": 1.0},
             {"op": "some_op", "where": {"form": "host"}, "peer": "slow", "us": 5.0, "bar_us": 2.5}]
    texts = {PEERS: json.dumps({"records": peers}), page: f"# Title\n\n{BEGIN}by hand\n{END}\nThe end.\n"}
    with made_up_root(texts, RESULTS) as root:
        update(outputs(root), root)
        assert "No figures yet." in (root / page).read_text()
        write_results(root / RESULTS, collect([report]))
        write_results(root / RESULTS, collect([report], load(root / RESULTS)))
        assert len(load(root / RESULTS)["records"]) == 2 and stale(outputs(root)) == [root / page]
        update(outputs(root), root)
        text = (root / page).read_text()
        assert "| `some_op` | 4 each, graph, 256 requests | 0.50 | **2.00** | fast | 1.00 | **0.50** | 1.50 |\n" in text
        assert "| `some_op` | 4 each, host, 256 requests |  | 2.00 | slow | 5.00 | 2.50 | 2.50 |\n" in text
        assert text.startswith("# Title\n\n") and text.endswith("\nThe end.\n") and "by hand" not in text and not stale(outputs(root))
    assert_refuses_no_proof(collect, {**report, "benches": report["benches"][:1]})


if __name__ == "__main__":
    sys.exit(run_tool(__doc__, RESULTS, collect, outputs, self_test))
