"""Which adapter each row of a batch uses, worked out once for all layers and steps that need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from heddle._core import lora_plan_bytes
from heddle.integrations._peft_tables import LayerTables
from heddle.integrations._streams import (
    is_gpu,
    refuse_while_capturing,
    wait_for_all,
    wait_for_stream,
)
from heddle.ops import lora_plan

MOST_BATCHES = 64
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Rows:
    """What `lora_apply` is told of the rows of a batch, by layers with the same slots."""

    slot_ids: torch.Tensor  # [num_rows] i32, -1: no adapter
    plan: torch.Tensor | None  # on a GPU

    @property
    def num_bytes(self) -> int:
        """Of its memory."""
        return int(self.slot_ids.nbytes + (0 if self.plan is None else self.plan.nbytes))


class Batches:
    """The rows of the latest batches, for every kind of layer."""

    def __init__(self) -> None:
        self.kept: dict[tuple[tuple[str, ...], int], dict[tuple[Any, ...], Rows]] = {}

    def rows(self, names: tuple[str, ...], rows_per_name: int, tables: LayerTables) -> Rows:
        """Those of a batch in which the n-th `rows_per_name` rows use the n-th adapter.

        The layers of a forward pass that hold the same adapters share them, and so do the steps of
        a decode.
        """
        batch = self.kept.get((names, rows_per_name))
        if batch is None:
            refuse_while_capturing("this batch")
            self._make_room()
            batch = self.kept.setdefault((names, rows_per_name), {})
        # With their ranks and device; a plan depends on nothing else.
        kind = (tables.slots, tables.ranks, tables.device)
        rows = batch.get(kind)
        if rows is None:
            refuse_while_capturing("this batch")
            rows = batch[kind] = _rows(names, rows_per_name, tables)
        return rows

    def _make_room(self) -> None:
        """Forgets all batches once they are many or large."""
        kept = [rows for batch in self.kept.values() for rows in batch.values()]
        many = len(self.kept) >= MOST_BATCHES
        if many or sum(rows.num_bytes for rows in kept) > MOST_BYTES:
            for device in {rows.slot_ids.device for rows in kept}:
                wait_for_all(device)
            self.kept.clear()


def _rows(names: tuple[str, ...], rows_per_name: int, tables: LayerTables) -> Rows:
    slot_of = {name: slot for slot, name in enumerate(tables.slots)}
    by_name = torch.tensor([slot_of.get(name, -1) for name in names], dtype=torch.int32)
    ids = by_name.repeat_interleave(rows_per_name).to(tables.device)
    plan = None
    if is_gpu(ids.device):
        max_rank = max(tables.ranks)
        num_bytes = lora_plan_bytes(len(ids), max_rank)
        plan = torch.empty(num_bytes, dtype=torch.uint8, device=ids.device)
        ranks = torch.tensor(tables.ranks, dtype=torch.int32).to(ids.device)
        lora_plan(plan, len(ids), len(tables.slots), max_rank, slot_ids=ids, slot_ranks=ranks)
        wait_for_stream(ids.device)
    return Rows(ids, plan)
