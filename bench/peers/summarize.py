"""Joins the samples of heddle and its peers, and says by how much heddle is faster or slower.

  summarize.py [FAMILY/]=PART.json... --threads N [--before COMMIT] --out FILE

A part is an object with `results` (and perhaps `versions`), or the array of results alone: objects with name,
unit and samples. FAMILY/ is put before their names: before/ for heddle of an earlier commit, qwen2_q4_0/ and
qwen2_bf16/ for the models of random_qwen2.py. Samples of the same name are joined. Writes all samples, the machine's
facts and the ratios of the medians, and prints the ratios as a Markdown table. Standard library only.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess

BEFORE = "before/"
SLOWER_AT_MOST = 0.97  # of the speed before

# Ours, the peer's, and the ratio of their speeds that heddle sets itself; None: it sets none.
SPEED_RATIOS = [
    ("decode_1_row", "llama.cpp/decode_1_row", 1.0),
    ("decode_8_rows_8_adapters", "llama.cpp/decode_8_rows_one_after_another", 1.7),
    ("decode_8_rows_8_adapters", "peft/decode_8_rows_8_adapters", 7.0),
    ("decode_8_rows", "llama.cpp/decode_8_rows", 1.3),
    ("prefill_512", "llama.cpp/prefill_512", 2.0),
    ("prefill_512", "transformers/prefill_512", 0.85)]
# As above for each model of random_qwen2.py. A row that llama.cpp decodes alone, without an adapter, is in its favour.
QWEN2_FAMILIES = ["qwen2_q4_0/", "qwen2_bf16/"]
QWEN2_SPEED_RATIOS = [
    ("decode_1_row", "llama.cpp/decode_1_row", 1.0),
    ("decode_8_rows", "llama.cpp/decode_8_rows", None),
    ("decode_8_rows_8_adapters", "llama.cpp/decode_8_rows_8_adapters_one_after_another", 2.5),
    ("decode_8_rows_8_adapters", "llama.cpp/decode_1_row", 2.5),
    ("prefill_512", "llama.cpp/prefill_512", None)]

# Eight adapters of rank 16 on all projections of SmolLM2-135M: layers * rank * sum of (in + out) * bytes of f16.
INS_AND_OUTS = 2 * (576 + 576) + 2 * (576 + 192) + 3 * (576 + 1536)
LORA_BYTES = 8 * 30 * 16 * INS_AND_OUTS * 2
CPU_FLAGS = ["sse4_2", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"]


def commit_of_tree():
    command = ["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def read_parts(parts, before):
    """({name: {unit, samples}}, versions). Results of an earlier commit say which, where `before` does."""
    results, versions = {}, {}
    for family, path in (part.split("=", 1) for part in parts):
        part = json.loads(pathlib.Path(path).read_text())
        if isinstance(part, list):
            part = dict(results=part)
        versions |= part.get("versions", {})
        for entry in part["results"]:
            name = family + entry["name"]
            said = dict(commit=before) if family == BEFORE and before else {}
            joined = results.setdefault(name, dict(unit=entry["unit"], **said, samples=[]))
            assert joined["unit"] == entry["unit"], f"{name} has units {joined['unit']} and {entry['unit']}"
            joined["samples"] += entry["samples"]
    return results, versions


def machine_facts(threads):
    cpu = dict(line.split(":", 1) for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    cpu = {key.strip(): value.strip() for key, value in cpu.items()}
    memory_kb = int(pathlib.Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0])
    return dict(cpu=cpu.get("model name"), cpu_family=cpu.get("cpu family"), cpu_model=cpu.get("model"),
                cpu_flags=[flag for flag in CPU_FLAGS if flag in cpu.get("flags", "").split()], cores=os.cpu_count(),
                threads_used=threads, memory_gb=round(memory_kb / 1e6, 1),
                system=platform.freedesktop_os_release()["PRETTY_NAME"])


def ratios_of(results):
    """One entry per comparison that has both sides; a ratio of at least `wanted` is a win."""
    median = {name: statistics.median(entry["samples"]) for name, entry in results.items()}
    pairs = list(SPEED_RATIOS)
    pairs += [(family + ours, family + peer, wanted) for family in QWEN2_FAMILIES for ours, peer, wanted in QWEN2_SPEED_RATIOS]
    pairs += [(name.removeprefix(BEFORE), name, SLOWER_AT_MOST) for name, entry in results.items()
              if name.startswith(BEFORE) and entry["unit"] == "tokens/s"]
    ratios = []
    for ours, peer, wanted in pairs:
        if ours in median and peer in median:
            ratios.append(dict(ours=ours, than=peer, ours_median=round(median[ours], 1),
                               peer_median=round(median[peer], 1), ratio=round(median[ours] / median[peer], 3),
                               wanted=wanted))
    plain, mixed = median.get("decode_8_rows"), median.get("decode_8_rows_8_adapters_rank_16")
    if plain and mixed and "read_bandwidth" in median:
        cost = 8 / mixed - 8 / plain
        budget = 1.5 * LORA_BYTES / (median["read_bandwidth"] * 1e9) + 0.05 * 8 / plain
        ratios.append(dict(ours="time of eight adapters of rank 16, ms per step", than="its budget",
                           ours_median=round(cost * 1e3, 3), peer_median=round(budget * 1e3, 3),
                           ratio=round(budget / max(cost, 1e-9), 3), wanted=1.0))
    return ratios


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="+")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--before", default="", help="the commit of the family before/")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()

    results, versions = read_parts(args.parts, args.before)
    ratios = ratios_of(results)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(dict(
        commit=commit_of_tree(), date=f"{datetime.date.today()}", machine=machine_facts(args.threads), versions=versions, ratios=ratios,
        results=[dict(name=name, **entry) for name, entry in results.items()]), indent=1) + "\n")
    print("| heddle | than | heddle, median | peer, median | ratio | wanted |\n|---|---|---|---|---|---|")
    for r in ratios:
        print(f"| {r['ours']} | {r['than']} | {r['ours_median']} | {r['peer_median']} | {r['ratio']} | {r['wanted'] or '-'} |")


if __name__ == "__main__":
    main()
