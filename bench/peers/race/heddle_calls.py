"""heddle in the race: through its Python package, and through C++ in libheddle_race.so."""

from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Callable
from typing import Any

import heddle
import torch
from cells import Arrays, Cell
from heddle import ops

PEER = "heddle"
MOST_SLICES = 4


class HeddlePython:
    """One cell through heddle.ops, on torch's current stream."""

    def __init__(self, cell: Cell, arrays: Arrays) -> None:
        self.cell, self.arrays = cell, arrays
        self.tables = [self._tables(i) for i in range(arrays.num_sets)]
        self.slices = [list(y.split(cell.out_features, dim=1)) for y in arrays.y]
        size = heddle.lora_plan_bytes(cell.tokens, cell.rank)
        self.plan = torch.zeros(size, dtype=torch.uint8, device=arrays.device)
        rows: dict[str, Any] = {"slot_ids": arrays.ids}
        if cell.is_prefill:
            rows = {"seg_starts": arrays.starts, "seg_ends": arrays.ends}
        self.batch = heddle.LoraBatch(**rows, plan=self.plan)
        self.prepare()

    def _tables(self, i: int) -> tuple[Any, Any]:
        cell, slices = self.cell, len(self.cell.out_features)
        shape = {"dtype": "bf16", "device": "cuda:0", "aligned": True}
        into = [cell.in_features] * slices
        a = heddle.AdapterTable(cell.adapters, into, cell.rank, **shape)
        outs = list(cell.out_features)
        b = heddle.AdapterTable(cell.adapters, outs, cell.rank, layout="rank_minor", **shape)
        for slot in range(cell.adapters):
            parts_a = self.arrays.a[i][slot].split(cell.rank)
            parts_b = self.arrays.b[i][slot].split(cell.out_features)
            for s in range(slices):
                a.set(slot, s, parts_a[s])
                b.set(slot, s, parts_b[s])
        return a, b

    def prepare(self) -> None:
        """What heddle does once a step, from ids or segments that are on the device."""
        cell = self.cell
        ops.lora_plan(self.plan, self.batch, cell.tokens, cell.adapters, cell.rank)

    def call(self, i: int) -> None:
        ops.lora_apply(self.slices[i], self.arrays.x[i], *self.tables[i], self.batch)


class RaceCell(ctypes.Structure):
    """As in heddle_race.cpp."""

    _fields_ = [
        ("in_features", ctypes.c_int64),
        ("tokens", ctypes.c_int64),
        ("out_features", ctypes.c_int64 * MOST_SLICES),
        ("num_slices", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("adapters", ctypes.c_int32),
        ("is_prefill", ctypes.c_int32),
        ("ids", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
    ]


def library_at(path: pathlib.Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    library.race_error.restype = ctypes.c_char_p
    cell = ctypes.POINTER(RaceCell)
    library.race_open.argtypes = [ctypes.POINTER(pointer), integer, pointer, cell]
    library.race_close.argtypes = [pointer]
    library.race_add.argtypes = [pointer] * 5
    library.race_call.argtypes = [pointer, integer]
    library.race_record.argtypes = [pointer, integer, integer]
    library.race_launch.argtypes = [pointer, integer]
    return library


class HeddleCpp:
    """One cell through heddle's C++ interface, which also captures and launches the graphs."""

    def __init__(self, library: ctypes.CDLL, cell: Cell, arrays: Arrays) -> None:
        self.library, self.arrays = library, arrays
        self.race = ctypes.c_void_p()
        rows = (arrays.ids.data_ptr(), arrays.starts.data_ptr(), arrays.ends.data_ptr())
        outs = (ctypes.c_int64 * MOST_SLICES)(*cell.out_features)
        slices = len(cell.out_features)
        shape = (outs, slices, cell.rank, cell.adapters, int(cell.is_prefill))
        told = RaceCell(cell.in_features, cell.tokens, *shape, *rows)
        stream = torch.cuda.current_stream().cuda_stream
        self.check(library.race_open(ctypes.byref(self.race), 0, stream, ctypes.byref(told)))
        for arrays_of_set in zip(arrays.a, arrays.b, arrays.x, arrays.y):
            pointers = (array.data_ptr() for array in arrays_of_set)
            self.check(library.race_add(self.race, *pointers))

    def check(self, failed: int) -> None:
        if failed:
            raise RuntimeError(self.library.race_error().decode())

    def call(self, i: int) -> None:
        self.check(self.library.race_call(self.race, i))

    def recorded(self, calls: int, is_plan: bool = False) -> Callable[[], None]:
        """Captures, and gives what launches the graph."""
        self.check(self.library.race_record(self.race, calls, int(is_plan)))
        return lambda: self.check(self.library.race_launch(self.race, int(is_plan)))

    def close(self) -> None:
        self.library.race_close(self.race)
        self.race = ctypes.c_void_p()
