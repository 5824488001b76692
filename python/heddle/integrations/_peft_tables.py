"""The LoRA weights of one of PEFT's linear layers, as the tables that heddle's kernels read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from peft.tuners.lora.layer import Linear
from torch import nn

from heddle._core import MAX_LORA_RANK, AdapterTable, has_cuda

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
# Of weights, by the type of their device.
KERNEL_DTYPES = {"cpu": tuple(DTYPES), "cuda": (torch.float16, torch.bfloat16)}

VECTOR_BYTES = 16
LARGEST_VECTOR_STRIDE = 2**22  # elements

Memory = tuple[int, torch.Size, tuple[int, ...], torch.dtype]


@dataclass(frozen=True)
class Adapter:
    """An adapter's weights in one layer, as the tables hold them."""

    a: nn.Parameter  # [rank, in_features]
    b: nn.Parameter  # [out_features, rank]
    # The same memory, kept so that no new weight can come to lie at its address.
    held: tuple[torch.Tensor, torch.Tensor]
    memory: tuple[Memory, Memory]
    dropout: nn.Dropout | None
    scaling: float

    @staticmethod
    def of(layer: Linear, name: str) -> Adapter:
        """As the layer has it now."""
        a, b, dropout = layer.lora_A[name].weight, layer.lora_B[name].weight, layer.lora_dropout
        return Adapter(
            a,
            b,
            (a.detach(), b.detach()),
            (memory_of(a), memory_of(b)),
            None if type(dropout[name]) is nn.Identity else dropout[name],
            layer.scaling[name],
        )

    def is_current(self, a: torch.Tensor | None, b: torch.Tensor | None, scaling: float) -> bool:
        """Whether these are the weights, at the same addresses, whatever they hold."""
        return (
            a is self.a
            and b is self.b
            and scaling == self.scaling
            and memory_of(a) == self.memory[0]
            and memory_of(b) == self.memory[1]
        )


@dataclass(frozen=True)
class LayerTables:
    """The adapters of a layer: those that heddle computes, and those that it leaves to PEFT.

    Never changed, so that calls of several threads may use it: a layer that changed gets another.
    """

    adapters: dict[str, Adapter]  # in the order of their slots
    unknown: dict[str, str]  # adapter -> why PEFT keeps it
    # Those of all adapters; nothing if none is known.
    dtype: torch.dtype | None
    device: torch.device | None
    tables: tuple[AdapterTable, AdapterTable] | None  # A, B
    slots: tuple[str, ...]
    ranks: tuple[int, ...]

    @staticmethod
    def of(layer: Linear) -> LayerTables:
        """As the layer is now."""
        own = {name: _why_unknown(layer, name) for name in layer.lora_A}
        first = next((name for name, reason in own.items() if reason is None), None)
        if first is None:
            unknown = {name: reason for name, reason in own.items() if reason is not None}
            return LayerTables({}, unknown, None, None, None, (), ())
        weight = layer.lora_A[first].weight
        adapters, unknown = {}, {}
        for name, reason in own.items():
            reason = reason or _why_apart(layer, name, weight.dtype, weight.device)
            if reason is None:
                adapters[name] = Adapter.of(layer, name)
            else:
                unknown[name] = reason
        return LayerTables(
            adapters,
            unknown,
            weight.dtype,
            weight.device,
            _tables(list(adapters.values()), weight.dtype, weight.device),
            tuple(adapters),
            tuple(adapter.held[0].shape[0] for adapter in adapters.values()),
        )

    def is_current(self, layer: Linear, used: Iterable[str]) -> bool:
        """Whether the layer still has these adapters, and those in use where they were."""
        a_parts, b_parts = names_of(layer), layer._modules["lora_B"]._modules
        if len(self.adapters) + len(self.unknown) != len(a_parts):
            return False
        scalings = layer.scaling
        for name in used:
            adapter = self.adapters.get(name)
            if adapter is None:
                if name not in self.unknown or self.unknown[name] != self._why(layer, name):
                    return False
            elif not adapter.is_current(
                a_parts[name]._parameters.get("weight"),
                b_parts[name]._parameters.get("weight"),
                scalings[name],
            ):
                return False
        return True

    def _why(self, layer: Linear, name: str) -> str | None:
        reason = _why_unknown(layer, name)
        if reason is None and self.dtype is not None and self.device is not None:
            reason = _why_apart(layer, name, self.dtype, self.device)
        return reason


def names_of(layer: Linear) -> dict[str, nn.Module]:
    """The layer's adapters, known or not, by name; this way of asking costs every call least."""
    parts: dict[str, nn.Module] = layer._modules["lora_A"]._modules
    return parts


def memory_of(weight: torch.Tensor) -> Memory:
    """Where a weight lies, and how."""
    return weight.data_ptr(), weight.shape, weight.stride(), weight.dtype


def fits_vectors(weight: torch.Tensor, rank: int) -> bool:
    """Whether an `AdapterTable` with the promise `aligned` takes the weight."""
    row_stride = weight.stride(0)
    return (
        weight.data_ptr() % VECTOR_BYTES == 0
        and row_stride * weight.element_size() % VECTOR_BYTES == 0
        and row_stride <= LARGEST_VECTOR_STRIDE
        and rank % (4 if rank <= 16 else 8) == 0
    )


def _tables(
    adapters: list[Adapter], dtype: torch.dtype, device: torch.device
) -> tuple[AdapterTable, AdapterTable]:
    a, b = adapters[0].held
    ranks = [adapter.held[0].shape[0] for adapter in adapters]
    aligned = all(
        fits_vectors(weight, rank)
        for adapter, rank in zip(adapters, ranks, strict=True)
        for weight in adapter.held
    )

    def table(features: int, layout: str) -> AdapterTable:
        return AdapterTable(
            len(adapters),
            [features],
            max(ranks),
            dtype=DTYPES[dtype],
            layout=layout,
            device=device,
            aligned=aligned,
        )

    a_table, b_table = table(a.shape[1], "rank_major"), table(b.shape[0], "rank_minor")
    for slot, adapter in enumerate(adapters):
        a_table.set(slot, 0, adapter.held[0])
        b_table.set(slot, 0, adapter.held[1], scale=adapter.scaling)
    return a_table, b_table


def _why_unknown(layer: Linear, name: str) -> str | None:
    """Why PEFT keeps an adapter of a layer, whatever the others are."""
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
        reason = _why_unknown_weight(weight)
        if reason is not None:
            return reason
    if (b.weight.dtype, b.weight.device) != (a.weight.dtype, a.weight.device):
        return f"weights of {_place(a.weight)} and {_place(b.weight)}"
    rank = a.weight.shape[0]
    return f"rank {rank}, above {MAX_LORA_RANK}" if rank > MAX_LORA_RANK else None


def _why_unknown_weight(weight: torch.Tensor) -> str | None:
    if type(weight) is not nn.Parameter:
        return f"weights of type {type(weight).__name__}"
    reason = why_no_kernel(weight.dtype, weight.device.type)
    return reason if reason or weight.is_contiguous() else "weights with gaps"


def why_no_kernel(dtype: torch.dtype, device_type: str) -> str | None:
    """Why heddle computes nothing with such weights."""
    if device_type not in KERNEL_DTYPES:
        return f"weights on {device_type}"
    if device_type == "cuda" and not has_cuda():
        return "weights on cuda, but heddle was built without CUDA"
    dtypes = KERNEL_DTYPES[device_type]
    if dtype in dtypes:
        return None
    taken = " and ".join(DTYPES[each] for each in dtypes)
    return f"weights of {dtype} on {device_type}, where heddle takes {taken}"


def _why_apart(layer: Linear, name: str, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why an adapter cannot be in the tables of others."""
    weight = layer.lora_A[name].weight
    if weight.dtype == dtype and weight.device == device:
        return None
    return f"weights of {_place(weight)} beside {dtype} on {device}"


def _place(weight: torch.Tensor) -> str:
    return f"{weight.dtype} on {weight.device}"
