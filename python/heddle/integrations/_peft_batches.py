"""Which adapter each row of a batch uses, worked out once for all layers and steps that need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from heddle._arguments import LoraBatch
from heddle._core import lora_plan_bytes
from heddle.integrations._peft_tables import LayerTables
from heddle.integrations._streams import (
    is_gpu,
    refuse_while_capturing,
    wait_for_all,
    wait_for_stream,
)
from heddle.ops import lora_plan

MOST_KEPT = 256
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Rows:
    """What `lora_apply` gets about the rows of a batch, by layers with the same slots."""

    slot_ids: torch.Tensor  # [num_rows] i32, -1: no adapter
    plan: torch.Tensor | None  # on a GPU
    batch: LoraBatch  # of the two

    @property
    def num_bytes(self) -> int:
        """Of its memory."""
        return int(self.slot_ids.nbytes + (0 if self.plan is None else self.plan.nbytes))


class Batches:
    """The rows of the latest batches, for every kind of layer."""

    def __init__(self) -> None:
        # By names, rows of each, and what layers differ in.
        self.kept: dict[tuple[Any, ...], Rows] = {}

    def rows(self, names: tuple[str, ...], rows_per_name: int, tables: LayerTables) -> Rows:
        """Those of a batch in which the n-th `rows_per_name` rows use the n-th adapter.

        The layers of a forward pass that hold the same adapters share them, and so do the steps of
        a decode.
        """
        # Ids and a plan depend on nothing else.
        key = (names, rows_per_name, tables.slots, tables.ranks, tables.device)
        rows = self.kept.get(key)
        if rows is None:
            refuse_while_capturing("this batch")
            self._make_room(key)
            rows = self.kept[key] = _rows(names, rows_per_name, tables)
        return rows

    def _make_room(self, key: tuple[Any, ...]) -> None:
        """Once they are many or large, forgets the rows of other batches than the key's."""
        kept = self.kept
        if len(kept) < MOST_KEPT and sum(rows.num_bytes for rows in kept.values()) < MOST_BYTES:
            return
        for device in {rows.slot_ids.device for rows in kept.values()}:
            wait_for_all(device)
        of_batch = {other: rows for other, rows in kept.items() if other[:2] == key[:2]}
        self.kept = of_batch if len(of_batch) < MOST_KEPT // 2 else {}


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
        batch = LoraBatch(slot_ids=ids)
        lora_plan(plan, batch, len(ids), len(tables.slots), max_rank, ranks)
        wait_for_stream(ids.device)
    return Rows(ids, plan, LoraBatch(slot_ids=ids, plan=plan))
