"""PEFT's batches of several adapters, computed by one call of heddle for each linear layer.

PEFT answers `model(..., adapter_names=[...])` with a loop over the adapters in every layer. After
`accelerate(model)` a layer computes `result[t] += scaling * B (A x[t])` for all rows at once, each
with its own adapter, by `heddle.ops.lora_apply` on PEFT's own weights, so that a weight that is
changed in place is seen by the next call. Of f32 weights with a base layer of 16 bits on a GPU it
reads copies of 16 bits, and makes them anew where the weights changed. `restore(model)` takes it out
again.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraModel
from peft.tuners.lora.layer import Linear, LoraLayer
from torch import nn

from heddle.integrations._peft_batches import Batches
from heddle.integrations._peft_tables import LayerTables, names_of
from heddle.integrations._peft_weights import DTYPES, Adapter, Terms
from heddle.integrations._streams import (
    is_capturing,
    is_gpu,
    refuse_while_capturing,
    wait_for_all,
    wait_for_stream,
)
from heddle.ops import lora_apply

__all__ = ["Acceleration", "accelerate", "restore"]


def accelerate(model: nn.Module, *, round_weights: bool = False) -> Acceleration:
    """Makes heddle compute the mixed batches of a PEFT model, on the CPU and on GPUs.

    A second call changes nothing, but for layers that are new to heddle, and for another
    `round_weights`, which it applies. What heddle does not know stays with PEFT: layers other than
    PEFT's `lora.Linear` (embeddings, convolutions, quantised layers), adapters with a variant (DoRA,
    aLoRA and others) or a bias, calls that need gradients, autocast, dropout in training mode, other
    devices and dtypes. A warning says so once for each reason, and the result lists all of them.

    Args:
        model: A PeftModel with LoRA adapters, or its LoraModel.
        round_weights: What to do with adapters in f32 with base layers in f16 or bf16 on a GPU,
            where heddle reads copies in that dtype. If it holds all weights of an adapter in a
            layer exactly, as after PEFT has loaded a file of 16 bits, this changes nothing.
            Otherwise False leaves the adapter to PEFT there, and True rounds the copies to the
            nearest value, ties to even; PEFT's own weights stay as they are.

    Returns:
        What heddle does for the model and what it leaves to PEFT, always the same object of it.

    Raises:
        TypeError: The model has no LoRA adapters of PEFT.
    """
    lora_model = _lora_model(model)
    acceleration = _acceleration_of(lora_model) or Acceleration(lora_model)
    acceleration._terms = acceleration._terms._replace(round_weights=round_weights)
    acceleration._attach()
    acceleration._survey()
    return acceleration


def restore(model: nn.Module) -> bool:
    """Gives the model back as PEFT made it. A model that is not accelerated stays as it is.

    Args:
        model: A PeftModel with LoRA adapters, or its LoraModel.

    Returns:
        Whether the model was accelerated.

    Raises:
        TypeError: The model has no LoRA adapters of PEFT.
    """
    acceleration = _acceleration_of(_lora_model(model))
    if acceleration is None:
        return False
    acceleration._detach()
    return True


class Acceleration:
    """What heddle does for a model, and what it leaves to PEFT; `print` shows it as a sentence.

    Its properties are of the moment when they are read.
    """

    # Stands in for the model's `inject_adapter`, to learn of new layers, and for its `state_dict`.

    def __init__(self, model: LoraModel) -> None:
        self._model = model
        self._terms = Terms()
        self._forget()

    def _forget(self) -> None:
        self._told: set[str] = set()
        self._batches = Batches()
        # What graphs that were captured read: it lives as long as the acceleration.
        self._captured: dict[int, object] = {}

    @property
    def num_layers(self) -> int:
        """Layers in which heddle computes adapters."""
        return sum(bool(site.current_tables().adapters) for site in self._sites())

    @property
    def left_to_peft(self) -> dict[str, int]:
        """Why PEFT computes something -> the number of layers in which it does.

        Layers and adapters that heddle does not know, and calls since `accelerate` that it left.
        """
        reasons: Counter[str] = Counter()
        for layer in self._model.modules():
            if not isinstance(layer, LoraLayer):
                continue
            site = _site_of(layer)
            if site is not None:
                unknown = site.current_tables().unknown
                reasons.update({_of_adapter(*adapter) for adapter in unknown.items()} | site.left)
            elif type(layer) is Linear:
                reasons["layers that are not accelerated"] += 1
            else:
                reasons[f"layers of type lora.{type(layer).__name__}"] += 1
        return dict(sorted(reasons.items()))

    def __str__(self) -> str:
        """One sentence."""
        text = f"heddle computes the mixed batches of {self.num_layers} layers"
        left = self.left_to_peft
        return f"{text}; left to PEFT: {_listed(left)}" if left else text

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the model learns all else anew.
        return {"model": self._model, "terms": self._terms}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._model, self._terms = state["model"], state["terms"]
        self._forget()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """See LoraModel.inject_adapter."""
        type(self._model).inject_adapter(self._model, *args, **kwargs)
        self._attach()

    def _state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """See Module.state_dict.

        PEFT's hotswap_adapter reads it and then writes through `.data`, which leaves no trace.
        """
        given_out = self._terms.times_given_out + 1
        self._terms = self._terms._replace(times_given_out=given_out)
        return type(self._model).state_dict(self._model, *args, **kwargs)

    def _sites(self) -> list[_Site]:
        sites = (_site_of(layer) for layer in self._model.modules())
        return [site for site in sites if site is not None]

    def _attach(self) -> None:
        """Makes every layer that heddle knows call it, but for those that do already."""
        self._model.__dict__["inject_adapter"] = self
        self._model.__dict__.setdefault("state_dict", self._state_dict)
        for layer in self._model.modules():
            if type(layer) is Linear and "_mixed_batch_forward" not in layer.__dict__:
                layer.__dict__["_mixed_batch_forward"] = _Site(layer, self)

    def _detach(self) -> None:
        own = self._model.__dict__
        del own["inject_adapter"]
        if own.get("state_dict") == self._state_dict:
            del own["state_dict"]
        sites = self._sites()
        for device in {site.tables.device for site in sites if site.tables is not None}:
            wait_for_all(device)
        for site in sites:
            del site.layer.__dict__["_mixed_batch_forward"]
        self._forget()

    def _survey(self) -> None:
        """Tells in one warning what stays with PEFT whatever the call is."""
        new = {why: n for why, n in self.left_to_peft.items() if why not in self._told}
        self._told.update(new)
        if new:
            _warn(_listed(new))

    def _tell(self, reason: str) -> None:
        """Warns of a reason the first time it comes up."""
        if reason not in self._told:
            self._told.add(reason)
            _warn(reason)


class _Site:
    """Stands in for `_mixed_batch_forward` of one layer."""

    def __init__(self, layer: Linear, acceleration: Acceleration) -> None:
        self.layer = layer
        self.acceleration = acceleration
        self._forget()

    def _forget(self) -> None:
        self.tables: LayerTables | None = None
        self.left: set[str] = set()  # why calls were left to PEFT

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
        used = names_of(self.layer).keys() & names
        tables = self.current_tables(used)
        reason = self._why_left(tables, x, used)
        if reason is not None:
            self.acceleration._tell(reason)
            return LoraLayer._mixed_batch_forward(
                self.layer, x, *args, adapter_names=adapter_names, **kwargs
            )
        kwargs.pop("alora_offsets", None)  # for a variant that this call does not use
        result: torch.Tensor = self.layer.base_layer(x, *args, **kwargs)
        if used and result.numel() > 0:
            result = result.contiguous()
            self._add(result.view(-1, result.shape[-1]), x.reshape(-1, x.shape[-1]), names, tables)
        return result

    def _add(
        self, y: torch.Tensor, x: torch.Tensor, names: tuple[str, ...], tables: LayerTables
    ) -> None:
        """y += what the adapters add; of `names` each is that of as many rows as all others."""
        assert tables.tables is not None
        if x.stride(-1) != 1:
            x = x.contiguous()
        rows = self.acceleration._batches.rows(names, len(x) // len(names), tables)
        lora_apply([y], x, *tables.tables, rows.batch)
        if x.is_cuda and is_capturing():
            self.acceleration._captured.update({id(part): part for part in (tables, rows)})

    def current_tables(self, used: set[str] | None = None) -> LayerTables:
        """The layer's tables, made anew where the layer changed. used: None means all adapters."""
        tables, layer = self.tables, self.layer
        if used is None:
            used = set(names_of(layer))
        terms = self.acceleration._terms
        if tables is None or not tables.is_current(layer, used, terms):
            refuse_while_capturing("the adapters of a layer as they are now")
            wait_for_all(tables.device if tables is not None else None)
            tables = LayerTables.of(layer, terms)
            wait_for_stream(tables.device)
            self.tables = tables
        return tables

    def _why_left(self, tables: LayerTables, x: torch.Tensor, used: set[str]) -> str | None:
        """Why this call stays with PEFT; the account gets to know."""
        if not used:
            return None  # the base layer is all of it
        for name in used:
            if name in tables.unknown:
                return _of_adapter(name, tables.unknown[name])
        reason = self._why_unfit(tables, x, [tables.adapters[name] for name in used])
        if reason is not None:
            self.left.add(reason)
        return reason

    def _why_unfit(
        self, tables: LayerTables, x: torch.Tensor, adapters: list[Adapter]
    ) -> str | None:
        """Why PEFT computes these adapters for these inputs now."""
        if type(x) is not torch.Tensor:
            return f"inputs of type {type(x).__name__}"
        if x.device != tables.device:
            return f"inputs on {x.device} with weights on {tables.device}"
        if torch.is_autocast_enabled(x.device.type):
            return "calls under autocast"
        # PEFT rounds x to the weights' dtype; heddle multiplies what it is given.
        takes_all = tables.dtype == torch.float32 and not is_gpu(x.device)
        if x.dtype != tables.dtype and not (takes_all and x.dtype in DTYPES):
            return f"inputs of {x.dtype} with weights of {tables.dtype}"
        if any(a.dropout is not None and a.dropout.training for a in adapters):
            return "dropout in training mode"
        if torch.is_grad_enabled() and (
            x.requires_grad
            or any(adapter.a.requires_grad or adapter.b.requires_grad for adapter in adapters)
            or any(weight.requires_grad for weight in self.layer.base_layer.parameters())
        ):
            return "calls that need gradients"
        return None


def _lora_model(model: nn.Module) -> LoraModel:
    lora_model = model.base_model if isinstance(model, PeftModel) else model
    if not isinstance(lora_model, LoraModel):
        raise TypeError(
            f"model is a {type(model).__name__}, expected a PeftModel with LoRA adapters"
        )
    return lora_model


def _acceleration_of(model: LoraModel) -> Acceleration | None:
    found = model.__dict__.get("inject_adapter")
    return found if isinstance(found, Acceleration) else None


def _site_of(layer: nn.Module) -> _Site | None:
    found = layer.__dict__.get("_mixed_batch_forward")
    return found if isinstance(found, _Site) else None


def _of_adapter(name: str, reason: str) -> str:
    return f"adapter {name!r} ({reason})"


def _listed(reasons: dict[str, int]) -> str:
    return "; ".join(f"{reason} ({num} layers)" for reason, num in reasons.items())


def _warn(what: str) -> None:
    warnings.warn(f"heddle leaves to PEFT: {what}", stacklevel=4)
