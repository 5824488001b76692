"""vLLM's LoRA kernels in Triton, from the package's own files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from cells import Arrays, Cell
from vllm.lora.ops.triton_ops import lora_expand_op, lora_shrink_op, utils
from vllm.lora.ops.triton_ops.lora_kernel_metadata import LoRAKernelMeta

PEER = "vLLM"
NAMES = ("block_m", "block_n", "block_k", "num_warps", "num_stages", "split_k")


class Chosen:
    """Stands before vLLM's get_lora_op_configs; a file of tuned settings would do the same."""

    setting: dict[str, Any] | None = None

    def __call__(self, op_type: str, **arguments: Any) -> dict[str, Any]:
        default = utils.get_lora_op_configs(op_type, **arguments)
        return default if self.setting is None else {**default, **self.setting[op_type]}


chosen = Chosen()
lora_shrink_op.get_lora_op_configs = chosen
lora_expand_op.get_lora_op_configs = chosen


class VLLM:
    """One cell, as PunicaWrapperGPU.add_lora_linear calls the kernels."""

    def __init__(self, cell: Cell, arrays: Arrays) -> None:
        self.cell, self.arrays = cell, arrays
        self.meta = LoRAKernelMeta.make(cell.adapters, cell.tokens, arrays.device)
        self.indices = arrays.ids.long()
        slices = len(cell.out_features)
        self.buffer = torch.empty(slices, cell.tokens, cell.rank, device=arrays.device)
        self._note_addresses()
        self.prepare()

    def _note_addresses(self) -> None:
        """vLLM keeps tables of where weights lie, by address; those of earlier cells are wrong now,
        and none can be made while a graph is captured."""
        utils._LORA_A_PTR_DICT.clear()
        utils._LORA_B_PTR_DICT.clear()
        for i in range(self.arrays.num_sets):
            a, b = self.arrays.apart(i)
            utils._get_lora_a_ptr(a, self.indices.device)
            utils._get_lora_b_ptr(b, 0, self.indices.device)

    def prepare(self) -> None:
        """What vLLM does once a step, from ids that are on the device."""
        self.meta.prepare_tensors(self.indices)

    def shipped(self) -> None:
        """Without a file of tuned settings."""
        return None

    def call_with(self, setting: dict[str, Any] | None) -> Callable[[int], None]:
        """The shipped setting has a grid for one adapter more than there are, the others for as
        many as there are (vLLM's specialize_active_lora)."""
        meta = self.meta.meta_args(self.cell.tokens, specialize_active_lora=setting is not None)
        arrays, buffer = self.arrays, self.buffer

        def call(i: int) -> None:
            chosen.setting = setting
            a, b = arrays.apart(i)
            lora_shrink_op.lora_shrink(arrays.x[i], a, buffer, *meta, 1.0)
            lora_expand_op.lora_expand(buffer, b, arrays.y[i], *meta, add_inputs=True)

        return call


def as_json(setting: dict[str, Any] | None) -> dict[str, Any]:
    return {} if setting is None else setting


def from_json(setting: dict[str, Any]) -> dict[str, Any] | None:
    return setting or None


def half(
    m: int, n: int, k: int, warps: int, stages: int, split: int | None = None
) -> dict[str, Any]:
    return {
        name: value
        for name, value in zip(NAMES, (m, n, k, warps, stages, split))
        if value is not None
    }


def settings_of_a(cell: Cell) -> Iterator[dict[str, Any]]:
    expand = half(16, 128, 16, 4, 2) if not cell.is_prefill else half(64, 128, 16, 4, 2)
    ranks = sorted({16, min(64, cell.rank)})
    if cell.is_prefill:
        grid = itertools.product((32, 64), ranks, (64, 128), (4,), (3,), (1, 4, 8))
    else:
        grid = itertools.product((16,), ranks, (128, 256), (4,), (2, 4), (8, 16, 32))
    for shape in grid:
        yield {"shrink": half(*shape), "expand": expand}


def settings_of_b(cell: Cell) -> Iterator[dict[str, Any]]:
    if cell.is_prefill:
        shrink = half(32, 16, 64, 4, 3, 4)
        grid = itertools.product((32, 64, 128), (128, 256), sorted({16, cell.rank}), (4, 8), (2,))
    else:
        shrink = half(16, 16, 256, 4, 2, 16)
        grid = itertools.product((16,), (32, 64, 128, 256), sorted({16, cell.rank}), (4,), (2,))
    for shape in grid:
        yield {"shrink": shrink, "expand": half(*shape)}


def joined(of_a: dict[str, Any], of_b: dict[str, Any]) -> dict[str, Any]:
    return {"shrink": of_a["shrink"], "expand": of_b["expand"]}
