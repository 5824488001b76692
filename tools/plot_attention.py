#!/usr/bin/env python3
"""Figures of attention on the GPU: from measurements to docs. Needs Python's standard library alone.

plot_attention.py --collect REPORT...  takes the records of the programs bench_attention_*_cuda and bench_kv_append_cuda out of reports of
                                       tools/gpu_check, which must come from an H200, adds the peers of bench/peers/attention_h200.json,
                                       writes bench/results/attention_h200.json, where the records of programs that no report has stay,
                                       and then goes on as
plot_attention.py --collect REPORT... --into bench/results/attention_h200_other_card.json
                                       the same for another card, which gets a line
plot_attention.py                      which draws the plots docs/benchmarks/attention_*_h200.svg and writes the tables between the markers in
                                       docs/benchmarks/attention.md
plot_attention.py --check              whether all that is what the results give
plot_attention.py --self-test          the same with made-up records in a temporary folder
"""

import json
import sys

from attention_tables import (DECODE_PLOT, DECODE_PROGRAM, PORTABLE, PORTABLE_PEER, PREFILL_TARGET, PREFILL_PLOT, PREFILL_PROGRAM,
                              PROGRAMS, RACE_PEER, STORE_PROGRAM, by_heads, case_of, decode_part, decode_rows, other_card_lines, peer_of,
                              prefill_cells, prefill_part, race_part, shape_of, store_part, with_race)
from figure_drawing import LOSS, OTHER, OURS, PEER, bar_plot, dot_plot
from figure_files import (END, MIN_SAMPLES, ROOT, assert_refuses_no_proof, collected, filled, load, made_up_root, run_tool, stale,
                          unwrapped, update, with_best_peer, write_results)

RESULTS, PEERS, PAGE = "bench/results/attention_h200.json", "bench/peers/attention_h200.json", "docs/benchmarks/attention.md"
OTHER_CARD = "bench/results/attention_h200_other_card.json"
RACE = "bench/results/attention_race_h200.json"
BEGIN_RACE = f"<!-- table of {RACE} -->\n"
BEGIN = {program: f"<!-- table of {RESULTS}, {program} -->\n" for program in PROGRAMS}


def collect(reports, peers, old=None):
    """The results, with the best peer on the same pages."""
    results = collected("heddle's attention ops", reports, PROGRAMS, case_of, old)
    of_record = [(record, peer_of(record, peers)) for record in results["records"]]
    results["records"] = [with_best_peer(record, peer and peer["peers_us"]) for record, peer in of_record]
    found, timed = [peer for _, peer in of_record if peer], {record["op"] for record, _ in of_record}
    missing = [case_of(peer) for peer in peers["records"] if peer["op"] in timed and not peer.get("rope") and peer not in found]
    if missing:
        sys.exit(f"the records lack {missing}")
    return results


def known_peers():
    """The recorded ones, and that of the race."""
    peers, race = load(ROOT / PEERS), load(ROOT / RACE)
    return with_race(peers, race) if race else peers


def decode_plot(results):
    return dot_plot([(f"{heads} heads (sequences x keys)", rows) for heads, rows in by_heads(decode_rows(results)).items()],
                    names_peers=True)


def prefill_plot(results, peers):
    groups = []
    for record, rates in prefill_cells(results, peers):
        kept = record["tflops"] >= PREFILL_TARGET * rates[PORTABLE_PEER]
        bars = [("heddle", record["tflops"], OURS if kept else LOSS),
                *((name, rate, PEER if name in PORTABLE else OTHER) for name, rate in sorted(rates.items(), key=lambda pair: -pair[1]))]
        groups.append((f"{shape_of(record)} tokens, TFLOP/s", bars))
    legend = [(OURS, "heddle"), (LOSS, "heddle, below the target"), (PEER, "peers for every chip from 8.0"), (OTHER, "for Hopper alone")]
    return bar_plot(groups, "", 100, legend)


def outputs(root):
    """What the files of docs should hold: (path, text) each."""
    results, peers = load(root / RESULTS) or {"records": []}, load(root / PEERS)
    other_card = other_card_lines(load(root / OTHER_CARD) or {"records": []}, f"../../{OTHER_CARD}")
    parts = {DECODE_PROGRAM: decode_part(results, peers, other_card), PREFILL_PROGRAM: prefill_part(results, peers),
             STORE_PROGRAM: store_part(results)}
    of_line = {BEGIN[program]: part for program, part in parts.items()} | {BEGIN_RACE: race_part(load(root / RACE))}
    page = filled(root / PAGE, of_line)
    if page is None:
        sys.exit(f"{PAGE} lacks one of the lines {' '.join(line.strip() for line in of_line)}")
    files = [(root / PAGE, page)]
    if decode_rows(results):
        files.append((root / DECODE_PLOT, decode_plot(results)))
    if prefill_cells(results, peers):
        files.append((root / PREFILL_PLOT, prefill_plot(results, peers)))
    return files


def made_up_report(peers):
    """heddle is twice as fast as the best peer, but in the first cell of decode and of prefill half as fast."""
    decode, prefill, slow = [], [], {"batch_decode": 4, "batch_prefill": 4}
    for peer in peers["records"]:
        if peer.get("rope") and (peer["batch"], peer["kv_len"]) != (32, 2048):
            continue
        us = min(peer["peers_us"].values()) / 2 * slow.pop(peer["op"], 1)
        record = {key: value for key, value in peer.items() if not key.endswith("_us")}
        samples = [us * scale for scale in (0.9, 0.95, 1, 1.05, 1.1)]
        if peer["op"] == "batch_decode":
            decode.append({**record, "bytes": 1000, "floor_us": us / 4, "us": 0, "samples": samples})
        else:
            prefill.append({**record, "tflops": 1e5 / us, "floor_us": us / 4, "us": 0, "samples": samples})
    first = decode[0]
    decode.append({**first, "head_dim": 64, "bytes": 10**7, "samples": [5.0] * MIN_SAMPLES})
    decode.append({**first, "others_of_one_token": 63, "samples": [77.0] * MIN_SAMPLES})
    prefill.append({**prefill[0], "batch": 4, "q_len": 2048, "head_dim": 64, "tflops": 111.0})
    rotates = {**prefill[-1], "op": "batch_prefill, RoPE inside", "tflops": 55.0}
    prefill.append({**rotates, "samples": [2 * us for us in rotates["samples"]]})
    store = [{"op": op, "batch": batch, "bytes": 10**8, "floor_us": 1.0, "samples": [us] * MIN_SAMPLES}
             for op, batch, us in (("empty kernel", "", 0.5), ("kv_append", "1 x 1", 1.5), ("kv_init", "1 x 1", 2.5),
                                   ("kv_init", "8 x 2048", 50.0), ("copy", "8 x 2048", 25.0))]
    return {"device": {"name": "NVIDIA H200"}, "commit": "0123456789abcdef", "date": "2026-01-31", "nvcc": "13.0", "quick": False, "benches": [
        {"program": program, "ok": True, "clocks": {"clocks.sm": {"min": 1980.0, "max": 1980.0}}, "records": records}
        for program, records in ((DECODE_PROGRAM, decode), (PREFILL_PROGRAM, prefill), (STORE_PROGRAM, store))]}


def made_up_race(peers):
    """The first cell of decode: heddle takes 8 us, the peer 6 in the better of two settings, a plain read 2."""
    cell = {key: value for key, value in peers["records"][0].items() if not key.endswith("_us")}
    facts = [("read", {"op": "read", "peer": "memory"}, 2.0), ("heddle", {"peer": "heddle"}, 8.0), ("slow", {"peer": RACE_PEER}, 7.0),
             ("fast", {"peer": RACE_PEER}, 6.0)]
    return {"device": {"name": "NVIDIA H200"}, "commit": "0123456789abcdef", "date": "2026-01-31",
            "versions": {"torch": "2.11.0+cu130", "cudnn": 91900},
            "records": [{**cell, "setting": setting, **fact, "us": us, "samples": [us] * MIN_SAMPLES} for setting, fact, us in facts]}


def check_page(page):
    assert page.startswith("# Title\n\n") and page.endswith("\nThe end.\n") and "by hand" not in page
    assert "Of 66 cells heddle is at least as fast as the fastest peer in 65" in page and "**0.50**" in page, "a loss stands there"
    assert page.count(") 2.00 |") == 65 and "0.50 at the least (32/8, 1 x 512)" in page
    assert "RoPE inside: 32 x 2048 " in page and "; FlashInfer CUDA cores " in page and " times the call without" in page
    assert "64: 2.00 TB/s." in page and "with 63 sequences of one: 77.0 us, alone 14.52." in page
    assert "| times the best on pages of 16 | **0.50** | 2.00 | 2.00 | 2.00 | 2.00 |" in page
    assert "| 4 x 2048, heads of | 32/8 of 64 | 32/8 of 64, RoPE inside |" in page and "| TFLOP/s | 111 | 55 |" in page
    assert "RoPE inside takes 2.00 times the call without." in page
    assert "| `kv_append` | 1.50 us |  |" in page and "| `kv_init` | **2.50 us** | **2.00 TB/s** |" in page
    assert "reaches 0.50 (8 x 2048) of the copy" in page and "empty kernel there takes 0.50 us" in page


def self_test():
    peers = load(ROOT / PEERS)
    report = made_up_report(peers)
    page = "# Title\n\n" + "".join(f"{line}by hand\n{END}\n" for line in (*BEGIN.values(), BEGIN_RACE)) + "The end.\n"
    with made_up_root({PEERS: json.dumps(peers), PAGE: page}, RESULTS) as root:
        update(outputs(root), root)
        assert (root / PAGE).read_text().count("No figures yet.") == 4 and not (root / DECODE_PLOT).exists()
        decode_alone = {**report, "benches": report["benches"][:1]}
        write_results(root / RESULTS, collect([decode_alone], peers))
        update(outputs(root), root)
        assert (root / PAGE).read_text().count("No figures yet.") == 3 and not (root / PREFILL_PLOT).exists()
        others_alone = {**report, "benches": report["benches"][1:]}
        write_results(root / RESULTS, collect([others_alone], peers, load(root / RESULTS)))
        assert load(root / RESULTS)["records"] == collect([report], peers)["records"]
        first = load(root / RESULTS)["records"][0]
        assert (first["best_peer"], first["times_faster"]) == ("XQA sm90", 0.5) and first["clocks"]["clocks.sm"]["min"] == 1980
        update(outputs(root), root)
        check_page(unwrapped((root / PAGE).read_text()))
        decode, prefill = (root / DECODE_PLOT).read_text(), (root / PREFILL_PLOT).read_text()
        assert decode.count("2.00x") == 65 and decode.count("0.50x") == 1 and decode.count(">XQA sm90<") == 33
        assert prefill.count(">heddle<") == 6 and prefill.count(f'fill="{OTHER}"') == 26, "five shapes and the legend"
        assert not stale(outputs(root))
        assert "Cards differ" not in (root / PAGE).read_text()
        write_results(root / OTHER_CARD, collect([report], peers))
        update(outputs(root), root)
        assert "65 cells are within the limit, and in 65 heddle is" in unwrapped((root / PAGE).read_text())
        race = made_up_race(peers)
        write_results(root / RACE, race)
        update(outputs(root), root)
        assert "| 32/8 | 1 | 8.00 (6.00; 2.00) **0.75** |" in (root / PAGE).read_text()
        assert "Of 1 cells heddle is at least as fast in 0; 0.75" in unwrapped((root / PAGE).read_text())
        joined = [record["peers_us"] for record in with_race(peers, race)["records"]]
        assert [us[RACE_PEER] for us in joined if RACE_PEER in us] == [6.0], "the fastest setting, in the one cell"
        (root / PAGE).write_text((root / PAGE).read_text().replace("**0.50**", "1.50"))
        assert stale(outputs(root)) == [root / PAGE], "a table changed by hand is noticed"
    assert_refuses_no_proof(lambda reports: collect(reports, peers), report, (lambda r: r["benches"][0]["records"].pop(1), "lack"))


if __name__ == "__main__":
    sys.exit(run_tool(__doc__, RESULTS, lambda reports, old: collect(reports, known_peers(), old), outputs, self_test))
