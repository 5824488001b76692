"""The cells of the race, their arrays, and what the results should be."""

from __future__ import annotations

import json
import math
import pathlib
from dataclasses import dataclass
from typing import Any

import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]
RECORDED = ROOT / "bench/peers/lora_h200.json"
L2_TIMES = 2.25  # all arrays of a cell's sets together are at least that many times the L2 cache
FEWEST_CALLS = 24  # in a graph
MOST_SETS = 320
ALIGNED = 128  # elements, between the arrays of a set
LARGEST_ERROR = 0.01  # norm of the difference, as a part of the norm of what is expected
LARGEST_DIFFERENCE = 0.25  # of one value; they go up to 8, where bf16 values are 1/16 apart


@dataclass(frozen=True)
class Cell:
    """One linear site, and the batch at it."""

    phase: str  # "decode": an adapter id for each row; "prefill": equal segments
    site: str
    in_features: int
    out_features: tuple[int, ...]  # of each slice
    rank: int
    tokens: int
    adapters: int

    @property
    def name(self) -> str:
        return f"{self.site}, rank {self.rank}, {self.tokens} / {self.adapters}"

    @property
    def key(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "site": self.site,
            "rank": self.rank,
            "tokens": self.tokens,
            "adapters": self.adapters,
        }

    @property
    def is_prefill(self) -> bool:
        return self.phase == "prefill"

    @property
    def out(self) -> int:
        return sum(self.out_features)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Columns of y at which slices begin, and the end."""
        return tuple(sum(self.out_features[:i]) for i in range(len(self.out_features) + 1))

    def rows_of(self) -> list[int]:
        """The adapter of each row."""
        if self.is_prefill:
            return [row * self.adapters // self.tokens for row in range(self.tokens)]
        return [row % self.adapters for row in range(self.tokens)]

    def sizes(self) -> list[int]:
        """Elements of A, B, x and y of a set, each with the gap after it."""
        a = self.adapters * len(self.out_features) * self.rank * self.in_features
        b = self.adapters * self.out * self.rank
        sizes = (a, b, self.tokens * self.in_features, self.tokens * self.out)
        return [-(-size // ALIGNED) * ALIGNED for size in sizes]

    def num_sets(self, l2_bytes: int) -> int:
        """As many sets as it takes until an array is read again after L2_TIMES the cache."""
        sets = max(2, math.ceil(L2_TIMES * l2_bytes / (2 * sum(self.sizes()))))
        if sets > MOST_SETS:
            raise ValueError(f"{self.name} would need {sets} sets")
        return sets


def all_cells() -> list[Cell]:
    """Those of the record of the peers."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    found = []
    for record in recorded["records"]:
        if record["adapters"] == 0:
            continue
        into, _, outs = recorded["sites"][record["site"]].partition(" -> ")
        widths = tuple(int(width) for width in outs.split(" + "))
        names = ("rank", "tokens", "adapters")
        numbers = [record[name] for name in names]
        found.append(Cell(record["phase"], record["site"], int(into), widths, *numbers))
    return found


class Arrays:
    """Sets of A, B, x and y: one call of a graph uses one set, the next call the next.

    A set is one piece of memory. A lies as [adapters, slices * rank, in_features], B as [adapters,
    all out_features, rank], the products of all slices side by side in y. `a_of` and `b_of` are
    copies in tensors of their own for each slice, for peers that want them so.
    """

    def __init__(
        self,
        cell: Cell,
        num_sets: int,
        device: str,
        dtype: torch.dtype = torch.bfloat16,
        seed: int = 1,
    ) -> None:
        self.cell, self.num_sets, self.device = cell, num_sets, device
        generator = torch.Generator(device).manual_seed(seed)
        sizes = cell.sizes()
        self.bytes_of_set = 2 * sum(sizes)
        self.memory = torch.empty(num_sets, sum(sizes), dtype=dtype, device=device)
        self.a, self.b, self.x, self.y = [], [], [], []
        slices, rank = len(cell.out_features), cell.rank
        for piece in self.memory:
            a, b, x, y = piece.split(sizes)
            a.normal_(std=cell.in_features**-0.5, generator=generator)
            b.normal_(std=rank**-0.5, generator=generator)
            x.normal_(generator=generator)
            y.normal_(generator=generator)
            adapters, tokens = cell.adapters, cell.tokens
            shape_a = (adapters, slices * rank, cell.in_features)
            self.a.append(a[: math.prod(shape_a)].view(shape_a))
            shape_b = (adapters, cell.out, rank)
            self.b.append(b[: math.prod(shape_b)].view(shape_b))
            self.x.append(x[: tokens * cell.in_features].view(tokens, cell.in_features))
            self.y.append(y[: tokens * cell.out].view(tokens, cell.out))
        rows = cell.rows_of()
        self.ids = torch.tensor(rows, dtype=torch.int32, device=device)
        starts = [rows.index(adapter) for adapter in range(cell.adapters)]
        self.lengths = [rows.count(adapter) for adapter in range(cell.adapters)]
        ends = [start + length for start, length in zip(starts, self.lengths)]
        self.starts = torch.tensor(starts, dtype=torch.int32, device=device)
        self.ends = torch.tensor(ends, dtype=torch.int32, device=device)
        self._before: dict[int, torch.Tensor] = {}
        self._apart: dict[int, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}

    def apart(self, i: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """A and B of set i with each slice in a tensor of its own, [adapters, 1, ...]."""
        if i not in self._apart:
            cell, rank = self.cell, self.cell.rank
            a = [part.contiguous().unsqueeze(1) for part in self.a[i].split(rank, dim=1)]
            b = [part.contiguous().unsqueeze(1) for part in self.b[i].split(cell.out_features, 1)]
            self._apart[i] = a, b
        return self._apart[i]

    def expected(self, i: int) -> torch.Tensor:
        """What set i's y should be after one call, in f32; its y is the one that checks begin with
        from now on."""
        cell = self.cell
        self._before[i] = self.y[i].clone()
        x, y = self.x[i].float(), self.y[i].float()
        for adapter in range(cell.adapters):
            if cell.is_prefill:
                begin = adapter * cell.tokens // cell.adapters
                rows = slice(begin, (adapter + 1) * cell.tokens // cell.adapters)
            else:
                rows = slice(adapter, None, cell.adapters)
            h = x[rows] @ self.a[i][adapter].float().T
            for s, (first, last) in enumerate(zip(cell.offsets, cell.offsets[1:])):
                part = h[:, s * cell.rank : (s + 1) * cell.rank]
                y[rows, first:last] += part @ self.b[i][adapter, first:last].float().T
        return y

    def error_of(self, call: Any, i: int, want: torch.Tensor) -> float:
        """Relative error of a call at set i, whose y was `want`'s before and is it afterwards."""
        self.y[i].copy_(self._before[i])
        call(i)
        difference = self.y[i].float() - want
        self.y[i].copy_(self._before[i])
        largest = difference.abs().max().item()
        error = (difference.norm() / want.norm()).item()
        # NaN passes neither comparison.
        if not (error <= LARGEST_ERROR and largest <= LARGEST_DIFFERENCE):
            raise ArithmeticError(f"relative error {error:.3g}, largest difference {largest:.3g}")
        return error
