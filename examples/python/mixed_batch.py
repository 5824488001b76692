"""One batch, many adapters: four rows of a linear layer, each with a LoRA adapter of its own.

Prints for each row how far `y += scale * B A x` is from the same sum in NumPy, and exits with 1
where that is more than rounding.
"""

from __future__ import annotations

import sys

import numpy as np

import heddle
from heddle import ops

IN_FEATURES, OUT_FEATURES, MAX_RANK = 256, 128, 16
RANKS, SCALES = [4, 16], [2.0, 0.5]  # of two adapters

rng = np.random.default_rng(0)
halves = [
    (
        rng.standard_normal((rank, IN_FEATURES), np.float32),
        rng.standard_normal((OUT_FEATURES, rank), np.float32),
    )
    for rank in RANKS
]

# A table holds one half of all adapters; a slot is an adapter's place in both.
table_a = heddle.AdapterTable(len(halves), [IN_FEATURES], MAX_RANK)
table_b = heddle.AdapterTable(len(halves), [OUT_FEATURES], MAX_RANK, layout="rank_minor")
for slot, (a, b) in enumerate(halves):
    table_a.set(slot, 0, a)
    table_b.set(slot, 0, b, scale=SCALES[slot])

# Rows 0 and 3 use adapter 1, row 1 adapter 0, and row 2 the base model alone.
slot_ids = np.array([1, 0, -1, 1])
x = rng.standard_normal((len(slot_ids), IN_FEATURES), np.float32)
y = rng.standard_normal((len(slot_ids), OUT_FEATURES), np.float32)  # x W, of the base model
want = y.copy()

ops.lora_apply([y], x, table_a, table_b, heddle.LoraBatch(slot_ids=slot_ids))

for row, slot in enumerate(slot_ids):
    if slot >= 0:
        a, b = halves[slot]
        want[row] += SCALES[slot] * (b @ (a @ x[row]))
errors = np.abs(y - want).max(1) / np.abs(want).max(1)
for row, (slot, error) in enumerate(zip(slot_ids, errors, strict=True)):
    name = f"adapter {slot}" if slot >= 0 else "no adapter"
    print(f"row {row}: {name}, relative error {error:.1e}")
sys.exit(bool(errors.max() > 1e-5))
