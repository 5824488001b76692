"""SGLang's LoRA backend triton_v2, from the package's own files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from cells import Arrays, Cell
from sglang.kernels.ops.lora.common import routing
from sglang.srt.lora.backend.triton_v2_backend import TritonV2LoRABackend
from sglang.srt.lora.dense import runner as runners
from sglang.srt.lora.dense.plan import AFamily, BFamily, DenseLoraKind, DensePlan, Overlap
from sglang.srt.lora.utils import Phase
from sglang.srt.model_executor.forward_batch_info import ForwardMode

PEER = "SGLang triton_v2"
PLANES = (4, 8)  # partial sums of A that B adds up
CUDA_ROUTE_ROWS = 512  # above it SGLang groups rows with a CUDA kernel that it builds when it runs


def route_without_build(token_slots: torch.Tensor, **arguments: Any) -> Any:
    """SGLang's build_route; above CUDA_ROUTE_ROWS by its Triton kernels for large routes.

    The race has no part of SGLang that compiles CUDA. The room for rows is as in SGLang's way.
    """
    rows, slots = token_slots.numel(), arguments["max_loras"]
    if rows > CUDA_ROUTE_ROWS:
        arguments["capacity"] = rows + (slots + 1) * (arguments["block_size"] - 1)
    return routing.build_route(token_slots, **arguments)


runners.build_route = route_without_build


class SGLang:
    """One cell. The base product is not in the race, so A and B follow one another on one stream,
    whatever overlap a plan names."""

    def __init__(self, cell: Cell, arrays: Arrays) -> None:
        self.cell, self.arrays = cell, arrays
        device = torch.device(arrays.device, 0) if arrays.device == "cuda" else torch.device("cpu")
        self.backend = TritonV2LoRABackend(cell.adapters, device)
        self.runner = self.backend.runner
        requests = cell.adapters if cell.is_prefill else cell.tokens
        self.slots = list(range(cell.adapters)) if cell.is_prefill else cell.rows_of()
        self.step = SimpleNamespace(
            batch_size=requests,
            forward_mode=ForwardMode.EXTEND if cell.is_prefill else ForwardMode.DECODE,
            extend_num_tokens=cell.tokens,
            extend_seq_lens_cpu=arrays.lengths if cell.is_prefill else None,
        )
        if device.type == "cpu":
            self._bind_on_cpu(device)
            return
        if cell.is_prefill:
            self.backend.init_prefill_cuda_graph_batch_info(cell.tokens, requests)
        else:
            self.backend.init_decode_cuda_graph_batch_info(cell.tokens, 1)
        self.prepare()

    def _bind_on_cpu(self, device: torch.device) -> None:
        slots = self.cell.adapters
        self.runner.begin_batch(
            token_slots=self.arrays.ids,
            lora_ranks=torch.full((slots,), self.cell.rank, dtype=torch.int32, device=device),
            scalings=torch.ones(slots, device=device),
            num_tokens=self.cell.tokens,
            phase=Phase.PREFILL if self.cell.is_prefill else Phase.DECODE,
            graph_mode=False,
        )

    def prepare(self) -> None:
        """What SGLang does once a step on the host, and the kernel that spreads slots over rows."""
        slots = self.cell.adapters
        self.backend.prepare_lora_batch(
            self.step,
            self.slots,
            [self.cell.rank] * slots,
            [1.0] * slots,
            use_decode_cuda_graph=not self.cell.is_prefill,
            use_prefill_cuda_graph=self.cell.is_prefill,
        )

    def group_rows(self, plan: DensePlan) -> None:
        """What SGLang does once a step in its graph."""
        self.runner.reset_routes()
        if plan.needs_aligned_route:
            self.runner.route(plan.block_size)

    def shipped(self) -> DensePlan:
        cell = self.cell
        kind = DenseLoraKind.LINEAR
        return self.runner.plan_for(
            kind, cell.rank, cell.in_features, cell.out, num_tokens=cell.tokens
        )

    def call_with(self, plan: DensePlan) -> Callable[[int], None]:
        runner, arrays, cell = self.runner, self.arrays, self.cell

        def call(i: int) -> None:
            bridge = runner.run_a(arrays.x[i], arrays.a[i], stack=len(cell.out_features), plan=plan)
            runner.run_b(bridge, arrays.b[i], arrays.y[i], offsets=cell.offsets, plan=plan)

        return call


def as_json(plan: DensePlan) -> dict[str, Any]:
    return {
        "a_family": plan.a_family.value,
        "b_family": plan.b_family.value,
        "block_size": plan.block_size,
        "a_tiles": dict(plan.a_tiles),
        "b_tiles": dict(plan.b_tiles),
    }


def from_json(setting: dict[str, Any]) -> DensePlan:
    families = AFamily(setting["a_family"]), BFamily(setting["b_family"])
    rest = setting["block_size"], dict(setting["a_tiles"]), dict(setting["b_tiles"])
    return DensePlan(*families, Overlap.NONE, *rest)


# The settings of a sweep: those of A with one B, and those of B with one A. Both were drawn
# around the plans that SGLang ships.


def tiles(n: int, k: int, warps: int, stages: int, **more: Any) -> dict[str, Any]:
    sizes = {"BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8}
    return {**sizes, "num_warps": warps, "num_stages": stages, **more}


def settings_of_a(cell: Cell) -> Iterator[dict[str, Any]]:
    b, usual = tiles(64, 64, 4, 2), (64, 128, 4, 3)
    if cell.is_prefill:
        kinds = [(usual, 1, ""), ((32, 128, 8, 3), 1, ""), ((32, 256, 4, 3), 1, "")]
        kinds += [(usual, 2, "serial"), (usual, 4, "planes")]
    else:
        kinds = [(usual, split, "serial") for split in (1, 4, 8, 16)]
        kinds += [(usual, split, "planes") for split in PLANES]
        others = ((16, 256, 4, 3), (32, 256, 4, 3), (64, 256, 4, 2))
        kinds += [(shape, split, "serial") for shape in others for split in (1, 4, 8)]
    for block, (shape, split, mode) in itertools.product(blocks_of(cell), kinds):
        more = {"SPLIT_K": split, "SPLIT_MODE": mode} if split > 1 else {}
        yield setting("grouped", "grouped", block, tiles(*shape, **more), b)
    if not cell.is_prefill:
        for shape in ((16, 512, 4, 2), (16, 1024, 8, 2), (4, 1024, 4, 2)):
            yield setting("per_row", "per_row", 16, tiles(*shape), b)
        if cell.adapters <= 32:
            yield setting("all_slots", "per_row", 16, tiles(*usual), b)


def settings_of_b(cell: Cell) -> Iterator[dict[str, Any]]:
    more = {} if cell.is_prefill else {"SPLIT_K": 4}
    a = tiles(64, 128, 4, 3, **more)
    grouped = [(64, 4), (128, 4), (256, 8)]
    if cell.is_prefill:
        grouped += [(128, 8), (256, 4)]
    for block, (n, warps) in itertools.product(blocks_of(cell), grouped):
        yield setting("grouped", "grouped", block, a, tiles(n, 64, warps, 2))
    if not cell.is_prefill:
        for n, warps in ((32, 4), (64, 2), (64, 4), (128, 4), (256, 4)):
            yield setting("grouped", "per_row", 16, a, tiles(n, 64, warps, 2))


def settings_to_warm(cell: Cell) -> Iterator[dict[str, Any]]:
    """B reads what A leaves, so it is compiled anew for each number of planes."""
    yield from settings_of_a(cell)
    for of_b in settings_of_b(cell):
        yield of_b
        for planes in PLANES[:1] if cell.is_prefill else PLANES:
            more = {"SPLIT_K": planes, "SPLIT_MODE": "planes"}
            yield {**of_b, "a_tiles": tiles(64, 128, 4, 3, **more)}


def blocks_of(cell: Cell) -> tuple[int, ...]:
    """Rows that are padded to blocks of so many for each adapter."""
    return (32, 64, 128) if cell.is_prefill else (16,)


def setting(a: str, b: str, block: int, a_tiles: Any, b_tiles: Any) -> dict[str, Any]:
    families = {"a_family": a, "b_family": b, "block_size": block}
    return {**families, "a_tiles": a_tiles, "b_tiles": b_tiles}


def joined(of_a: dict[str, Any], of_b: dict[str, Any]) -> dict[str, Any] | None:
    """A of one setting with B of the other, None where they do not go together."""
    both = {**of_a, "b_family": of_b["b_family"], "b_tiles": of_b["b_tiles"]}
    if of_a["a_family"] == "all_slots" and of_b["b_family"] != "per_row":
        return None
    if of_a["a_family"] != "grouped":
        both["block_size"] = of_b["block_size"]
    elif of_b["b_family"] == "grouped" and of_a["block_size"] != of_b["block_size"]:
        return None
    return both
