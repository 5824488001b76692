#!/usr/bin/env python3
"""heddle's LoRA ops and its peers' on one CUDA card, in one go and interleaved.

  race.py [options] warm sweep race   all steps, in this order

  warm   compiles the peers' kernels in many processes, into Triton's cache
  sweep  times the settings of the peers; the best go to the file of settings
  race   checks every result, times heddle and the peers in turns, and writes the record

A sweep goes on where an earlier one stopped. The peers' files are those of fetch.py; LoRAX's are a
checkout that LORAX_SOURCE names. heddle comes from PYTHONPATH, libheddle_race.so from --library.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from datetime import date
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "stubs")]

import serving_stubs  # noqa: E402
import torch  # noqa: E402
import triton  # noqa: E402
from cells import FEWEST_CALLS, Arrays, Cell, all_cells  # noqa: E402
from sweep import Modules, Winners, make, sweep, warm  # noqa: E402
from timing import Recorded, eager, interleaved, read  # noqa: E402

UNTIL = {"warm": 0.35, "sweep": 0.7, "race": 1.0}  # of the seconds: then a step ends at a cell
PLANS = 16  # in a graph
LARGEST_ERROR_OF_GRAPH = 0.02  # several calls add to one y, which is rounded each time


class Peers:
    """The peers whose files are given."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.facts: dict[str, Any] = serving_stubs.install(folder)
        self.modules: Modules = {}
        if "sglang" in self.facts:
            import sglang_calls

            self.modules["sglang"] = sglang_calls
        if "vllm" in self.facts:
            import vllm_calls

            self.modules["vllm"] = vllm_calls
        if source := os.environ.get("LORAX_SOURCE"):
            import lorax_calls

            self.facts["lorax"] = lorax_calls.install(pathlib.Path(source))

    def names(self) -> list[str]:
        """As records call them."""
        return [module.PEER for module in self.modules.values()]

    def versions(self) -> dict[str, str]:
        """Of the peers, and of what compiles them."""
        of_peers = {name: facts["version"] for name, facts in self.facts.items()}
        device = torch.cuda.get_device_name()
        compilers = {"torch": torch.__version__, "triton": triton.__version__}
        return {**of_peers, **compilers, "device": device}


def entry_points(
    cell: Cell, arrays: Arrays, peers: Peers, winners: Winners, library: Any
) -> tuple[dict[str, dict[str, Any]], list[Any]]:
    """What takes part in a cell: {name: its facts and `call`}, and what must live as long."""
    from heddle_calls import HeddleCpp, HeddlePython

    found: dict[str, dict[str, Any]] = {}
    alive: list[Any] = []
    if library is not None:
        cpp = HeddleCpp(library, cell, arrays)
        alive.append(cpp)
        found["heddle, C++"] = {"peer": "heddle", "form": "C++", "call": cpp.call, "cpp": cpp}
    python = HeddlePython(cell, arrays)
    alive.append(python)
    found["heddle, Python"] = {"peer": "heddle", "form": "Python", "call": python.call}
    for package, module in peers.modules.items():
        peer = make(module, cell, arrays)
        alive.append(peer)
        settings = [("shipped", module.as_json(peer.shipped()))]
        if entry := winners.of(cell, package):
            ranked = enumerate(entry["best"], start=1)
            settings += [(f"swept {place}", best["setting"]) for place, best in ranked]
        for form, setting in settings:
            found[f"{module.PEER}, {form}"] = {
                "peer": module.PEER,
                "form": form,
                "version": peers.facts[package]["version"],
                "setting": setting,
                "call": peer.call_with(module.from_json(setting)),
            }
    if "lorax" in peers.facts:
        import lorax_calls

        lorax = lorax_calls.LoRAX(cell, arrays)
        alive.append(lorax)
        facts = {"form": "shipped", "version": peers.facts["lorax"]["version"]}
        found["LoRAX"] = {"peer": "LoRAX", **facts, "call": lorax.call_with(None)}
    return found, alive


def check_graph(launch: Callable[[], None], arrays: Arrays, calls: int, delta: Any) -> float:
    """One replay from a known y of set 0, which all its calls in the graph add to."""
    uses = len(range(0, calls, arrays.num_sets))
    before = arrays.y[0].clone()
    launch()
    torch.cuda.synchronize()
    want = before.float() + uses * delta
    error = ((arrays.y[0].float() - want).norm() / want.norm()).item()
    arrays.y[0].copy_(before)
    if not error <= LARGEST_ERROR_OF_GRAPH:
        raise ArithmeticError(f"a graph's relative error is {error:.3g}")
    return error


def raced(
    cell: Cell, peers: Peers, winners: Winners, library: Any, l2_bytes: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of one cell, and what failed there."""
    arrays = Arrays(cell, cell.num_sets(l2_bytes), "cuda")
    calls, last = max(FEWEST_CALLS, arrays.num_sets), arrays.num_sets - 1
    entries, alive = entry_points(cell, arrays, peers, winners, library)
    wanted = {0: arrays.expected(0), last: arrays.expected(last)}
    delta = wanted[0] - arrays.y[0].float()
    failures = []
    for name, entry in list(entries.items()):
        try:
            errors = [arrays.error_of(entry["call"], i, want) for i, want in wanted.items()]
            entry["error"] = max(errors)
        except Exception as error:
            failures.append(f"{name} at {cell.name}: {type(error).__name__}: {error}")
            del entries[name]
    launches: dict[str, Callable[[], None]] = {}
    for name, entry in list(entries.items()):
        try:
            if "cpp" in entry:
                launch = entry["cpp"].recorded(calls)
            else:
                launch = Recorded(entry["call"], calls, arrays.num_sets).launch
            check_graph(launch, arrays, calls, delta)
            launches[name] = launch
        except Exception as error:
            failures.append(f"{name} at {cell.name}, in a graph: {type(error).__name__}: {error}")
            del entries[name]
    sums = torch.zeros(1, dtype=torch.int32, device=arrays.memory.device)
    read(arrays.memory[0], sums)  # compiles it
    floor = Recorded(lambda i: read(arrays.memory[i], sums), calls, arrays.num_sets)
    samples = interleaved({"read": floor.launch, **launches}, calls)
    common = {
        **cell.key,
        "calls_in_graph": calls,
        "sets": arrays.num_sets,
        "bytes_of_set": arrays.bytes_of_set,
    }
    records = [record({"op": "read", "peer": "memory", "form": "read", **common}, samples["read"])]
    for name, entry in entries.items():
        facts = {key: entry[key] for key in ("peer", "form", "version", "setting") if key in entry}
        said = {"op": "lora_apply", **facts, **common, "error": round(entry["error"], 6)}
        records.append(record(said, samples[name]))
    if cell.site == "qkv":
        records += plan_records(cell, peers, alive)
    told = ", ".join(f"{r['peer']} {r['form']} {r['us']}" for r in records)
    print(f"{cell.name}, {arrays.num_sets} sets: {told}", flush=True)
    for failure in failures:
        print(f"FAILED {failure}"[:300], flush=True)
    for one in alive:
        if hasattr(one, "close"):
            torch.cuda.synchronize()
            one.close()
    return records, failures


def plan_records(cell: Cell, peers: Peers, alive: list[Any]) -> list[dict[str, Any]]:
    """What each side does once a step, for all its sites: in a graph where it can be captured, and
    from an idle GPU until it is done."""
    graphs: dict[str, Callable[[], None]] = {}
    eagers: dict[str, Callable[[], None]] = {}
    for one in alive:
        name = type(one).__name__
        if name == "HeddleCpp":
            graphs["heddle, C++"] = one.recorded(PLANS, is_plan=True)
        elif name == "HeddlePython":
            graphs["heddle, Python"] = Recorded(lambda i, one=one: one.prepare(), PLANS, 1).launch
            eagers["heddle, Python"] = one.prepare
        elif name == "SGLang":
            plan = one.shipped()

            def step(one: Any = one, plan: Any = plan) -> None:
                one.prepare()
                one.group_rows(plan)

            step()
            graphs["SGLang triton_v2, shipped"] = Recorded(
                lambda i, one=one, plan=plan: one.group_rows(plan), PLANS, 1
            ).launch
            eagers["SGLang triton_v2, shipped"] = step
        elif name == "VLLM":
            eagers["vLLM, shipped"] = one.prepare
    records = []
    samples = interleaved(graphs, PLANS)
    for when, timed in (("graph", samples), ("eager", {n: eager(c) for n, c in eagers.items()})):
        for name, values in timed.items():
            peer, form = name.split(", ")
            facts = {"op": "lora_plan", "peer": peer, "form": form, "when": when, **cell.key}
            records.append(record(facts, values))
    return records


def record(facts: dict[str, Any], samples: list[float]) -> dict[str, Any]:
    rounded = [round(us, 4) for us in samples]
    return {**facts, "us": round(statistics.median(samples), 4), "samples": rounded}


def write(path: pathlib.Path, head: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """One record a line."""
    text = json.dumps(head, indent=1)[:-2]
    lines = ",\n".join("  " + json.dumps(record) for record in records)
    path.write_text(f'{text},\n "records": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def race(cells: list[Cell], peers: Peers, arguments: argparse.Namespace) -> int:
    """The record of all cells, written anew after each; 1 where heddle or a peer has no time."""
    from heddle_calls import library_at

    library = library_at(arguments.library) if arguments.library else None
    properties = torch.cuda.get_device_properties(0)
    versions = peers.versions()
    winners = Winners(arguments.settings, versions)
    head = {
        "what": "heddle's lora_apply and its peers', interleaved in one process on one card; us",
        "commit": arguments.commit,
        "date": f"{date.today()}",
        "device": {
            "name": properties.name,
            "l2_bytes": properties.L2_cache_size,
            "multiprocessors": properties.multi_processor_count,
        },
        "versions": {"python": platform.python_version(), "cuda": torch.version.cuda, **versions},
        "failed": [],
    }
    records: list[dict[str, Any]] = []
    wanted = {(c.name, peer) for c in cells for peer in ("heddle", *peers.names())}
    for cell in cells:
        if time.monotonic() > arguments.until:
            print(f"no time left for {cell.name} and what follows")
            break
        try:
            found, failures = raced(cell, peers, winners, library, properties.L2_cache_size)
        except Exception as error:
            traceback.print_exc()
            found, failures = [], [f"{cell.name}: {type(error).__name__}: {error}"]
        records += found
        wanted -= {(cell.name, r["peer"]) for r in found if r["op"] == "lora_apply"}
        head["failed"] += [failure[:300] for failure in failures]
        write(arguments.out, head, records)
        torch.cuda.empty_cache()
    if wanted:
        print(f"without a time: {sorted(wanted)}")
    return int(bool(wanted))


def run(step: str, arguments: argparse.Namespace, share: tuple[int, int]) -> None:
    """One step, in a process of its own."""
    cells, peers = cells_of(arguments), Peers(arguments.peers)
    with torch.cuda.stream(torch.cuda.Stream()):
        if step == "warm":
            warm(cells, peers.modules, share, arguments.until)
        elif step == "sweep":
            winners = Winners(arguments.settings, peers.versions())
            l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
            left = sweep(cells, peers.modules, winners, l2_bytes, arguments.until)
            print(f"{left} pairs of a cell and a peer are left to sweep")
        else:
            sys.exit(race(cells, peers, arguments))


def cells_of(arguments: argparse.Namespace) -> list[Cell]:
    """Those that the command line picks."""
    parts = arguments.cells.split(";")
    which, of = map(int, arguments.part.split("/"))
    return [cell for cell in all_cells() if any(part in cell.name for part in parts)][which::of]


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="+", choices=UNTIL)
    parser.add_argument("--peers", type=pathlib.Path, default=HERE / "files", help="of fetch.py")
    parser.add_argument("--library", type=pathlib.Path, help="libheddle_race.so")
    parser.add_argument("--settings", type=pathlib.Path, default=HERE / "settings_h200.json")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("lora_race.json"))
    parser.add_argument("--cells", default="", help="with one of PART;PART in their name")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th cell, from the i-th on")
    parser.add_argument("--seconds", type=float, default=1e9, help="for all steps together")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--commit", default="unknown", help="of heddle")
    return parser.parse_args()


def main() -> int:
    arguments = arguments_of()
    begin = time.monotonic()
    failed = {}
    for step in arguments.steps:
        arguments.until = begin + UNTIL[step] * arguments.seconds
        shares = arguments.workers if step == "warm" else 1
        context = multiprocessing.get_context("spawn")  # the peers' modules may have touched CUDA
        running = [
            context.Process(target=run, args=(step, arguments, (i, shares))) for i in range(shares)
        ]
        for process in running:
            process.start()
        for process in running:
            process.join()
        failed[step] = sum(process.exitcode != 0 for process in running)
        print(f"{step}: {failed[step]} of {shares} processes failed; ", end="")
        print(f"{time.monotonic() - begin:.1f} s so far", flush=True)
    return int(failed.get("sweep", 0) + failed.get("race", 0) > 0)


if __name__ == "__main__":
    sys.exit(main())
