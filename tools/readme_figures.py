#!/usr/bin/env python3
"""The three tables of figures in README.md, that of the CPU with all its cells, those of the servers and of conversations: from recorded
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
BEGIN = {name: f"<!-- table of {name} -->\n" for name in (RACE, ATTENTION, CPU, SERVERS, CHATS)}

# Label of a row of lora_race -> what the page calls it.
LORA_CELLS = {"qkv r16 1/1": "qkv, r16, 1 row", "qkv r16 32/8": "qkv, r16, 32 rows, 8 adapters",
              "down r64 32/8": "down, r64, 32 rows, 8 adapters", "gate_up r16 2048/8": "gate_up, r16, 2048 rows, 8 adapters"}
# Query and kv heads, and label, of a row of attention_tables.
DECODE_CELLS = (("32/8", "1 x 2048"), ("32/8", "32 x 2048"), ("32/32", "256 x 512"))
PREFILL_CELLS = ((1, 4096), (16, 512))  # sequences, tokens
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


def lora_part(race, peers):
    rows = {row.label: row for row in race_rows(race, peers)}
    lines = [row_of(title, number(row.us), number(row.peer_us), row.peer_in_short, row.peer_us / row.us)
             for label, title in LORA_CELLS.items() for row in [rows[label]]]
    lost = [row.us / row.peer_us for row in rows.values() if row.us > row.peer_us]
    most = f", by up to {100 * (max(lost) - 1):.0f} %" if lost else ""
    return [*table("us", lines), "", f"Slower in {len(lost)} of {len(rows)} cells{most}. {measured(race)}"]


def attention_part(results, peers, other_card):
    decode, prefill = decode_rows(results), []
    for record, _ in prefill_cells(results, peers):
        rates = prefill_peers(record, peers)
        name = max(rates, key=rates.get)
        peer_us = record["us"] * record["tflops"] / rates[name]
        prefill.append(((record["batch"], record["q_len"]), record["us"], peer_us, name))
    by_cell = {(row.heads, row.label): row for row in decode}
    lines = [row_of(f"decode, {label} keys, {heads} heads", number(row.us), number(row.peer_us), row.peer, row.peer_us / row.us)
             for heads, label in DECODE_CELLS for row in [by_cell[heads, label]]]
    lines += [row_of(f"prefill, {batch} x {tokens} tokens", number(us), number(peer_us), name.split(",")[0], peer_us / us)
              for cell in PREFILL_CELLS for (batch, tokens), us, peer_us, name in prefill if (batch, tokens) == cell]
    here, there = (sum(row.us > row.peer_us for row in rows) for rows in (decode, decode_rows(other_card)))
    in_prefill = sum(us > peer_us for _, us, peer_us, _ in prefill)
    return [*table("us", lines), "",
            f"Slower in {here} of {len(decode)} decode cells ({there} on another H200), {in_prefill} of {len(prefill)} prefill cells. "
            f"{measured(results)}"]


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
    parts = {RACE: lora_part(load_race(root / RACE), load(root / LORA_PEERS)),
             ATTENTION: attention_part(load(root / ATTENTION), load(root / ATTENTION_PEERS), load(root / OTHER_CARD)),
             CPU: cpu_part(load(root / CPU), CPU_CELLS)}
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
    page = "# Title\n\n" + "".join(f"{BEGIN[name]}by hand\n{END}\n" for name in (RACE, ATTENTION, CPU)) + "The end.\n"
    with made_up_root({**{name: json.dumps(data) for name, data in results.items()}, PAGE: page,
                       CPU_PAGE: f"{BEGIN[CPU]}{END}\n", SERVER_PAGE: f"{BEGIN[SERVERS]}{END}{BEGIN[CHATS]}{END}\n"}) as root:
        update(outputs(root), root)
        text, cpu_text = (root / PAGE).read_text(), (root / CPU_PAGE).read_text()
        assert "| 8 | 8 | 400 |" in (root / SERVER_PAGE).read_text() and "| 2 | 26 | 40 | 60 | 40 |" in (root / SERVER_PAGE).read_text()
        assert text.startswith("# Title\n\n") and text.endswith("\nThe end.\n") and "by hand" not in text
        assert "| 1 row | 1 |" in text and "100, llama.cpp | **0.01** |" in text and "Slower in 1 of 12 cells." in text
        row, count = "| the same in bf16: 1 row | 200 | 100, llama.cpp | 2.00 |", "Slower in 1 of 12 cells."
        assert row in cpu_text and count in cpu_text and row not in text
        assert "| qkv, r16, 1 row | 11.00 | 5.50, SGLang-0.5.23 swept | **0.50** |" in text and "in 1 of 34 cells, by up to 100 %." in text
        assert text.count("| heddle | best peer | ratio |") == 3 and not stale(outputs(root))
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
