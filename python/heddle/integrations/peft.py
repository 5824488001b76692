"""PEFT's batches of several adapters, computed by one call of heddle for each linear layer.

PEFT answers `model(..., adapter_names=[...])` with a loop over the adapters in every layer. After
`accelerate(model)` a layer computes `result[t] += scaling * B (A x[t])` for all rows at once, each
with its own adapter, by `heddle.ops.lora_apply` on PEFT's own weights: nothing is copied, so a
weight that is changed in place is seen by the next call.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraModel
from peft.tuners.lora.layer import Linear, LoraLayer
from torch import nn

from heddle._core import MAX_LORA_RANK, AdapterTable
from heddle.ops import lora_apply

BASE = "__base__"
"""PEFT's name for rows without an adapter."""

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
CACHED_BATCHES = 64


def accelerate(model: nn.Module) -> bool:
    """Turns heddle on for the mixed batches of a PEFT model, or off again where it is on.

    What heddle does not know stays with PEFT: layers other than PEFT's `lora.Linear` (embeddings,
    convolutions, quantised layers), adapters with a variant (DoRA, aLoRA and others) or a bias,
    calls that need gradients, autocast, dropout in training mode, other devices and dtypes. A
    warning says so once for each reason.

    Args:
        model: A PeftModel with LoRA adapters, or its LoraModel.

    Returns:
        True if heddle is on after the call, False if the call turned it off.

    Raises:
        TypeError: The model has no LoRA adapters of PEFT.
    """
    lora_model = model.base_model if isinstance(model, PeftModel) else model
    if not isinstance(lora_model, LoraModel):
        raise TypeError(
            f"model is a {type(model).__name__}, expected a PeftModel with LoRA adapters"
        )
    acceleration = lora_model.__dict__.get("inject_adapter")
    if isinstance(acceleration, _Acceleration):
        acceleration.detach()
        return False
    acceleration = _Acceleration(lora_model)
    acceleration.attach()
    acceleration.survey()
    return True


class _Acceleration:
    """What the layers of a model share. Stands in for `inject_adapter`, to learn of new layers."""

    def __init__(self, model: LoraModel) -> None:
        self.model = model
        self.told: set[str] = set()
        self.row_ids: dict[tuple[Any, ...], torch.Tensor | None] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        type(self.model).inject_adapter(self.model, *args, **kwargs)
        self.attach()

    def attach(self) -> None:
        """Makes every layer that heddle knows call it, but for those that do already."""
        self.model.__dict__["inject_adapter"] = self
        for layer in self.model.modules():
            if type(layer) is Linear and "_mixed_batch_forward" not in layer.__dict__:
                layer.__dict__["_mixed_batch_forward"] = _Site(layer, self)

    def detach(self) -> None:
        """Gives the model back as PEFT made it."""
        del self.model.__dict__["inject_adapter"]
        for layer in self.model.modules():
            if isinstance(layer.__dict__.get("_mixed_batch_forward"), _Site):
                del layer.__dict__["_mixed_batch_forward"]

    def survey(self) -> None:
        """Tells in one warning what stays with PEFT whatever the call is."""
        reasons: Counter[str] = Counter()
        for layer in self.model.modules():
            if not isinstance(layer, LoraLayer):
                continue
            site = layer.__dict__.get("_mixed_batch_forward")
            if isinstance(site, _Site):
                site.rebuild()
                reasons.update(site.unknown.values())
            else:
                reasons[f"layers of type lora.{type(layer).__name__}"] += 1
        self.told.update(reasons)
        if reasons:
            parts = [f"{reason} ({count} layers)" for reason, count in sorted(reasons.items())]
            _warn("; ".join(parts))

    def tell(self, reason: str) -> None:
        """Warns of a reason the first time it comes up."""
        if reason not in self.told:
            self.told.add(reason)
            _warn(reason)

    def ids(
        self, names: tuple[str, ...], rows_per_name: int, slots: tuple[str, ...]
    ) -> torch.Tensor | None:
        """The slot of every row, [len(names) * rows_per_name] i32; nothing if no row has one.

        The layers of a forward pass that hold the same adapters share it, and so do the steps of
        a decode.
        """
        key = (names, rows_per_name, slots)
        if key not in self.row_ids:
            if len(self.row_ids) >= CACHED_BATCHES:
                self.row_ids.clear()
            slot_of = {name: slot for slot, name in enumerate(slots)}
            ids = torch.tensor([slot_of.get(name, -1) for name in names], dtype=torch.int32)
            self.row_ids[key] = (
                ids.repeat_interleave(rows_per_name) if bool((ids >= 0).any()) else None
            )
        return self.row_ids[key]


@dataclass(frozen=True)
class _Adapter:
    """An adapter's weights in one layer, as the tables hold them."""

    a: nn.Parameter  # [rank, in_features]
    b: nn.Parameter  # [out_features, rank]
    # The same memory, kept so that no new weight can come to lie at its address.
    held: tuple[torch.Tensor, torch.Tensor]
    dropout: nn.Module
    scaling: float

    def is_current(self, layer: LoraLayer, name: str) -> bool:
        """Whether the layer still has these weights at these addresses, whatever they hold."""
        a = layer.lora_A._modules[name]._parameters.get("weight")
        b = layer.lora_B._modules[name]._parameters.get("weight")
        held_a, held_b = self.held
        return (
            a is self.a
            and b is self.b
            and a.data_ptr() == held_a.data_ptr()
            and b.data_ptr() == held_b.data_ptr()
            and a.shape == held_a.shape
            and b.shape == held_b.shape
            and layer.scaling[name] == self.scaling
        )


class _Site:
    """Stands in for `_mixed_batch_forward` of one layer."""

    def __init__(self, layer: Linear, acceleration: _Acceleration) -> None:
        self.layer = layer
        self.acceleration = acceleration
        self._forget()

    def _forget(self) -> None:
        self.adapters: dict[str, _Adapter] = {}  # in the order of their slots
        self.unknown: dict[str, str] = {}  # adapter -> why PEFT keeps it
        self.slots: tuple[str, ...] = ()
        self.tables: tuple[AdapterTable, AdapterTable] | None = None  # A, B

    def __getstate__(self) -> dict[str, Any]:
        # Tables hold addresses; a copy of the model makes its own.
        return {"layer": self.layer, "acceleration": self.acceleration}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.layer, self.acceleration = state["layer"], state["acceleration"]
        self._forget()

    def __call__(
        self, x: torch.Tensor, *args: Any, adapter_names: list[str], **kwargs: Any
    ) -> torch.Tensor:
        """See LoraLayer._mixed_batch_forward."""
        if torch.compiler.is_compiling():
            return LoraLayer._mixed_batch_forward(
                self.layer, x, *args, adapter_names=adapter_names, **kwargs
            )
        names = tuple(adapter_names)
        used = {name for name in names if name in self.layer.lora_A._modules}
        reason = self._refresh(used) or self._unfit(x, used)
        if reason is not None:
            self.acceleration.tell(reason)
            return LoraLayer._mixed_batch_forward(
                self.layer, x, *args, adapter_names=adapter_names, **kwargs
            )
        kwargs.pop("alora_offsets", None)  # for a variant that this call does not use
        result: torch.Tensor = self.layer.base_layer(x, *args, **kwargs)
        if not used or result.numel() == 0:
            return result
        result = result.contiguous()
        y, rows = result.view(-1, result.shape[-1]), x.reshape(-1, x.shape[-1])
        ids = self.acceleration.ids(names, rows.shape[0] // len(names), self.slots)
        if ids is not None and self.tables is not None:
            lora_apply([y], rows, *self.tables, slot_ids=ids)
        return result

    def _refresh(self, used: set[str]) -> str | None:
        """Makes the tables agree with the layer. Says which adapter leaves the call to PEFT."""
        layer, adapters = self.layer, self.adapters
        if len(adapters) + len(self.unknown) != len(layer.lora_A._modules) or not all(
            name in adapters and adapters[name].is_current(layer, name) for name in used
        ):
            self.rebuild()
        for name in used:
            if name in self.unknown:
                return self.unknown[name]
        return None

    def rebuild(self) -> None:
        """Puts the layer's adapters into new tables."""
        layer = self.layer
        self._forget()
        dtype: torch.dtype | None = None
        for name in layer.lora_A:
            reason = _why_unknown(layer, name, dtype)
            if reason is not None:
                self.unknown[name] = f"adapter {name!r} ({reason})"
                continue
            a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
            dtype = a.dtype
            held = (a.detach(), b.detach())
            self.adapters[name] = _Adapter(
                a, b, held, layer.lora_dropout[name], layer.scaling[name]
            )
        if dtype is None:
            return
        self.slots = tuple(self.adapters)
        held_pairs = [adapter.held for adapter in self.adapters.values()]
        max_rank = max(a.shape[0] for a, _ in held_pairs)
        in_features, out_features = held_pairs[0][0].shape[1], held_pairs[0][1].shape[0]
        num, name = len(held_pairs), DTYPES[dtype]
        a_table = AdapterTable(num, [in_features], max_rank, dtype=name, layout="rank_major")
        b_table = AdapterTable(num, [out_features], max_rank, dtype=name, layout="rank_minor")
        for slot, adapter in enumerate(self.adapters.values()):
            a_table.set(slot, 0, adapter.held[0])
            b_table.set(slot, 0, adapter.held[1], scale=adapter.scaling)
        self.tables = (a_table, b_table)

    def _unfit(self, x: torch.Tensor, used: set[str]) -> str | None:
        """Why this call, whose adapters heddle knows, stays with PEFT."""
        if type(x) is not torch.Tensor or x.device.type != "cpu":
            return f"inputs of type {type(x).__name__} on {x.device.type}"
        if torch.is_autocast_enabled("cpu"):
            return "calls under autocast"
        for name in used:
            adapter = self.adapters[name]
            # PEFT rounds x to the weights' dtype; heddle multiplies what it is given.
            if x.dtype not in DTYPES or adapter.a.dtype not in (x.dtype, torch.float32):
                return f"inputs of {x.dtype} with weights of {adapter.a.dtype}"
            if adapter.dropout.training and type(adapter.dropout) is not nn.Identity:
                return "dropout in training mode"
            if torch.is_grad_enabled() and (adapter.a.requires_grad or adapter.b.requires_grad):
                return "calls that need gradients"
        if torch.is_grad_enabled() and (
            x.requires_grad or any(p.requires_grad for p in self.layer.base_layer.parameters())
        ):
            return "calls that need gradients"
        return None


def _why_unknown(layer: Linear, name: str, dtype: torch.dtype | None) -> str | None:
    """Why PEFT keeps an adapter of a layer. dtype: that of the adapters before it."""
    if name in layer.lora_variant:
        return type(layer.lora_variant[name]).__name__
    a, b = layer.lora_A[name], layer.lora_B[name]
    if type(a) is not nn.Linear or type(b) is not nn.Linear:
        return f"parts of type {type(a).__name__} and {type(b).__name__}"
    if a.bias is not None or b.bias is not None:
        return "lora_bias"
    if type(layer.lora_dropout[name]) not in (nn.Identity, nn.Dropout):
        return f"dropout of type {type(layer.lora_dropout[name]).__name__}"
    if any(part._forward_hooks or part._forward_pre_hooks for part in (a, b)):
        return "forward hooks on its parts"
    for weight in (a.weight, b.weight):
        if (
            type(weight) is not nn.Parameter
            or weight.device.type != "cpu"
            or weight.dtype not in DTYPES
        ):
            return (
                f"weights of type {type(weight).__name__}, {weight.dtype} on {weight.device.type}"
            )
        if weight.dtype != (dtype or a.weight.dtype):
            return f"weights of {weight.dtype} beside {dtype or a.weight.dtype}"
        if not weight.is_contiguous():
            return "weights with gaps"
    rank = a.weight.shape[0]
    return f"rank {rank}, above {MAX_LORA_RANK}" if rank > MAX_LORA_RANK else None


def _warn(what: str) -> None:
    warnings.warn(f"heddle leaves to PEFT: {what}", stacklevel=3)
