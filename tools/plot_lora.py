#!/usr/bin/env python3
"""Figures of LoRA on the GPU: from measurements to docs. Needs Python's standard library alone.

plot_lora.py --collect REPORT...  takes the records of the programs bench_lora*_cuda out of reports of tools/gpu_check, which must come
                                  from an H200, adds the peers of bench/peers/lora_h200.json, writes bench/results/lora_h200.json, where
                                  the records of programs that no report has stay, and then goes on as
plot_lora.py                      which draws docs/benchmarks/lora_h200.svg and writes the tables between the markers in
                                  docs/benchmarks/lora.md; where there is bench/results/lora_race_h200.json, of bench/peers/race,
                                  all that is said of peers comes from it alone
plot_lora.py --check              whether all that is what the results give
plot_lora.py --self-test          the same with made-up records in a temporary folder
"""

import json
import pathlib
import sys

from figure_drawing import LOSS, dot_plot
from figure_files import (END, MIN_SAMPLES, ROOT, assert_refuses_no_proof, collected, filled, load, made_up_root, run_tool, stale,
                          unwrapped, update, with_best_peer, write_results)
from lora_race import OTHER_RACE, RACE, load_race, made_up_race, race_part, race_rows
from lora_tables import (CELL, HOST_PROGRAM, PHASES, PLOT, PROGRAMS, SHAPES_PROGRAM, SITES_PROGRAM, STEP_PROGRAM, cell_of,
                         page_part)

RESULTS = "bench/results/lora_h200.json"
PEERS = "bench/peers/lora_h200.json"
PAGE = "docs/benchmarks/lora.md"
BEGIN = "<!-- table of bench/results/lora_h200.json -->\n"
BEGIN_RACE = f"<!-- table of {RACE} -->\n"

# From a report of gpu_check to the results.


def collect(reports, peers, old=None):
    """The results, with the best peer at every site."""
    peers_of = {cell_of(record): record["peers_us"] for record in peers["records"]}
    results = collected("heddle's LoRA ops", reports, PROGRAMS, cell_of, old)
    results["records"] = [with_best_peer(record, peers_of.get(cell_of(record))) if record["program"] == SITES_PROGRAM else record
                          for record in results["records"]]
    if missing := set(peers_of) - {cell_of(record) for record in results["records"] if record["program"] == SITES_PROGRAM}:
        sys.exit(f"the records lack {sorted(missing)}")
    return results


# Files.


def plot_of(race, peers):
    rows = race_rows(race, peers)
    return dot_plot([(f"{title} (site, rank, tokens/adapters)", [row for row in rows if row.phase == phase])
                     for phase, title in PHASES.items()])


def outputs(root):
    """What the files of docs should hold: (path, text) each."""
    results, peers, race = load(root / RESULTS), load(root / PEERS), load_race(root / RACE)
    other = load_race(root / OTHER_RACE) if (root / OTHER_RACE).exists() else None
    page = filled(root / PAGE, {BEGIN_RACE: race_part(race, peers, pathlib.Path(PLOT).name, other),
                                BEGIN: page_part(results, peers, race)})
    if page is None:
        sys.exit(f"{PAGE} lacks the line {BEGIN.strip()} or {BEGIN_RACE.strip()}")
    return [(root / PAGE, page), (root / PLOT, plot_of(race, peers))]


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
    made_up = {"op": "lora_apply", "site": "qkv", "rank": 16, "tokens": 32, "adapters": 8, "floor_us": 1.0}

    def record(us, **members):
        return {**made_up, "samples": [us] * MIN_SAMPLES, **members}

    records += [record(10, rank=48, form="uniform ranks"), record(12, rank=48, form="mixed ranks"),
                *(record(us, adapters=4, form=f"{n} loaded", loaded=n) for n, us in ((8, 5.0), (512, 5.1)))]
    steps = [record(4000, op="decode_step", adapters=0, layers=32, form="base alone"),
             record(20, op="product", adapters=0, form="cuBLASLt"),
             *(record(us, op="decode_step", layers=32, added_percent=us / 40 - 100, form=form)
               for us, form in ((4600, "fetch beside"), (5000, "after")))]
    shapes = [record(us, site=f"seed {us}", in_features=77, out_features=[5, us], bar_us=10.0, rows="ids", alignment="odd", form="random")
              for us in (5, 8, 30)]
    host = [record(3.0, form="host"), record(2.0, form="host, two launches"), record(2.0, op="launch", form="host, empty kernel")]
    return {"device": {"name": "NVIDIA H200"}, "commit": "0123456789abcdef", "date": "2026-01-31", "nvcc": "13.0", "quick": False, "benches": [
        {"program": program, "ok": True, "clocks": {"clocks.sm": {"min": 1980.0, "max": 1980.0}}, "records": of_program}
        for program, of_program in ((SITES_PROGRAM, records), (STEP_PROGRAM, steps), (SHAPES_PROGRAM, shapes), (HOST_PROGRAM, host))]}


def self_test():
    peers = load(ROOT / PEERS)
    report = made_up_report(peers)
    texts = {PEERS: json.dumps(peers), PAGE: f"# Title\n\n{BEGIN_RACE}by hand\n{END}\n{BEGIN}by hand\n{END}\nThe end.\n"}
    with made_up_root({**texts, RACE: json.dumps(made_up_race(peers))}, RESULTS) as root:
        assert stale(outputs(root)) == [root / PAGE, root / PLOT], "a page without results is filled, too"
        sites_alone = {**report, "benches": report["benches"][:1]}
        write_results(root / RESULTS, collect([sites_alone], peers))
        update(outputs(root), root)
        assert "decode step" not in (root / PAGE).read_text() and "random shapes" not in (root / PAGE).read_text()
        others_alone = {**report, "benches": report["benches"][1:]}
        write_results(root / RESULTS, collect([others_alone], peers, load(root / RESULTS)))
        assert load(root / RESULTS)["records"] == collect([sites_alone, others_alone], peers)["records"]
        update(outputs(root), root)
        assert stale(outputs(root)) == []
        page, plot = unwrapped((root / PAGE).read_text()), (root / PLOT).read_text()
        assert page.startswith("# Title\n\n") and page.endswith("\nThe end.\n") and "by hand" not in page
        assert "Of 22 cells 21 are as fast" in page and "Of 12 cells 12 are as fast" in page
        assert "| 1.20 |" not in page and "**1.20**" in page and "5.10 us with 512 (+2.0 %" in page, "mixed ranks and many adapters"
        assert "| after the product, weights prefetched to L2 | 4600 | 600 | 15.0 % |" in page and "| after | 5000 | 1000 | **25.0 %** |" in page
        assert "`lora_apply` **3.00**; `lora_apply`, two launches, 2.00; empty kernel 2.00. Limit: 2.5" in page
        assert "3 random shapes" in page and "1 are above" in page and "| 77 -> 5 + 30 |" in page and "**3.00**" in page
        assert plot.count("2.00x") == 33 and plot.count("0.50x") == 1 and plot.count(LOSS) == 6
        assert "another loan" not in page
        (root / OTHER_RACE).write_text(json.dumps(made_up_race(peers)))
        update(outputs(root), root)
        page = unwrapped((root / PAGE).read_text())
        assert "(../../bench/results/lora_race_h200_other_card.json), commit 0123456). Decode: 2.00 times as fast" in page
        (root / PAGE).write_text((root / PAGE).read_text().replace("**0.50**", "1.50"))
        assert stale(outputs(root)) == [root / PAGE], "a table changed by hand is noticed"
        assert "| qkv | 16 | 1 / 1 | 2.00 | **10.00** | **11.00** | 44.0 | 5.50 | 66.0 | 33.0 | (14.07) | **0.50** | **1.50** | 1.25 | 77.0 |" in page
        assert "| qkv | 64 | 1 / 1 | 2.00 | 10.00 | 11.00 | 44.0 | 22.0 | 66.0 | 33.0 |  | 2.00 | 1.50 | 2.50 | 77.0 |" in page
        assert "Of 22 cells 21 are as fast as the fastest setting of any peer, or faster. Slower: qkv r16 1/1." in page
        assert "SGLang 0.5.23, vLLM 0.33.0; torch 2.11.0" in page and "best peer |" not in page and "vLLM, swept 2 at qkv." in page
        assert "A grouped 64x128, 4 warps, 3 stages, split 4 serial; B per_row" in page and "shrink 16x32x64, split 8" in page
    assert_refuses_no_proof(lambda reports: collect(reports, peers), report,
                            (lambda r: r["benches"][0]["records"].pop(0) and r["benches"][0]["records"].pop(0), "lack"))


if __name__ == "__main__":
    sys.exit(run_tool(__doc__, RESULTS, lambda reports, old: collect(reports, load(ROOT / PEERS), old), outputs, self_test))
