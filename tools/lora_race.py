"""The tables of the race of LoRA's ops on one GPU (bench/peers/race), as Markdown, for tools/plot_lora.py and readme_figures.py."""

import statistics
import sys

from figure_files import MIN_SAMPLES, bold_above, bold_below_one, load, measured_at, number

RACE = "bench/results/lora_race_h200.json"
OTHER_RACE = "bench/results/lora_race_h200_other_card.json"  # a second run on another loan of such a card
READ_BYTES_PER_US = 4.6e6  # of an H200, for the plot
SGLANG, VLLM, LORAX = "SGLang triton_v2", "vLLM", "LoRAX"
EAGER = {"heddle": "eager", SGLANG: "eager", VLLM: "eager"}
RECORDED_LORAX = "LoRAX Triton"  # in bench/peers/lora_h200.json
CELL = ("site", "rank", "tokens", "adapters")
PHASES = {"decode": "Decode: an adapter id for each token", "prefill": "Prefill: 8 adapters, 8 equal segments"}


def cell_of(record):
    return tuple(record[key] for key in CELL)


def load_race(path):
    """The record; stops at what is no proof."""
    race = load(path)
    if race is None:
        sys.exit(f"{path} is not there")
    if "H200" not in race["device"]["name"]:
        sys.exit(f"the race was on a {race['device']['name']}; the tables are of an H200")
    for record in race["records"]:
        if len(record["samples"]) < MIN_SAMPLES:
            sys.exit(f"only {len(record['samples'])} samples: {cell_of(record)}")
    head = {key: race[key] for key in ("commit", "date")}
    return {**race, "records": [{**head, **record} for record in race["records"]]}


class Row:
    """One cell. heddle counts with the slower of its two figures, the peers with the fastest of theirs."""

    def __init__(self, records, plans, recorded_lorax):
        first = records[0]
        self.phase, self.site, self.rank = first["phase"], first["site"], first["rank"]
        self.tokens, self.adapters = first["tokens"], first["adapters"]
        self.read = next((r["us"] for r in records if r["op"] == "read"), None)
        of_op = [r for r in records if r["op"] == "lora_apply"]
        self.ours = {r["form"]: r["us"] for r in of_op if r["peer"] == "heddle"}
        self.peers = [r for r in of_op if r["peer"] != "heddle"]
        if not self.ours or not self.peers:
            sys.exit(f"the race lacks heddle or all peers at {self.label}")
        self.us, best = max(self.ours.values()), min(self.peers, key=lambda r: r["us"])
        self.peer, self.peer_us = f"{best['peer']} {best['version']}, {best['form']}", best["us"]
        self.peer_in_short = f"{best['peer'].split()[0]}-{best['version']} {best['form'].split()[0]}"
        self.floor = first["bytes_of_set"] / READ_BYTES_PER_US
        self.plans, self.recorded_lorax = plans, recorded_lorax

    @property
    def label(self):
        return f"{self.site} r{self.rank} {self.tokens}/{self.adapters}"

    def of_peer(self, peer, is_shipped):
        """The record of a peer as it is shipped, or its fastest of the sweep; None where it has none."""
        found = [r for r in self.peers if r["peer"] == peer and (r["form"] == "shipped") == is_shipped]
        return min(found, key=lambda r: r["us"], default=None)

    def us_of(self, peer, is_shipped):
        record = self.of_peer(peer, is_shipped)
        return number(record["us"] if record else None)

    def lorax(self):
        """Of the race; without LoRAX's files the older figure, in brackets."""
        if record := self.of_peer(LORAX, True):
            return number(record["us"])
        return f"({number(self.recorded_lorax)})" if self.recorded_lorax else ""

    def plan(self, peer, when):
        """Of a step, for all its sites; heddle's through C++ where there is that; None where there is none."""
        return next((r["us"] for form in ("C++", "Python", "shipped") for r in self.plans
                     if (r["peer"], r["when"], r["form"]) == (peer, when, form)), None)

    def plans_told(self, when_of):
        """heddle's bold where a peer's, measured in the same way, takes less."""
        us = {peer: self.plan(peer, when) for peer, when in when_of.items()}
        alike = [us[peer] for peer, when in when_of.items() if when == when_of["heddle"] and us[peer] is not None]
        ours = "" if us["heddle"] is None else bold_above(us["heddle"], min(alike))
        return [ours, number(us[SGLANG]), number(us[VLLM])]


def race_rows(race, peers):
    """Rows in the order of the peers' file, of the cells that the race has."""
    of_cell, plans = {}, {}
    for record in race["records"]:
        if record["op"] == "lora_plan":  # the same at all sites
            plans.setdefault(cell_of(record)[1:], []).append(record)
        else:
            of_cell.setdefault(cell_of(record), []).append(record)
    return [Row(of_cell[cell], plans.get(cell[1:], []), record["peers_us"].get(RECORDED_LORAX))
            for record in peers["records"] for cell in [cell_of(record)] if cell in of_cell]


def table_of(rows):
    """Bold is what heddle loses."""
    lines = ["| site | rank | tokens / adapters | read | heddle, C++ | heddle, Python | SGLang, shipped | SGLang, swept | vLLM, shipped | "
             "vLLM, swept | LoRAX | times faster | plan: heddle | plan: SGLang | plan: vLLM |", "|" + "---|" * 15]
    for row in rows:
        ours = [bold_above(row.ours[form], row.peer_us) if form in row.ours else "" for form in ("C++", "Python")]
        theirs = [row.us_of(peer, is_shipped) for peer in (SGLANG, VLLM) for is_shipped in (True, False)]
        plans = row.plans_told({"heddle": "graph", SGLANG: "graph", VLLM: "eager"})
        lines.append("| " + " | ".join([row.site, str(row.rank), f"{row.tokens} / {row.adapters}", number(row.read), *ours, *theirs,
                                        row.lorax(), bold_below_one(row.peer_us / row.us), *plans]) + " |")
    return lines


def summary_of(rows):
    losses = [row.label for row in rows if row.us > row.peer_us]
    return (f"Of {len(rows)} cells {len(rows) - len(losses)} are as fast as the fastest setting of any peer, or faster."
            + (f" Slower: {', '.join(losses)}." if losses else ""))


def told(setting):
    """A setting in few words."""
    if "shrink" in setting:
        halves = []
        for name, half in setting.items():
            split = f", split {half['split_k']}" if "split_k" in half else ""
            tile = f"{half['block_m']}x{half['block_n']}x{half['block_k']}"
            halves.append(f"{name} {tile}{split}, {half['num_warps']} warps, {half['num_stages']} stages")
        return "; ".join(halves)
    a, b = setting["a_tiles"], setting["b_tiles"]
    split = f", split {a['SPLIT_K']} {a.get('SPLIT_MODE', 'serial')}" if a.get("SPLIT_K", 1) > 1 else ""

    def half(family, tiles):
        return f"{family} {tiles['BLOCK_SIZE_N']}x{tiles['BLOCK_SIZE_K']}, {tiles['num_warps']} warps, {tiles['num_stages']} stages"

    return f"A {half(setting['a_family'], a)}{split}; B {half(setting['b_family'], b)}; blocks of {setting['block_size']}"


def settings_of(rows):
    """The fastest setting of each peer and cell."""
    lines = ["| site | rank | tokens / adapters | peer | fastest | setting |", "|" + "---|" * 6]
    for row in rows:
        for peer in (SGLANG, VLLM):
            found = [r for r in (row.of_peer(peer, True), row.of_peer(peer, False)) if r]
            if found:
                best = min(found, key=lambda r: r["us"])
                setting = told(best["setting"]) if best["setting"] else "without a file of tuned settings"
                lines.append(f"| {row.site} | {row.rank} | {row.tokens} / {row.adapters} | {peer} {best['version']} | {best['form']} | "
                             f"{setting} |")
    return lines


def eager_part(rows):
    """The plan of a step as the host sees it."""
    lines = [f"| {row.rank} | {row.tokens} / {row.adapters} | {' | '.join(row.plans_told(EAGER))} |"
             for row in rows if row.site == "qkv" and row.plans]
    return ["The plan of a step from an idle GPU until it is done, us:", "",
            "| rank | tokens / adapters | heddle | SGLang | vLLM |", "|" + "---|" * 5, *lines] if lines else []


def other_card_lines(race, peers):
    """What the race comes to on another card of the same kind."""
    lines = []
    for phase, title in PHASES.items():
        rows = [row for row in race_rows(race, peers) if row.phase == phase]
        median = statistics.median(row.peer_us / row.us for row in rows)
        lines.append(f"{title.split(':')[0]}: {median:.2f} times as fast as the fastest peer in the median. {summary_of(rows)}")
    return [f"The same on another loan of a card ([record](../../{OTHER_RACE}), commit {race['commit'][:7]}). {' '.join(lines)}"]


def race_part(race, peers, plot, other=None):
    """What stands between the markers of the race."""
    rows, versions = race_rows(race, peers), race["versions"]
    of_peers = ", ".join(f"{name} {versions[package]}" for package, name in (("sglang", "SGLang"), ("vllm", "vLLM"), ("lorax", LORAX))
                         if package in versions)
    lines = [f"{race['device']['name']}, bf16, us, medians of at least {MIN_SAMPLES} replays; {measured_at(race['records'])}; {of_peers}; "
             f"torch {versions['torch']}, Triton {versions['triton']}. Bold: slower than the fastest setting of any peer."
             + ("" if "lorax" in versions else " LoRAX in brackets: an older figure, which counts for nothing."),
             "", f"![heddle and its peers]({plot})"]
    for phase, title in PHASES.items():
        of_phase = [row for row in rows if row.phase == phase]
        lines += ["", f"{title}. {summary_of(of_phase)}", "", *table_of(of_phase)]
    parts = [lines, eager_part(rows), ["The peers' fastest settings:", "", *settings_of(rows)]]
    if other:
        parts.append(other_card_lines(other, peers))
    if race.get("failed"):
        parts.append(["Not timed, since it failed or its result was wrong: " + "; ".join(race["failed"]) + "."])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def made_up_race(peers):
    """For tests: heddle takes 10 us through C++, 11 through Python; SGLang's best 22, vLLM's 33; but SGLang's is 5.5 in the first cell."""
    records = []
    tiles = {"BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "num_warps": 4, "num_stages": 3}
    plan = {"a_family": "grouped", "b_family": "per_row", "block_size": 16, "a_tiles": {**tiles, "SPLIT_K": 4}, "b_tiles": tiles}
    half = {"block_m": 16, "block_n": 32, "block_k": 64, "num_warps": 4, "num_stages": 2}
    for cell in peers["records"]:
        if cell["adapters"] == 0:
            continue
        is_first = not records

        def add(us, cell=cell, **facts):
            facts = {key: cell[key] for key in ("phase", *CELL)} | facts
            records.append({**facts, "us": us, "samples": [us] * MIN_SAMPLES})

        add(2.0, op="read", peer="memory", form="read", bytes_of_set=9200000)
        add(10.0, op="lora_apply", peer="heddle", form="C++")
        add(11.0, op="lora_apply", peer="heddle", form="Python")
        add(44.0, op="lora_apply", peer=SGLANG, form="shipped", version="0.5.23", setting=plan)
        add(5.5 if is_first else 22.0, op="lora_apply", peer=SGLANG, form="swept 1", version="0.5.23", setting=plan)
        add(66.0, op="lora_apply", peer=VLLM, form="shipped", version="0.33.0", setting={})
        add(33.0, op="lora_apply", peer=VLLM, form="swept 1", version="0.33.0", setting={"shrink": {**half, "split_k": 8}, "expand": half})
        if cell["site"] == "qkv":
            add(1.5, op="lora_plan", peer="heddle", form="C++", when="graph")
            add(1.25 if is_first else 2.5, op="lora_plan", peer=SGLANG, form="shipped", when="graph")
            add(77.0, op="lora_plan", peer=VLLM, form="shipped", when="eager")
    versions = {"sglang": "0.5.23", "vllm": "0.33.0", "torch": "2.11.0", "triton": "3.6.0"}
    return {"device": {"name": "NVIDIA H200"}, "commit": "0123456789abcdef", "date": "2026-01-31", "versions": versions,
            "failed": ["vLLM, swept 2 at qkv"], "records": records}
