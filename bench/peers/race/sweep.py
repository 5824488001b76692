"""The sweep over the peers' settings, in parts that can be resumed, and compiling for it."""

from __future__ import annotations

import json
import pathlib
import statistics
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from cells import FEWEST_CALLS, Arrays, Cell
from timing import Recorded, interleaved

BEST = 3  # settings that are kept for the race
TRIED = 3  # of each half, which are then tried together
HOPELESS = 4  # times as long as the best so far: not timed further
Modules = dict[str, Any]  # package: sglang_calls or vllm_calls


class Winners:
    """The file of the best settings: of each cell and peer, with the versions that they are of."""

    def __init__(self, path: pathlib.Path, versions: dict[str, str]) -> None:
        self.path, self.versions = path, versions
        self.entries: dict[str, Any] = {}
        if path.exists():
            self.entries = json.loads(path.read_text(encoding="utf-8"))["settings"]

    def of(self, cell: Cell, package: str) -> dict[str, Any] | None:
        """None where there are none, or those are of other versions."""
        entry = self.entries.get(f"{package}, {cell.name}")
        return entry if entry and entry["versions"] == self.versions_of(package) else None

    def versions_of(self, package: str) -> dict[str, str]:
        return {name: self.versions[name] for name in (package, "torch", "triton", "device")}

    def put(self, cell: Cell, package: str, entry: dict[str, Any]) -> None:
        key = f"{package}, {cell.name}"
        self.entries[key] = {"versions": self.versions_of(package), **entry}
        sorted_entries = sorted(self.entries.items())
        lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(entry)}" for n, entry in sorted_entries)
        what = "the best settings of the peers' kernels, of a sweep of bench/peers/race/race.py; us"
        text = f'{{\n "what": {json.dumps(what)},\n "settings": {{\n{lines}\n }}\n}}\n'
        scratch = self.path.with_suffix(".part")
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(self.path)


def make(module: Any, cell: Cell, arrays: Arrays) -> Any:
    """The peer at one cell."""
    return (module.SGLang if hasattr(module, "SGLang") else module.VLLM)(cell, arrays)


def candidates(module: Any, cell: Cell) -> tuple[list[Any], list[Any]]:
    return list(module.settings_of_a(cell)), list(module.settings_of_b(cell))


def time_of(call: Callable[[int], None], arrays: Arrays, want: Any, best: float) -> float:
    """Microseconds of a setting; raises where its result is wrong."""
    arrays.error_of(call, 0, want)
    calls = max(FEWEST_CALLS, arrays.num_sets)
    launch = {"": Recorded(call, calls, arrays.num_sets).launch}
    first = interleaved(launch, calls, rounds=1, warm_up=1)[""][0]
    if first > HOPELESS * best:
        return first
    return statistics.median([first, *interleaved(launch, calls, rounds=2, warm_up=0)[""]])


def swept(module: Any, cell: Cell, arrays: Arrays, want: torch.Tensor) -> dict[str, Any]:
    """The best settings of one peer at one cell."""
    peer, times, failed = make(module, cell, arrays), [], 0

    def tried(settings: list[Any]) -> list[tuple[float, Any]]:
        nonlocal failed
        found: list[tuple[float, Any]] = []
        for setting in settings:
            call = peer.call_with(module.from_json(setting))
            best = min((us for us, _ in found), default=float("inf"))
            try:
                found.append((time_of(call, arrays, want, best), setting))
            except Exception as error:  # Triton has many; a setting that does not run is no winner
                failed += 1
                print(f"  {module.PEER} at {cell.name}: {type(error).__name__}: {str(error)[:120]}")
        times.extend(found)
        return sorted(found, key=lambda pair: pair[0])

    of_a, of_b = map(tried, candidates(module, cell))
    pairs = [(a, b) for _, a in of_a[:TRIED] for _, b in of_b[:TRIED]]
    both = [one for a, b in pairs if (one := module.joined(a, b)) is not None]
    known = [setting for _, setting in times]
    tried([one for one in both if one not in known])
    shipped = module.as_json(peer.shipped())
    best, kept = [], set()
    for us, setting in sorted(times, key=lambda pair: pair[0]):
        name = json.dumps(setting, sort_keys=True)
        if name not in kept and setting != shipped and len(best) < BEST:
            kept.add(name)
            best.append({"us": round(us, 3), "setting": setting})
    return {"tried": len(times), "failed": failed, "best": best}


def sweep(
    cells: list[Cell], modules: Modules, winners: Winners, l2_bytes: int, until: float
) -> int:
    """Fills the file of winners; gives how many pairs of a cell and a peer are left."""
    left = [(c, p) for c in cells for p in modules if winners.of(c, p) is None]
    for cell in dict.fromkeys(c for c, _ in left):
        if time.monotonic() > until:
            break
        arrays = Arrays(cell, cell.num_sets(l2_bytes), "cuda")
        want = arrays.expected(0)
        for package in [p for c, p in left if c is cell]:
            begin = time.monotonic()
            try:
                entry = swept(modules[package], cell, arrays, want)
            except Exception:  # the others may be found still
                traceback.print_exc()
                continue
            winners.put(cell, package, entry)
            us = entry["best"][0]["us"] if entry["best"] else float("nan")
            spent = f"{entry['tried']} in {time.monotonic() - begin:.1f} s"
            print(f"{package}, {cell.name}: {us:.2f} us, {spent}", flush=True)
        del arrays, want
        torch.cuda.empty_cache()
    return sum(winners.of(c, p) is None for c in cells for p in modules)


def warm(cells: list[Cell], modules: Modules, share: tuple[int, int], until: float) -> None:
    """Calls a share of the settings once, so that their kernels are in Triton's cache."""
    which, of = share
    for cell in cells:
        if time.monotonic() > until:
            return
        arrays = Arrays(cell, 1, "cuda")
        for package, module in modules.items():
            peer = make(module, cell, arrays)
            of_both = getattr(module, "settings_to_warm", None)
            settings = list(of_both(cell)) if of_both else sum(candidates(module, cell), [])
            settings.append(module.as_json(peer.shipped()))
            for setting in settings[which::of]:
                try:
                    peer.call_with(module.from_json(setting))(0)
                except Exception:
                    continue  # the sweep will say so
        torch.cuda.synchronize()
