#!/usr/bin/env python3
"""The two tables of figures in README.md, that of the CPU with all its cells, those of the servers and of conversations: from recorded
results to the pages. Needs Python's standard library alone.

readme_figures.py              writes them between their markers
readme_figures.py --check      whether they are what the results give
readme_figures.py --self-test  that a loss is bold, and that a table changed by hand is noticed

The tables of README.md and of the CPU have the same columns: heddle, the fastest peer with its name, and how many times faster heddle is. A table shows the
cells that are named here, so that a new measurement cannot drop one that has become a loss; the line below it counts all losses.
"""

import argparse
import json
import statistics
import sys

from attention_tables import decode_rows, prefill_cells, prefill_peers
from figure_files import END, ROOT, bold_below_one, filled, load, made_up_root, measured_at, number, stale, update
from lora_race import RACE, load_race, made_up_race, race_rows
from server_tables import CHATS, SERVERS, chats_part, made_up_chats, made_up_servers, server_part
from server_tables import self_test as self_test_server_parts

PAGE, CPU_PAGE, SERVER_PAGE = "README.md", "docs/benchmarks/engine.md", "docs/benchmarks/server.md"
ATTENTION, CPU = "bench/results/attention_h200.json", "bench/results/cpu_model.json"
OTHER_CARD = "bench/results/attention_h200_other_card.json"
LORA_PEERS, ATTENTION_PEERS = "bench/peers/lora_h200.json", "bench/peers/attention_h200.json"
ENGINE = "bench/results/engine_vllm_h200.json"
BEGIN = {name: f"<!-- table of {name} -->\n" for name in (ENGINE, CPU, SERVERS, CHATS)}

ENGINE_MODEL, ENGINE_ROWS = "llama-3.1-8b", 32
PROGRAMS = {"transformers": "transformers", "peft": "PEFT", "vllm": "vLLM"}
# Name of heddle's samples -> what the page calls it, and peers' samples by name.
CPU_CELLS = {
    "decode_1_row": ("1 row", {"llama.cpp/decode_1_row": "llama.cpp"}),
    "decode_8_rows": ("8 rows, no adapters", {"llama.cpp/decode_8_rows": "llama.cpp"}),
    "decode_8_rows_8_adapters": ("8 rows, 8 adapters", {"peft/decode_8_rows_8_adapters": "PEFT",
                                                        "llama.cpp/decode_8_rows_one_after_another": "llama.cpp, no adapters"}),
    "prefill_512": ("prompt of 512 tokens", {"llama.cpp/prefill_512": "llama.cpp", "transformers/prefill_512": "torch"})}
# Figures of a model, with `family` before all names; of a record that has it.
QWEN2_FAMILIES = {"qwen2_q4_0/": "Qwen2-0.5B's shape, Q4_0", "qwen2_bf16/": "the same in bf16"}
QWEN2_CELLS = {
    "decode_1_row": ("1 row", {"llama.cpp/decode_1_row": "llama.cpp"}),
    "decode_8_rows": ("8 rows, no adapters", {"llama.cpp/decode_8_rows": "llama.cpp"}),
    "decode_8_rows_8_adapters": ("8 rows, 8 adapters", {"llama.cpp/decode_1_row": "llama.cpp, no adapters"}),
    "prefill_512": ("prompt of 512 tokens", {"llama.cpp/prefill_512": "llama.cpp"})}


def row_of(case, ours, peer, name, faster):
    return f"| {case} | {ours} | {peer}, {name} | {bold_below_one(faster)} |"


def table(unit, rows):
    return [f"| {unit} | heddle | best peer | ratio |", "|---|---|---|---|", *rows]


def measured(results):
    return measured_at(results["records"]).capitalize() + "."


def short(ms):
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.2f}"


def engine_part(results):
    """Steps of 32 rows and prompts of an 8B model: without and with adapters, next to the best way of the other program. What one of the
    two did not run is left out."""
    cells = {}
    for record in results["records"]:
        is_step = record["op"] == "decode_step"
        if record["model"] != ENGINE_MODEL or is_step and record["rows"] != ENGINE_ROWS:
            continue
        count = record["rows"] if is_step else record["prompts"]
        title = f"a step of {count} rows" if is_step else f"{count} prompt{'s' * (count > 1)} of {record['tokens'] // count:,} tokens"
        name = PROGRAMS.get(record["program"], "heddle") + (f" {record['way']}" if record.get("way") == "tuned" else "")
        cells.setdefault(title, {}).setdefault(record["adapters"], {}).setdefault(name, []).append(record["ms"])
    lines = []
    for title, steps in cells.items():
        plain = min(steps.get(0, {}).get("heddle", []), default=None)
        for adapters, ways in sorted(steps.items()):
            others = [(min(ms), name) for name, ms in ways.items() if name != "heddle"]
            if "heddle" not in ways or not others:
                continue
            ours, (theirs, peer) = min(ways["heddle"]), min(others)
            adds = f" (+{100 * (ours / plain - 1):.0f} %)" if adapters and plain else ""
            with_adapters = f"{adapters} adapter{'s' * (adapters > 1)}" if adapters else "no adapters"
            lines.append(row_of(f"{title}, {with_adapters}", f"{short(ours)}{adds}", short(theirs), peer, theirs / ours))
    return [*table("ms", lines), "", measured({"records": [results]})]


def slower_line(race, lora_peers, attention, attention_peers, other_card):
    """What is slower than the best peer, of the races of single operations on an H200."""
    lora, decode = race_rows(race, lora_peers), decode_rows(attention)
    lost = sum(row.us > row.peer_us for row in lora)
    here, there = (sum(row.us > row.peer_us for row in rows) for rows in (decode, decode_rows(other_card)))
    prefill = [record["tflops"] < max(prefill_peers(record, attention_peers).values()) for record, _ in prefill_cells(attention, attention_peers)]
    return (f"Slower than the best peer, of single operations on an H200: [LoRA](docs/benchmarks/lora.md) in {lost} of {len(lora)} cells, "
            f"[attention](docs/benchmarks/attention.md) of decode in {here} of {len(decode)} ({there} on another card), of prompts in "
            f"{sum(prefill)} of {len(prefill)}. LoRA: {measured(race)} Attention: {measured(attention)}")


def cpu_cells(names):
    """CPU_CELLS, and those of the families that a record has."""
    cells = dict(CPU_CELLS)
    for family, model in QWEN2_FAMILIES.items():
        if any(name.startswith(family) for name in names):
            cells |= {family + ours: (f"{model}: {title}", {family + peer: name for peer, name in peers.items()})
                      for ours, (title, peers) in QWEN2_CELLS.items()}
    return cells


def cpu_part(results, shown=None):
    """`shown`: the cells that are shown, all of them by default; the line below counts all."""
    median = {entry["name"]: statistics.median(entry["samples"]) for entry in results["results"]}
    lines, losses = {}, 0
    for ours, (title, peers) in cpu_cells(median).items():
        best = max(peers, key=median.__getitem__)
        ratio = median[ours] / median[best]
        losses += ratio < 1
        lines[ours] = row_of(title, f"{median[ours]:.0f}", f"{median[best]:.0f}", peers[best], ratio)
    count = f"Slower in {losses} of {len(lines)} cells. {measured({'records': [results]})}"
    return [*table("tokens/s", [lines[name] for name in shown or lines]), "", count]


def outputs(root):
    """What the three pages should hold."""
    slower = slower_line(load_race(root / RACE), load(root / LORA_PEERS), load(root / ATTENTION), load(root / ATTENTION_PEERS),
                         load(root / OTHER_CARD))
    parts = {ENGINE: [*engine_part(load(root / ENGINE)), "", slower], CPU: cpu_part(load(root / CPU), CPU_CELLS)}
    page = filled(root / PAGE, {BEGIN[name]: "\n".join(lines) + "\n" for name, lines in parts.items()})
    if page is None:
        sys.exit(f"{PAGE} lacks one of the lines {' '.join(BEGIN[name].strip() for name in parts)}")
    cpu_page = filled(root / CPU_PAGE, {BEGIN[CPU]: "\n".join(cpu_part(load(root / CPU))) + "\n"})
    if cpu_page is None:
        sys.exit(f"{CPU_PAGE} lacks the line {BEGIN[CPU].strip()}")
    server_parts = {SERVERS: server_part(load(root / SERVERS)), CHATS: chats_part(load(root / CHATS))}
    server_page = filled(root / SERVER_PAGE, {BEGIN[name]: "\n".join(lines) + "\n" for name, lines in server_parts.items()})
    if server_page is None:
        sys.exit(f"{SERVER_PAGE} lacks one of the lines {' '.join(BEGIN[name].strip() for name in server_parts)}")
    return [(root / PAGE, page), (root / CPU_PAGE, cpu_page), (root / SERVER_PAGE, server_page)]


def self_test():
    self_test_server_parts()
    results = {name: load(ROOT / name) for name in (ATTENTION, OTHER_CARD, CPU, LORA_PEERS, ATTENTION_PEERS)}
    plain = [entry for entry in results[CPU]["results"] if "qwen2" not in entry["name"]]
    results[CPU]["results"] = plain + [{**entry, "name": family + entry["name"]} for family in QWEN2_FAMILIES for entry in plain]
    for entry in results[CPU]["results"]:
        ours = entry["name"].removeprefix("qwen2_q4_0/").removeprefix("qwen2_bf16/") in CPU_CELLS
        entry["samples"] = [1.0 if entry["name"] == "decode_1_row" else 200.0 if ours else 100.0]
    results[RACE] = made_up_race(results[LORA_PEERS])
    results[SERVERS], results[CHATS] = made_up_servers(), made_up_chats()
    results[ENGINE] = {"commit": "0123456", "date": "2026-01-31", "records": [
        {"model": ENGINE_MODEL, "rows": ENGINE_ROWS, "op": "decode_step", "adapters": adapters, "program": program, "way": way, "ms": ms}
        for adapters, program, way, ms in ((0, "heddle", None, 10), (0, "vllm", "as installed", 5), (8, "heddle", None, 11),
                                           (8, "vllm", "as installed", 300), (8, "vllm", "tuned", 220))]
        + [{"model": ENGINE_MODEL, "prompts": 1, "tokens": 8192, "op": "prompt", "adapters": 0, "program": program, "ms": 200.4}
           for program in ("heddle", "vllm")]}
    page = "# Title\n\n" + "".join(f"{BEGIN[name]}by hand\n{END}\n" for name in (ENGINE, CPU)) + "The end.\n"
    with made_up_root({**{name: json.dumps(data) for name, data in results.items()}, PAGE: page,
                       CPU_PAGE: f"{BEGIN[CPU]}{END}\n", SERVER_PAGE: f"{BEGIN[SERVERS]}{END}{BEGIN[CHATS]}{END}\n"}) as root:
        update(outputs(root), root)
        text, cpu_text = (root / PAGE).read_text(), (root / CPU_PAGE).read_text()
        assert "| 8 | 8 | 400 |" in (root / SERVER_PAGE).read_text() and "| 2 | 26 | 40 | 60 | 40 |" in (root / SERVER_PAGE).read_text()
        assert text.startswith("# Title\n\n") and text.endswith("\nThe end.\n") and "by hand" not in text
        assert "| 1 row | 1 |" in text and "100, llama.cpp | **0.01** |" in text and "Slower in 1 of 12 cells." in text
        row, count = "| the same in bf16: 1 row | 200 | 100, llama.cpp | 2.00 |", "Slower in 1 of 12 cells."
        assert row in cpu_text and count in cpu_text and row not in text
        assert "| a step of 32 rows, no adapters | 10.00 | 5.00, vLLM | **0.50** |" in text
        assert "| a step of 32 rows, 8 adapters | 11.00 (+10 %) | 220, vLLM tuned | 20.00 |" in text
        assert "| 1 prompt of 8,192 tokens, no adapters | 200 | 200, vLLM | 1.00 |" in text
        assert "(docs/benchmarks/lora.md) in 1 of 34 cells" in " ".join(text.split())
        assert text.count("| heddle | best peer | ratio |") == 2 and not stale(outputs(root))
        (root / PAGE).write_text(text.replace("**0.01**", "1.01"))
        assert stale(outputs(root)) == [root / PAGE], "a table changed by hand is noticed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
        print("readme_figures.py: self-test passed")
        return 0
    if arguments.check:
        old = stale(outputs(ROOT))
        for page in old:
            print(f"{page.relative_to(ROOT)} is not what the results give: run tools/readme_figures.py")
        if not old:
            print("the pages are what the results give")
        return 1 if old else 0
    update(outputs(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
