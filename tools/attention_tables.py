"""The tables of attention's figures on the GPU, as Markdown, for tools/plot_attention.py."""

import collections
import statistics

from figure_files import MIN_SAMPLES, bold_above, bold_below_one, measured_at, number

DECODE_PROGRAM, PREFILL_PROGRAM, STORE_PROGRAM = "bench_attention_decode_cuda", "bench_attention_prefill_cuda", "bench_kv_append_cuda"
PROGRAMS = (DECODE_PROGRAM, PREFILL_PROGRAM, STORE_PROGRAM)
DECODE_PLOT, PREFILL_PLOT = "docs/benchmarks/attention_decode_h200.svg", "docs/benchmarks/attention_prefill_h200.svg"
# What is measured, or the same for all records of a program.
NO_CASE = {"floor_us", "us", "samples", "calls_in_graph", "bytes", "tflops", "program", "device", "clocks", "commit", "date", "note", "best_peer",
           "best_peer_us", "times_faster"}
RACE_PEER = "cuDNN, contiguous"  # of bench/peers/race/attention_race.py
ROPE_LIMIT = 1.15  # times the call without
PORTABLE_PEER, PREFILL_TARGET = "FlashInfer fa2", 0.95  # of its TFLOP/s
PORTABLE = (PORTABLE_PEER, "FlashAttention-2, contiguous")  # kernels for every chip from 8.0; the others are for Hopper alone
STORE_LIMIT_US, STORE_TARGET_OF_COPY = 2.0, 0.85
STORE_OPS = ("kv_append", "kv_init", "copy", "rope_kv_append", "rope", "merge_states")


def row_of(first, cells):
    return f"| {first} | {' | '.join(cells)} |"


def head_of(first, cells):
    """The first two lines of a table."""
    return [row_of(first, cells), "|" + "---|" * (1 + len(cells))]


def case_of(record):
    return tuple((key, value) for key, value in record.items() if key not in NO_CASE)


def peer_of(record, peers):
    """The record of the peers' file for this one; None where no peer was measured."""
    return next((peer for peer in peers["records"]
                 if all(record.get(key) == value for key, value in peer.items() if not key.endswith("_us"))), None)


def of_program(results, program):
    """But for caches of f8e4m3, which no peer was measured with."""
    return [record for record in results["records"] if record["program"] == program and "f8e4m3" not in record["op"]]


def limit_of(peer_us, floor_us):
    """What decode must not exceed, by how near the fastest peer comes to the bytes."""
    if peer_us <= 1.1 * floor_us:
        return 1.03 * peer_us
    return peer_us if peer_us <= 1.3 * floor_us else peer_us / 1.15


class DecodeRow:
    """One cell with what heddle, the memory and the fastest peer take, in microseconds."""

    def __init__(self, record):
        self.heads, self.batch, self.kv_len = f"{record['q_heads']}/{record['kv_heads']}", record["batch"], record["kv_len"]
        self.us, self.floor, self.peer, self.peer_us = (record[key] for key in ("us", "floor_us", "best_peer", "best_peer_us"))
        self.limit = limit_of(self.peer_us, self.floor)
        self.label = f"{self.batch} x {self.kv_len}"


def decode_rows(results):
    """The cells in which peers were measured, without RoPE."""
    return [DecodeRow(r) for r in of_program(results, DECODE_PROGRAM) if "best_peer" in r and not r["rope"]]


def by_heads(rows):
    return {heads: [row for row in rows if row.heads == heads] for heads in dict.fromkeys(row.heads for row in rows)}


def origin(records):
    """Where figures come from."""
    notes = "".join(f"; {note}" for note in dict.fromkeys(r["note"] for r in records if "note" in r))
    return f"{records[0]['device']}, medians of at least {MIN_SAMPLES} replays; {measured_at(records)}{notes}"


def decode_table(rows):
    lengths = sorted({row.kv_len for row in rows})
    cells = {(row.heads, row.batch, row.kv_len): row for row in rows}
    lines = head_of("heads", ["batch", *(f"{length} keys" for length in lengths)])
    for heads, batch in dict.fromkeys((row.heads, row.batch) for row in rows):
        of_batch = [cells.get((heads, batch, length)) for length in lengths]
        texts = ["" if row is None else f"{bold_above(row.us, row.limit)} ({number(row.peer_us)}) {bold_below_one(row.peer_us / row.us)}"
                 for row in of_batch]
        lines.append(row_of(heads, [str(batch), *texts]))
    return lines


def decode_summary(rows):
    faster, within = sum(row.us <= row.peer_us for row in rows), sum(row.us <= row.limit for row in rows)
    slowest = min(rows, key=lambda row: row.peer_us / row.us)
    fastest_peers = collections.Counter(row.peer for row in rows).most_common()
    median = statistics.median(row.peer_us / row.us for row in rows)
    return (f"Of {len(rows)} cells heddle is at least as fast as the fastest peer in {faster}, and within the limit in {within}. The limit is 1.03 "
            "times that peer's time where it takes at most 1.1 times the bytes at 4.6 TB/s, 1 / 1.15 of its time where it takes more than 1.3 "
            f"times, and its time in between. Times faster: {median:.2f} in the median, {slowest.peer_us / slowest.us:.2f} at the least "
            f"({slowest.heads}, {slowest.label}). The fastest peer is " + ", ".join(f"{name} in {count}" for name, count in fastest_peers)
            + ".")


def rope_lines(records, peers):
    without_rope = {case_of({**r, "rope": 1}): r["us"] for r in records if not r["rope"]}
    parts = []
    for r in records:
        if r["rope"] and case_of(r) in without_rope:
            times = r["us"] / without_rope[case_of(r)]
            of_peers = "".join(f"; {name} {number(us)}" for name, us in ((peer_of(r, peers) or {}).get("peers_us", {})).items())
            parts.append(f"{r['batch']} x {r['kv_len']} {number(r['us'])} us, {bold_above(times, ROPE_LIMIT, '{:.2f}'.format)} times the "
                         f"call without{of_peers}")
    return [f"RoPE inside: {', '.join(parts)}. Limit: {ROPE_LIMIT} times."] if parts else []


def other_decode_lines(records):
    lines = []
    dims = [r for r in records if r["head_dim"] != 128]
    if dims:
        lines.append(f"{dims[0]['batch']} x {dims[0]['kv_len']}, {dims[0]['q_heads']}/{dims[0]['kv_heads']} heads of another size: "
                     + ", ".join(f"{r['head_dim']}: {r['bytes'] / r['us'] * 1e-6:.2f} TB/s" for r in dims) + ".")
    for r in records:
        if r["others_of_one_token"]:
            alone = next((a["us"] for a in records if case_of(a) == case_of({**r, "others_of_one_token": 0})), None)
            lines.append(f"{r['kv_len']} keys with {r['others_of_one_token']} sequences of one: {number(r['us'])} us"
                         + ("." if alone is None else f", alone {number(alone)}."))
    return lines


def other_card_lines(results, link):
    """What decode comes to on another card of the same kind."""
    rows, records = decode_rows(results), of_program(results, DECODE_PROGRAM)
    if not rows:
        return []
    without_rope = {case_of({**r, "rope": 1}): r["us"] for r in records if not r["rope"]}
    rope = ", ".join(f"{r['us'] / without_rope[case_of(r)]:.2f}" for r in records if r["rope"])
    median = statistics.median(row.peer_us / row.us for row in rows)
    return [f"Cards differ. On [another one]({link}) (commit {records[0]['commit'][:12]}) {sum(row.us <= row.limit for row in rows)} cells "
            f"are within the limit, and in {sum(row.us <= row.peer_us for row in rows)} heddle is at least as fast as the fastest peer, "
            f"{median:.2f} times as fast in the median; with RoPE inside calls take {rope} times those without."]


def decode_part(results, peers, more_lines=()):
    records, rows = of_program(results, DECODE_PROGRAM), decode_rows(results)
    if not rows:
        return "No figures yet.\n"
    lines = [f"{origin(records)}. bf16, head size 128, pages of 16 in random order, keys and values from memory.", "",
             f"![heddle and its fastest peers]({DECODE_PLOT.rpartition('/')[2]})", "", decode_summary(rows), "",
             "In each cell: heddle, us (the fastest peer) times faster. Bold: above the limit, or slower than that peer.", "",
             *decode_table(rows), "", *rope_lines(records, peers), *other_decode_lines(records), *more_lines]
    return "\n".join(lines) + "\n"


# The race with cuDNN: both in one process, in turns.


def race_cells(race):
    """{(heads, batch, kv_len): {"read", "heddle", RACE_PEER: us}}; of the peer's settings the fastest."""
    cells = collections.defaultdict(dict)
    for record in race["records"]:
        cell = cells[f"{record['q_heads']}/{record['kv_heads']}", record["batch"], record["kv_len"]]
        name = "read" if record["op"] == "read" else record["peer"]
        cell[name] = min(record["us"], cell.get(name, record["us"]))
    return {key: cell for key, cell in cells.items() if {"heddle", RACE_PEER} <= cell.keys()}


def with_race(peers, race):
    """The peers' file with what the race found of its peer."""
    cells = race_cells(race)

    def joined(record):
        if record["op"] != "batch_decode" or record.get("rope") or record["head_dim"] != race["records"][0]["head_dim"]:
            return record
        cell = cells.get((f"{record['q_heads']}/{record['kv_heads']}", record["batch"], record["kv_len"]))
        if cell is None:
            return record
        return {**record, "peers_us": {**record["peers_us"], RACE_PEER: cell[RACE_PEER]}}

    return {**peers, "records": [joined(record) for record in peers["records"]]}


def race_part(race):
    if race is None:
        return "No figures yet.\n"
    cells, versions = race_cells(race), race["versions"]
    lengths = sorted({length for _, _, length in cells})
    faster = {key: cell[RACE_PEER] / cell["heddle"] for key, cell in cells.items()}
    lines = [f"{race['device']['name']}, medians; commit {race['commit'][:7]}, {race['date']}; torch {versions['torch'].partition('+')[0]}, cuDNN "
             f"{versions['cudnn']}.", "",
             f"Of {len(cells)} cells heddle is at least as fast in {sum(times >= 1 for times in faster.values())}; "
             f"{statistics.median(faster.values()):.2f} times as fast in the median, {min(faster.values()):.2f} at the least.", "",
             "In each cell: heddle, us (cuDNN; a plain read of the bytes) times faster. Bold: slower.", "",
             *head_of("heads", ["batch", *(f"{length} keys" for length in lengths)])]
    for heads, batch in dict.fromkeys((heads, batch) for heads, batch, _ in cells):
        of_batch = [(cells.get((heads, batch, length)), faster.get((heads, batch, length))) for length in lengths]
        texts = ["" if cell is None else f"{number(cell['heddle'])} ({number(cell[RACE_PEER])}; {number(cell.get('read'))}) "
                 f"{bold_below_one(times)}" for cell, times in of_batch]
        lines.append(row_of(heads, [str(batch), *texts]))
    return "\n".join(lines) + "\n"


# Prefill.


def prefill_peers(record, peers):
    """TFLOP/s by peer."""
    peer = peer_of(record, peers)
    flops = record["tflops"] * record["us"]
    return {name: flops / us for key in ("peers_us", "others_us") for name, us in peer.get(key, {}).items()}


def prefill_cells(results, peers):
    """(record, TFLOP/s by peer) where peers were measured."""
    return [(r, prefill_peers(r, peers)) for r in of_program(results, PREFILL_PROGRAM) if "best_peer" in r]


def shape_of(record):
    return f"{record['batch']} x {record['q_len']}"


def prefill_table(cells):
    names = dict.fromkeys(name for _, rates in cells for name in rates)
    names = sorted(names, key=lambda name: (name not in PORTABLE, -cells[0][1].get(name, 0)))
    record = cells[0][0]
    heads = f"{record['q_heads']}/{record['kv_heads']} heads of {record['head_dim']}"
    lines = head_of(f"TFLOP/s, {heads}", [shape_of(r) for r, _ in cells])
    ours = [f"{r['tflops']:.0f}" if kept else f"**{r['tflops']:.0f}**"
            for r, rates in cells for kept in [r["tflops"] >= PREFILL_TARGET * rates[PORTABLE_PEER]]]
    lines.append(row_of("heddle", ours))
    lines.append(row_of(f"times {PORTABLE_PEER}", [bold_below_one(r["tflops"] / rates[PORTABLE_PEER]) for r, rates in cells]))
    lines.append(row_of("times the best on pages of 16", [bold_below_one(r["times_faster"]) for r, _ in cells]))
    return lines + [row_of(name, [f"{rates[name]:.0f}" if name in rates else "" for _, rates in cells]) for name in names]


def other_prefill_table(records):
    """The shape in which head sizes, groups, dtype and RoPE differ one at a time."""
    others = [r for r in records if "best_peer" not in r]
    if not others:
        return []
    usual = collections.Counter((r["q_heads"], r["kv_heads"], r["head_dim"], r["dtype"]) for r in others).most_common(1)[0][0]
    names = []
    for r in others:
        heads, dim, dtype = f"{r['q_heads']}/{r['kv_heads']}", r["head_dim"], r["dtype"]
        parts = [f"{heads} of {dim}", *([dtype] if dtype != usual[3] else []), *(["RoPE inside"] if "RoPE" in r["op"] else [])]
        names.append(", ".join(parts))
    lines = ["", *head_of(f"{shape_of(others[0])}, heads of", names), row_of("TFLOP/s", [f"{r['tflops']:.0f}" for r in others])]
    without_rope = {case_of(r): r["us"] for r in others}
    for r in others:
        without = without_rope.get(case_of({**r, "op": r["op"].removesuffix(", RoPE inside")}))
        if "RoPE" in r["op"] and without:
            lines += ["", f"RoPE inside takes {r['us'] / without:.2f} times the call without."]
    return lines


def prefill_part(results, peers):
    records, cells = of_program(results, PREFILL_PROGRAM), prefill_cells(results, peers)
    if not cells:
        return "No figures yet.\n"
    lines = [f"{origin(records)}. bf16, causal, pages of 16 in random order; TFLOP/s of the visible half of the scores.", "",
             f"![heddle and its peers]({PREFILL_PLOT.rpartition('/')[2]})", "",
             f"Target: {PREFILL_TARGET} of {PORTABLE_PEER}, which is for every chip from 8.0, as heddle's kernel is and FlashAttention-2; the "
             "others are for Hopper alone. Peers on pages of 16 where nothing else is said. Bold: below the target, or slower.", "",
             *prefill_table(cells), *other_prefill_table(records)]
    return "\n".join(lines) + "\n"


# Storing keys and values.


def store_cell(record, copy):
    """Microseconds of small batches, TB/s of large ones; `copy`: of the same bytes, by the driver."""
    if record["batch"].endswith("x 1"):
        has_limit = record["op"] in ("kv_append", "kv_init")
        text = f"{record['us']:.2f} us"
        return text if not has_limit or record["us"] <= STORE_LIMIT_US else f"**{text}**"
    text = f"{record['bytes'] / record['us'] * 1e-6:.2f} TB/s"
    missed = record["op"] == "kv_init" and copy is not None and copy["us"] < STORE_TARGET_OF_COPY * record["us"]
    return f"**{text}**" if missed else text


def store_part(results):
    records = of_program(results, STORE_PROGRAM)
    by_case = {(r["op"], r["batch"]): r for r in records}
    batches = [batch for batch in dict.fromkeys(r["batch"] for r in records) if batch]
    if not batches:
        return "No figures yet.\n"
    lines = [f"{origin(records)}. bf16, 32 query and 8 kv heads of 128, pages of 16 in random order. TB/s count what is read and written. "
             f"Targets of `kv_init` and `kv_append`: {STORE_LIMIT_US:g} us with a token for each sequence, and from 64 MB on "
             f"{STORE_TARGET_OF_COPY} of the driver's copy of the same bytes. Bold: missed.", "", *head_of("op", batches)]
    for op in STORE_OPS:
        cells = [by_case.get((op, batch)) for batch in batches]
        texts = ["" if r is None else store_cell(r, by_case.get(("copy", r["batch"]))) for r in cells]
        lines.append(row_of("the driver's copy" if op == "copy" else f"`{op}`", texts))
    times = [f"{by_case[('copy', batch)]['us'] / by_case[('kv_init', batch)]['us']:.2f} ({batch})" for batch in batches
             if ("copy", batch) in by_case and ("kv_init", batch) in by_case]
    if times:
        lines += ["", f"`kv_init` reaches {', '.join(times)} of the copy."]
    empty = [f"An empty kernel there takes {r['us']:.2f} us." for r in records if r["op"] == "empty kernel"]
    return "\n".join([*lines, *empty]) + "\n"
