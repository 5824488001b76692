#!/usr/bin/env python3
"""Decode attention: heddle on pages and cuDNN on contiguous keys and values, on one card, in turns.

Usage: attention_race.py --out FILE.json [--cells PART;PART] [--largest GB] [--commit COMMIT]

The cells are those of bench/peers/attention_h200.json, at most --largest GB of keys and values. A
call takes the next set of keys and values, so that they come from memory; a sample is one replay of
a graph of calls, shared out over them. cuDNN comes through torch's scaled_dot_product_attention, in
every way in which torch takes such a call; the record has each, and says in `setting` which it is:

  heads  a head of q is a head, and several share keys (enable_gqa)
  rows   the heads of q that share keys are tokens of one head: no mask, so the result is the same
  head-major, token-major: keys and values as [batch, heads, keys, size] or [batch, keys, heads,
         size]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import torch  # noqa: E402
from race import record, write  # noqa: E402
from timing import Recorded, interleaved, read  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

RECORDED = HERE.parents[1] / "peers/attention_h200.json"
PAGE_SIZE, HEAD_DIM = 16, 128
COLD_BYTES, MOST_SETS, FEWEST_CALLS = 420 << 20, 64, 4  # as in heddle's own program
LARGEST_ERROR = 0.01  # norm of the difference, as a part of the norm of what is expected
PEER = "cuDNN, contiguous"


@dataclass(frozen=True)
class Cell:
    """A batch of sequences of one length."""

    q_heads: int
    kv_heads: int
    batch: int
    kv_len: int

    @property
    def name(self) -> str:
        return f"{self.q_heads}/{self.kv_heads} {self.batch} x {self.kv_len}"

    @property
    def bytes(self) -> int:
        """Of keys and values."""
        return 2 * 2 * self.batch * self.kv_len * self.kv_heads * HEAD_DIM

    @property
    def num_sets(self) -> int:
        return min(COLD_BYTES // self.bytes + 1, MOST_SETS)

    @property
    def key(self) -> dict[str, int]:
        members = ("q_heads", "kv_heads", "head_dim", "batch", "kv_len")
        return {name: getattr(self, name, HEAD_DIM) for name in members}


def all_cells() -> list[Cell]:
    """Those of the record of the peers."""
    records = json.loads(RECORDED.read_text(encoding="utf-8"))["records"]
    names = ("q_heads", "kv_heads", "batch", "kv_len")
    found = [
        Cell(*(r[name] for name in names))
        for r in records
        if r["op"] == "batch_decode" and not r["rope"] and r["head_dim"] == HEAD_DIM
    ]
    return list(dict.fromkeys(found))


class Arrays:
    """Sets of keys and values, [set, batch, heads, keys, size], and one q."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        shape = (cell.num_sets, cell.batch, cell.kv_heads, cell.kv_len, HEAD_DIM)
        self.q = torch.randn(
            cell.batch, cell.q_heads, HEAD_DIM, dtype=torch.bfloat16, device="cuda"
        )
        self.k, self.v = (self.q.new_empty(shape).normal_() for _ in range(2))

    def expected(self, i: int) -> Any:
        """Of set i, in f32."""
        cell = self.cell
        q = self.q.view(cell.batch, cell.kv_heads, -1, HEAD_DIM).float()
        parts = []
        for row in range(cell.batch):
            scores = q[row] @ self.k[i, row].float().transpose(1, 2) * HEAD_DIM**-0.5
            parts.append(scores.softmax(-1) @ self.v[i, row].float())
        return torch.stack(parts).view(cell.batch, cell.q_heads, HEAD_DIM)


class Heddle:
    """heddle.ops.batch_decode on the same values, in pages of 16 in random order."""

    def __init__(self, arrays: Arrays) -> None:
        from heddle import PagedKv, PageTable

        cell = arrays.cell
        self.q, self.o = arrays.q, torch.empty_like(arrays.q)
        pages_of_seq = cell.kv_len // PAGE_SIZE
        num = cell.batch * pages_of_seq
        order = torch.randperm(cell.num_sets * num, device="cuda")
        self.cache = PagedKv.from_pool(
            *(self._pages(x, order, pages_of_seq) for x in (arrays.k, arrays.v))
        )
        starts = torch.arange(0, num + 1, pages_of_seq, dtype=torch.int32, device="cuda")
        last = torch.full((cell.batch,), PAGE_SIZE, dtype=torch.int32, device="cuda")
        self.tables = [PageTable(starts, part, last) for part in order.int().split(num)]

    @staticmethod
    def _pages(x: Any, order: Any, pages_of_seq: int) -> Any:
        sets, batch, heads, _, size = x.shape
        pool = x.new_empty(sets * batch * pages_of_seq, heads, PAGE_SIZE, size)
        for i, rows in enumerate(x.flatten(0, 1)):
            pages = rows.view(heads, pages_of_seq, PAGE_SIZE, size).transpose(0, 1)
            pool[order[i * pages_of_seq : (i + 1) * pages_of_seq]] = pages
        return pool

    def call(self, i: int) -> Any:
        from heddle import ops

        ops.batch_decode(self.o, None, self.q, self.cache, self.tables[i])
        return self.o


def cudnn_call(arrays: Arrays, form: str, layout: str) -> Callable[[int], Any]:
    """A call of cuDNN on set i."""
    cell, k, v = arrays.cell, arrays.k, arrays.v
    if layout == "token-major":
        k, v = (x.transpose(2, 3).contiguous().transpose(2, 3) for x in (k, v))
    is_shared = cell.q_heads != cell.kv_heads
    heads = cell.q_heads if form == "heads" else cell.kv_heads
    q = arrays.q.view(cell.batch, heads, -1, HEAD_DIM)

    def call(i: int) -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            o = scaled_dot_product_attention(
                q, k[i], v[i], enable_gqa=is_shared and form == "heads"
            )
        return o.view(cell.batch, cell.q_heads, HEAD_DIM)

    return call


def raced(cell: Cell) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a cell, and what failed there."""
    arrays = Arrays(cell)
    calls, last = max(FEWEST_CALLS, cell.num_sets), cell.num_sets - 1
    entries: dict[str, Callable[[int], Any]] = {"heddle": Heddle(arrays).call}
    forms = ("heads", "rows") if cell.q_heads != cell.kv_heads else ("heads",)
    for layout in ("head-major", "token-major"):
        for form in forms:
            entries[f"{form}, {layout}"] = cudnn_call(arrays, form, layout)
    wanted = {i: arrays.expected(i) for i in (0, last)}
    launches: dict[str, Callable[[], None]] = {}
    errors: dict[str, float] = {}
    failed = []
    for name, call in entries.items():
        try:
            found = [(call(i).float() - want).norm() / want.norm() for i, want in wanted.items()]
            errors[name] = max(error.item() for error in found)
            if not errors[name] <= LARGEST_ERROR:
                raise ArithmeticError(f"the relative error is {errors[name]:.3g}")
            launches[name] = Recorded(call, calls, cell.num_sets).launch
        except Exception as error:
            failed.append(f"{name} at {cell.name}: {type(error).__name__}: {error}"[:300])
    sums = torch.zeros(1, dtype=torch.int32, device="cuda")
    both = [torch.stack(pair).view(-1) for pair in zip(arrays.k, arrays.v, strict=True)]
    read(both[0], sums)  # compiles it
    launches["read"] = Recorded(lambda i: read(both[i], sums), calls, cell.num_sets).launch
    common = {**cell.key, "bytes": cell.bytes, "sets": cell.num_sets, "calls_in_graph": calls}
    records = []
    for name, samples in interleaved(launches, calls).items():
        facts: dict[str, Any] = {"op": "batch_decode", "peer": name, **common}
        if name == "read":
            facts["op"], facts["peer"] = "read", "memory"
        elif name != "heddle":
            facts.update(peer=PEER, setting=name)
        if name in errors:
            facts["error"] = round(errors[name], 6)
        records.append(record(facts, samples))
    told = ", ".join(f"{r.get('setting', r['peer'])} {r['us']}" for r in records)
    print(f"{cell.name}, {cell.num_sets} sets: {told}", *failed, sep="\n  ", flush=True)
    return records, failed


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("attention_race.json"))
    parser.add_argument("--cells", default="", help="with one of PART;PART in their name")
    parser.add_argument("--largest", type=float, default=0.3, help="GB of keys and values")
    parser.add_argument("--commit", default="unknown", help="of heddle")
    return parser.parse_args()


def main() -> int:
    arguments = arguments_of()
    parts = arguments.cells.split(";")
    properties = torch.cuda.get_device_properties(0)
    head: dict[str, Any] = {
        "what": "heddle's batch_decode and cuDNN's, interleaved in one process on one card; us",
        "commit": arguments.commit,
        "date": f"{date.today()}",
        "device": {"name": properties.name, "l2_bytes": properties.L2_cache_size},
        "versions": {
            "python": platform.python_version(),
            "cuda": torch.version.cuda,
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(),
        },
        "failed": [],
    }
    records: list[dict[str, Any]] = []
    cells = [c for c in all_cells() if c.bytes <= arguments.largest * 1e9]
    with torch.cuda.stream(torch.cuda.Stream()):
        for cell in cells:
            if any(part in cell.name for part in parts):
                found, failed = raced(cell)
                records += found
                head["failed"] += failed
                write(arguments.out, head, records)
                torch.cuda.empty_cache()
    return int(not records or any(failure.startswith("heddle") for failure in head["failed"]))


if __name__ == "__main__":
    sys.exit(main())
