"""The tables of LoRA's figures on the GPU, as Markdown, for tools/plot_lora.py."""

import statistics

from figure_files import MIN_SAMPLES, bold_above, measured_at, number
from lora_race import race_rows

PLOT = "docs/benchmarks/lora_h200.svg"
CELL = ("op", "site", "rank", "tokens", "adapters")
SITES_PROGRAM, STEP_PROGRAM, SHAPES_PROGRAM = "bench_lora_cuda", "bench_lora_step_cublas_cuda", "bench_lora_shapes_cuda"
HOST_PROGRAM = "bench_lora_host_cuda"
PROGRAMS = (SITES_PROGRAM, STEP_PROGRAM, SHAPES_PROGRAM, HOST_PROGRAM)
STEP_LIMIT, STEP_TARGETS = 22, (15, 10)  # percent that LoRA may add to a decode step
MIXED_LIMIT = 1.10  # times as long as with a uniform rank
LOADED_LIMIT = 3  # percent more with 512 adapters in the table than with 8
HOST_LIMIT = 2.5  # us of host time per call
WORST_SHAPES = 10  # in the table
# Where LoRA runs in a modelled decode step: the records' names, and the page's.
FORMS = {"apply after": "after the product", "shrink beside": "shrink overlapped",
         "shrink beside, slices apart": "shrink overlapped, a stream for each slice",
         "shrink beside if one slice": "shrink overlapped where a layer has one slice",
         "fetch beside": "after the product, weights prefetched to L2",
         "fetch beside and keep": "after the product, weights prefetched to L2, kept"}
PHASES = {"decode": "Decode: an adapter id for each token", "prefill": "Prefill: 8 adapters, 8 equal segments"}


def cell_of(record):
    return tuple(record[key] for key in CELL)


class Row:
    """One cell with what heddle and the memory take, in microseconds."""

    def __init__(self, cell, forms):
        main = forms["default"]
        self.phase, self.site, self.rank = cell["phase"], cell["site"], cell["rank"]
        self.tokens, self.adapters = cell["tokens"], cell["adapters"]
        self.us, self.floor = main["us"], main["floor_us"]
        self.two = forms["two launches"]["us"] if "two launches" in forms else None
        self.limit, self.target = cell["bar_us"], cell["target_us"]

    @property
    def label(self):
        return f"{self.site} r{self.rank} {self.tokens}/{self.adapters}"


def of_program(results, program):
    return [record for record in results["records"] if record.get("program", SITES_PROGRAM) == program]


def rows_of(results, peers):
    """Rows in the order of the peers' file."""
    forms = {}
    for record in of_program(results, SITES_PROGRAM):
        forms.setdefault(cell_of(record), {})[record["form"]] = record
    return [Row(cell, forms[cell_of(cell)]) for cell in peers["records"]]


def table_of(rows):
    """Markdown. Bold is what is above the limit. The peers stand in the table of the race."""
    lines = ["| site | rank | tokens / adapters | floor | heddle | two launches | limit | target |", "|" + "---|" * 8]
    return lines + [f"| {row.site} | {row.rank} | {row.tokens} / {row.adapters} | {number(row.floor)} | "
                    f"{bold_above(row.us, row.limit)} | {number(row.two)} | {number(row.limit)} | {number(row.target)} |" for row in rows]


def summary_of(rows):
    within, met = sum(row.us <= row.limit for row in rows), sum(row.us <= row.target for row in rows)
    return f"Of {len(rows)} cells {within} are within the limit and {met} meet the target."


def plan_line(results):
    plans = [r for r in of_program(results, SITES_PROGRAM) if r["op"] == "lora_plan"]
    parts = [f"{number(r['us'])} ({r['tokens']} / {r['adapters']}, rank {r['rank']})" for r in plans]
    return "`lora_plan`, once a step and not in the times above, us (tokens / adapters): " + ", ".join(parts) + "."


def no_adapter_lines(results, rows):
    limit = next((row.limit for row in rows if row.adapters == 0), None)
    none = [r for r in of_program(results, SITES_PROGRAM) if r["op"] == "lora_apply" and r["adapters"] == 0 and r["form"] == "default"]
    parts = [f"{bold_above(r['us'], limit)} at {r['site']}" for r in none]
    return [f"{none[0]['tokens']} rows without an adapter, us: {', '.join(parts)}; limit: {number(limit)}."] if none else []


def mixed_part(results):
    """Each cell of mixed ranks with the one of their mean."""
    forms = {form: {cell_of(r): r["us"] for r in of_program(results, SITES_PROGRAM) if r["form"] == form}
             for form in ("uniform ranks", "mixed ranks")}
    lines = [f"| {site} | {tokens} / {adapters} | {rank} | {number(forms['uniform ranks'][cell])} | {number(us)} | "
             f"{bold_above(us / forms['uniform ranks'][cell], MIXED_LIMIT, '{:.2f}'.format)} |"
             for cell, us in forms["mixed ranks"].items() for _, site, rank, tokens, adapters in [cell]]
    if not lines:
        return []
    return ["Ranks 8, 16, 32, 64 and 128 mixed, and as many adapters of their mean, us; limit: "
            f"{MIXED_LIMIT:.2f} times as long.", "", "| site | tokens / adapters | mean rank | uniform | mixed | times |",
            "|" + "---|" * 6, *lines]


def loaded_part(results):
    by_loaded = sorted((r for r in of_program(results, SITES_PROGRAM) if "loaded" in r), key=lambda r: r["loaded"])
    if len(by_loaded) < 2:
        return []
    few, many = by_loaded[0], by_loaded[-1]
    return [f"{few['adapters']} adapters in use at {few['site']}, rank {few['rank']}, {few['tokens']} rows: {number(few['us'])} us with "
            f"{few['loaded']} in the table, {number(many['us'])} us with {many['loaded']} "
            f"({bold_above(100 * (many['us'] / few['us'] - 1), LOADED_LIMIT, '{:+.1f} %'.format)}; limit: {LOADED_LIMIT} %)."]


def step_part(results, peers, race):
    """The modelled decode step: what LoRA adds in each form."""
    records = of_program(results, STEP_PROGRAM)
    steps = [r for r in records if r["op"] == "decode_step"]
    if not steps:
        return []
    base, layers = next(r["us"] for r in steps if r["adapters"] == 0), steps[0]["layers"]
    with_lora = [r for r in steps if r["adapters"] > 0]
    tokens, adapters, rank = (with_lora[0][key] for key in ("tokens", "adapters", "rank"))
    peer = {row.site: row.peer_us for row in race_rows(race, peers) if (row.rank, row.tokens, row.adapters) == (rank, tokens, adapters)}
    by_peers = 100 * layers * (peer["qkv"] + peer["gate_up"] + 2 * peer["down"]) / base
    products = ", ".join(f"{r['site']} {number(r['us'])}" for r in records if r["op"] == "product")
    lines = [f"A modelled decode step: {layers} layers of qkv, o (4096 -> 4096), gate_up and down, {tokens} rows, {adapters} adapters of "
             f"rank {rank}, weights of their own at every site, one graph, the plan in it. The base products alone, by cuBLASLt, take "
             f"{base:.0f} us ({products} us each). Limit for what LoRA adds: {STEP_LIMIT} %; targets: "
             f"{' % and '.join(map(str, STEP_TARGETS))} %. The best peers' times of these sites would add {by_peers:.0f} % (o as down).", "",
             "| LoRA | step, us | added, us | added |", "|" + "---|" * 4]
    for r in with_lora:
        added = r["us"] - base
        lines.append(f"| {FORMS.get(r['form'], r['form'])} | {r['us']:.0f} | {added:.0f} | {bold_above(100 * added / base, STEP_LIMIT, '{:.1f} %'.format)} |")
    return lines


def shapes_part(results):
    """How many of the random shapes are above their limit, and the worst."""
    shapes = of_program(results, SHAPES_PROGRAM)
    if not shapes:
        return []
    times = sorted(((r["us"] / r["bar_us"], r) for r in shapes), key=lambda pair: -pair[0])
    above = sum(t > 1 for t, _ in times)
    lines = [f"{len(shapes)} random shapes (features 1 to 32768, ranks 1 to 512, rows 1 to 4096, adapters 1 to 256; a third with odd "
             f"strides and starts): {above} are above their limit, which is 2.5 times the larger of their bytes at 4.6 TB/s and their "
             f"operations at 700 TFLOP/s, and 6 us. Median: {statistics.median(t for t, _ in times):.2f} of that. The furthest:", "",
             "| in -> out | rank | tokens / adapters | rows | alignment | us | limit | times |", "|" + "---|" * 8]
    for t, r in times[:WORST_SHAPES]:
        outs = " + ".join(map(str, r["out_features"]))
        lines.append(f"| {r['in_features']} -> {outs} | {r['rank']} | {r['tokens']} / {r['adapters']} | {r['rows']} | {r['alignment']} | "
                     f"{number(r['us'])} | {number(r['bar_us'])} | {bold_above(t, 1, '{:.2f}'.format)} |")
    return lines


def host_part(results):
    """Host time per call."""
    records = of_program(results, HOST_PROGRAM)
    if not records:
        return []
    parts = []
    for r in records:
        form = r["form"].removeprefix("host").removeprefix(", ")
        us = number(r["us"]) if r["op"] == "launch" else bold_above(r["us"], HOST_LIMIT)
        parts.append(f"{form or '`' + r['op'] + '`'} {us}" if r["op"] == "launch" or not form else f"`{r['op']}`, {form}, {us}")
    first = records[0]
    return [f"Host time per call, us, at {first['site']}, rank {first['rank']}, {first['tokens']} / "
            f"{first['adapters']}: {'; '.join(parts)}. Limit: {HOST_LIMIT}."]


def page_part(results, peers, race):
    """What stands between the markers. The race's own part has the peers and the plot."""
    if results is None:
        return "No figures yet.\n"
    rows = rows_of(results, peers)
    lines = [f"{results['device']['name']}, bf16, us, medians of at least {MIN_SAMPLES} replays; {measured_at(results['records'])}. "
             "Bold: above the limit."]
    for phase, title in PHASES.items():
        of_phase = [row for row in rows if row.phase == phase]
        lines += ["", f"{title}. {summary_of(of_phase)}", "", *table_of(of_phase)]
    parts = [lines, [*no_adapter_lines(results, rows), plan_line(results)], mixed_part(results), loaded_part(results),
             step_part(results, peers, race), shapes_part(results), host_part(results)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"
