"""A step with LoRA in a CUDA graph: captured once, replayed with other rows and another adapter.

Prints how far each replay is from the same sums in torch, and exits with 1 where that is more than
rounding. It needs a GPU and torch.
"""

from __future__ import annotations

import sys

import torch

import heddle
from heddle import ops

TOKENS, WIDTH, RANK, SLOTS = 32, 1024, 16, 4

torch.manual_seed(0)


def random(*shape: int) -> torch.Tensor:
    """bf16 on the GPU."""
    return torch.randn(*shape, device="cuda").bfloat16()


halves = [(random(RANK, WIDTH), random(WIDTH, RANK)) for _ in range(SLOTS)]
table_a = heddle.AdapterTable(SLOTS, [WIDTH], RANK, dtype="bf16", device="cuda:0", aligned=True)
table_b = heddle.AdapterTable(
    SLOTS, [WIDTH], RANK, dtype="bf16", layout="rank_minor", device="cuda:0", aligned=True
)


def put(slot: int) -> None:
    """An adapter into its slot, on torch's stream: replays before see the old one."""
    table_a.set(slot, 0, halves[slot][0])
    table_b.set(slot, 0, halves[slot][1], scale=0.01)


for slot in range(SLOTS):
    put(slot)

# What a replay reads and writes is this memory: it is filled anew, never replaced.
x, y = random(TOKENS, WIDTH), random(TOKENS, WIDTH)
slot_ids = torch.zeros(TOKENS, dtype=torch.int32, device="cuda")
plan = torch.empty(heddle.lora_plan_bytes(TOKENS, RANK), dtype=torch.uint8, device="cuda")
batch = heddle.LoraBatch(slot_ids=slot_ids, plan=plan)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    ops.lora_plan(plan, batch, TOKENS, SLOTS, RANK)  # once a step, for all its layers
    ops.lora_apply([y], x, table_a, table_b, batch)

worst = 0.0
for replay in range(3):
    slot_ids.copy_(torch.randint(-1, SLOTS, (TOKENS,)))
    x.normal_()
    halves[1] = (random(RANK, WIDTH), random(WIDTH, RANK))
    put(1)  # an adapter may come or go between two replays
    want = y.double()
    for slot, (a, b) in enumerate(halves):
        delta = 0.01 * (x.double() @ a.double().T @ b.double().T)
        want += delta * (slot_ids == slot)[:, None]
    graph.replay()
    error = float((y.double() - want).abs().max() / want.abs().max())
    print(f"replay {replay}: relative error {error:.1e}")
    worst = max(worst, error)
sys.exit(bool(worst > 2**-8))
