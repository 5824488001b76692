"""What heddle-bench and the engines of vLLM reported, as one record of bench/results."""
import datetime
import json
import pathlib
import sys

from cells import Cell

MODEL = "llama-3.1-8b"
OF_HEDDLE = ("weights", "activations", "kv_type", "page_size", "prefill_chunk", "rank")
WHAT = """bench/peers/gpu/run.py: heddle: `heddle-bench engine`, which ends before vLLM starts. vLLM: two engines, which measure in turns:
`as installed` with the settings that the package has, `tuned` with those of tuned_configs.py for its LoRA kernels. The same
shape with random weights in bf16, adapters of rank 16 on all seven projections; row i uses adapter i % adapters. decode_step:
ms of a step around 1,024 tokens of context; vLLM's are differences of two lengths of answers, 128 steps each. prompt: ms from
the first request to the last first token. ratios: heddle's tokens per second over those of vLLM's faster engine."""


def joined(report):
    """The record of a report of run.py: its records that have samples, and what did not run."""
    heddle = report["heddle"]
    ours = [dict(program="heddle", model=MODEL, **record) for record in heddle.get("records", [])
            if record["op"] in ("decode_step", "prompt")]
    theirs = [{"program": record["program"], "way": record["way"], "model": MODEL, **record} for record in report["records"]]
    failed = [dict(program="heddle", error=heddle["error"])] if "error" in heddle else []
    failed += [dict(program="vllm", way=way, error=head["error"]) for way, head in report["vllm"].items() if "error" in head]
    failed += [record for record in theirs if "error" in record]
    records = ours + [record for record in theirs if "error" not in record]
    devices = {heddle.get("device", {}).get("name"), *(head.get("device") for head in report["vllm"].values())} - {None}
    if len(devices) > 1:
        raise ValueError(f"measured on several devices: {sorted(devices)}")
    versions = {head["version"] for head in report["vllm"].values() if "version" in head}
    return dict(what=" ".join(WHAT.split()), device=dict(name=devices.pop() if devices else None), commit=report["commit"],
                date=datetime.date.today().isoformat(), versions=dict(vllm=versions.pop() if versions else None, **installed()),
                heddle={name: heddle.get(name) for name in OF_HEDDLE}, vllm=report["vllm"], ratios=ratios(records), did_not_run=failed,
                records=records)


def installed():
    """Versions of what vLLM runs on, without importing it."""
    from importlib import metadata
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "triton", "transformers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def ratios(records):
    best, found = {}, []
    for record in records:
        if record["program"] == "vllm":
            cell = Cell.of_record(record)
            best[cell] = max(best.get(cell, 0), record["tokens_per_s"])
    for record in records:
        cell = Cell.of_record(record)
        if record["program"] == "heddle" and cell in best:
            found.append(dict(cell=str(cell), ratio=round(record["tokens_per_s"] / best[cell], 2)))
    return found


def text(record):
    """As JSON, with one record a line."""
    head = json.dumps({name: value for name, value in record.items() if name != "records"}, indent=1)[:-2]
    lines = ",\n".join("  " + json.dumps(one) for one in record["records"])
    return f'{head},\n "records": [\n{lines}\n ]\n}}\n'


def table(record):
    """The figures in Markdown: a row for each cell of either program."""
    found = {}
    for one in record["records"]:
        found.setdefault(str(Cell.of_record(one)), {})[one.get("way", one["program"])] = f"{one['ms']:.2f}"
    ratio = {one["cell"]: f"{one['ratio']:.2f}" for one in record["ratios"]}
    ways = ("heddle", "as installed", "tuned")
    rows = [[cell, *(ms.get(way, "") for way in ways), ratio.get(cell, "")] for cell, ms in found.items()]
    head = ["cell, ms", "heddle", "vLLM as installed", "vLLM tuned", "ratio"]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines + [f"did not run: {json.dumps(one)}" for one in record["did_not_run"]])


def self_test():
    """A made-up run: its record is one of bench/results, and README.md's table can be drawn from it."""
    step, prompt = Cell(32, 0, 8), Cell(8, 1024, 8)
    heddle = dict(device=dict(name="made", threads=16), weights="bf16", rank=16, records=[
        dict(op="plain_reads", ms=1, samples=[1]), Cell(32, 0, 0).record([8.0]), step.record([10.0, 9.0, 11.0]), prompt.record([100.0])])
    head = dict(device="made", version="0.1", start_s=1)
    report = dict(commit="0123456", vllm={"as installed": head, "tuned": head}, heddle=heddle, records=[
        dict(program="vllm", way="as installed", **Cell(32, 0, 0).record([4.0])),
        dict(program="vllm", way="as installed", **step.record([30.0])), dict(program="vllm", way="tuned", **step.record([20.0])),
        dict(program="vllm", way="tuned", cell=str(prompt), error="bad")])
    record = joined(report)
    assert json.loads(text(record)) == record
    assert record["ratios"] == [dict(cell="32/0", ratio=0.5), dict(cell="32/8", ratio=2.0)], record["ratios"]
    assert [one["error"] for one in record["did_not_run"]] == ["bad"] and len(record["records"]) == 6
    assert "| 32/8 | 10.00 | 30.00 | 20.00 | 2.00 |" in table(record) and "| 8x1024/8 | 100.00 |  |  |  |" in table(record)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))
    import check_records
    import readme_figures
    assert check_records.faults_of(record) == []
    lines = readme_figures.engine_part(record)
    assert "| a step of 32 rows, no adapters | 8.00 | 4.00, vLLM | **0.50** |" in lines, lines
    assert "| a step of 32 rows, 8 adapters | 10.00 (+25 %) | 20.00, vLLM tuned | 2.00 |" in lines, lines
    assert not any("prompt" in line for line in lines), "vLLM did not run it"
    try:
        joined({**report, "vllm": {"tuned": {**head, "device": "another"}}})
    except ValueError as error:
        assert "several devices" in str(error)
    else:
        raise AssertionError("two devices are refused")
    nothing = joined(dict(commit="0123456", vllm={"tuned": dict(error="no GPU")}, heddle=dict(error="it is not there"), records=[]))
    assert len(nothing["did_not_run"]) == 2 and json.loads(text(nothing)) == nothing
    for wrong in ("8", "1x2x3/0", "1/2", "0/0"):
        try:
            Cell.read(wrong)
        except ValueError:
            continue
        raise AssertionError(f"{wrong} is no cell")
