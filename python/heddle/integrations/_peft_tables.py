"""The LoRA weights of one of PEFT's linear layers, as the tables that heddle's kernels read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from peft.tuners.lora.layer import Linear
from torch import nn

from heddle._core import MAX_LORA_RANK, AdapterTable
from heddle.integrations._peft_weights import (
    DTYPES,
    Adapter,
    Terms,
    base_dtype_of,
    dtype_to_read,
    why_not_held,
    why_unknown_weight,
)

VECTOR_BYTES = 16
LARGEST_VECTOR_STRIDE = 2**22  # elements


@dataclass(frozen=True)
class LayerTables:
    """The adapters of a layer: those that heddle computes, and those that it leaves to PEFT.

    Never changed, so that calls of several threads may use it: a layer that changed gets another.
    """

    adapters: dict[str, Adapter]  # in the order of their slots
    unknown: dict[str, str]  # adapter -> why PEFT keeps it
    inexact: dict[str, Adapter]  # those of `unknown` that PEFT keeps for what their weights hold
    base_dtype: torch.dtype | None
    terms: Terms | None  # of the copies, where the kernels' dtype needs such
    # What kernels would read of all adapters; nothing if none is known.
    dtype: torch.dtype | None
    device: torch.device | None
    tables: tuple[AdapterTable, AdapterTable] | None  # A, B
    slots: tuple[str, ...]
    ranks: tuple[int, ...]

    @staticmethod
    def of(layer: Linear, terms: Terms = Terms()) -> LayerTables:
        """As the layer is now."""
        base_dtype = base_dtype_of(layer)
        unknown: dict[str, str] = {}
        known: dict[str, Adapter] = {}
        dtype, device = None, None
        for name in layer.lora_A:
            reason = _why_unknown(layer, name, base_dtype, dtype, device)
            if reason is not None:
                unknown[name] = reason
                continue
            weight = layer.lora_A[name].weight
            dtype, device = dtype_to_read(weight, base_dtype), weight.device
            known[name] = Adapter.of(layer, name, dtype)
        not_held = why_not_held(known, round_weights=terms.round_weights)
        adapters = {name: adapter for name, adapter in known.items() if name not in not_held}
        return LayerTables(
            adapters,
            unknown | not_held,
            {name: known[name].without_copies() for name in not_held},
            base_dtype,
            terms if any(adapter.versions is not None for adapter in known.values()) else None,
            dtype,
            device,
            _tables(list(adapters.values())) if adapters else None,
            tuple(adapters),
            tuple(adapter.held[0].shape[0] for adapter in adapters.values()),
        )

    def is_current(self, layer: Linear, used: Iterable[str], terms: Terms = Terms()) -> bool:
        """Whether the layer still has these adapters, and those in use where they were."""
        a_parts, b_parts = names_of(layer), layer._modules["lora_B"]._modules
        if len(self.adapters) + len(self.unknown) != len(a_parts):
            return False
        if self.terms not in (None, terms) or base_dtype_of(layer) != self.base_dtype:
            return False
        scalings = layer.scaling
        for name in used:
            adapter = self.adapters.get(name) or self.inexact.get(name)
            if adapter is None:
                if name not in self.unknown or self.unknown[name] != _why_unknown(
                    layer, name, self.base_dtype, self.dtype, self.device
                ):
                    return False
            elif not adapter.is_current(
                a_parts[name]._parameters.get("weight"),
                b_parts[name]._parameters.get("weight"),
                scalings[name],
            ):
                return False
        return True


def names_of(layer: Linear) -> dict[str, nn.Module]:
    """The layer's adapters, known or not, by name; this way of asking costs every call least."""
    parts: dict[str, nn.Module] = layer._modules["lora_A"]._modules
    return parts


def fits_vectors(weight: torch.Tensor, rank: int) -> bool:
    """Whether an `AdapterTable` with the promise `aligned` takes the weight."""
    row_stride = weight.stride(0)
    return (
        weight.data_ptr() % VECTOR_BYTES == 0
        and row_stride * weight.element_size() % VECTOR_BYTES == 0
        and row_stride <= LARGEST_VECTOR_STRIDE
        and rank % (4 if rank <= 16 else 8) == 0
    )


def _tables(adapters: list[Adapter]) -> tuple[AdapterTable, AdapterTable]:
    a, b = adapters[0].read
    ranks = [adapter.read[0].shape[0] for adapter in adapters]
    aligned = all(
        fits_vectors(weight, rank)
        for adapter, rank in zip(adapters, ranks, strict=True)
        for weight in adapter.read
    )

    def table(features: int, layout: str) -> AdapterTable:
        return AdapterTable(
            len(adapters),
            [features],
            max(ranks),
            dtype=DTYPES[a.dtype],
            layout=layout,
            device=a.device,
            aligned=aligned,
        )

    a_table, b_table = table(a.shape[1], "rank_major"), table(b.shape[0], "rank_minor")
    for slot, adapter in enumerate(adapters):
        a_table.set(slot, 0, adapter.read[0])
        b_table.set(slot, 0, adapter.read[1], scale=adapter.scaling)
    return a_table, b_table


def _why_unknown(
    layer: Linear,
    name: str,
    base_dtype: torch.dtype | None,
    dtype: torch.dtype | None,
    device: torch.device | None,
) -> str | None:
    """Why PEFT keeps an adapter of a layer, next to others that kernels read in `dtype`."""
    if name in layer.lora_variant:
        return type(layer.lora_variant[name]).__name__
    a, b, dropout = layer.lora_A[name], layer.lora_B[name], layer.lora_dropout[name]
    if type(a) is not nn.Linear or type(b) is not nn.Linear:
        return f"parts of type {type(a).__name__} and {type(b).__name__}"
    if a.bias is not None or b.bias is not None:
        return "lora_bias"
    if type(dropout) not in (nn.Identity, nn.Dropout):
        return f"dropout of type {type(dropout).__name__}"
    if any(part._forward_hooks or part._forward_pre_hooks for part in (a, b)):
        return "forward hooks on its parts"
    for weight in (a.weight, b.weight):
        reason = why_unknown_weight(weight, base_dtype)
        if reason is not None:
            return reason
    if (b.weight.dtype, b.weight.device) != (a.weight.dtype, a.weight.device):
        return f"weights of {_place(a.weight)} and {_place(b.weight)}"
    if not isinstance(layer.scaling[name], (float, int)):
        return f"scaling of type {type(layer.scaling[name]).__name__}"
    rank = a.weight.shape[0]
    if rank > MAX_LORA_RANK:
        return f"rank {rank}, above {MAX_LORA_RANK}"
    if dtype in (None, dtype_to_read(a.weight, base_dtype)) and device in (None, a.weight.device):
        return None
    return f"weights of {_place(a.weight)} beside {dtype} on {device}"


def _place(weight: torch.Tensor) -> str:
    return f"{weight.dtype} on {weight.device}"
