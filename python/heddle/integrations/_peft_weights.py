"""An adapter's weights in one of PEFT's linear layers, in a dtype that heddle's kernels read.

PEFT loads adapters in f32, those of 16-bit files, too. heddle's kernels on a GPU read 16 bits, and
so they read copies of such weights there, in the dtype of the base layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from peft.tuners.lora.layer import Linear
from torch import nn

from heddle._core import has_cuda

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
# Of weights, by the type of their device.
KERNEL_DTYPES = {"cpu": tuple(DTYPES), "cuda": (torch.float16, torch.bfloat16)}

Memory = tuple[int, torch.Size, tuple[int, ...], torch.dtype]


class Terms(NamedTuple):
    """What copies depend on besides the weights; other terms need other copies."""

    round_weights: bool = False  # to what a dtype of 16 bits holds
    times_given_out: int = 0  # to what may write without torch's counting it


@dataclass(frozen=True)
class Adapter:
    """An adapter's weights in one layer, as the tables hold them."""

    a: nn.Parameter  # [rank, in_features]
    b: nn.Parameter  # [out_features, rank]
    # The same memory, kept so that no new weight can come to lie at its address.
    held: tuple[torch.Tensor, torch.Tensor]
    memory: tuple[Memory, Memory]
    # What kernels read: `held`, or copies of it, and then which changes of a and b they hold.
    read: tuple[torch.Tensor, torch.Tensor]
    versions: tuple[int, int] | None
    dropout: nn.Dropout | None
    scaling: float

    @staticmethod
    def of(layer: Linear, name: str, dtype: torch.dtype) -> Adapter:
        """As the layer has it now, with copies where its weights are not of `dtype`."""
        a, b, dropout = layer.lora_A[name].weight, layer.lora_B[name].weight, layer.lora_dropout
        held = (a.detach(), b.detach())
        # Asked for before the copies are made: what changes meanwhile is seen by the next call.
        versions = None if a.dtype == dtype else (a._version, b._version)
        return Adapter(
            a,
            b,
            held,
            (memory_of(a), memory_of(b)),
            (held[0].to(dtype), held[1].to(dtype)),
            versions,
            None if type(dropout[name]) is nn.Identity else dropout[name],
            layer.scaling[name],
        )

    def without_copies(self) -> Adapter:
        """For one that is left to PEFT."""
        return replace(self, read=self.held)

    def is_current(self, a: torch.Tensor | None, b: torch.Tensor | None, scaling: float) -> bool:
        """Whether these are the weights, at the same addresses, and copies hold what they hold."""
        return (
            a is self.a
            and b is self.b
            and scaling == self.scaling
            and memory_of(a) == self.memory[0]
            and memory_of(b) == self.memory[1]
            and (self.versions is None or self.versions == (a._version, b._version))
        )


def why_not_held(adapters: dict[str, Adapter], *, round_weights: bool) -> dict[str, str]:
    """Of the adapters with copies, those whose copies must not be used -> why.

    round_weights: whether copies may differ by a rounding. Waits for the device, once for all.
    """
    copied = [name for name, adapter in adapters.items() if adapter.versions is not None]
    if not copied:
        return {}
    wrong = torch.stack([_is_wrong(adapters[name], round_weights) for name in copied])
    reasons = {}
    for name, is_wrong in zip(copied, wrong.tolist(), strict=True):
        dtype = DTYPES[adapters[name].read[0].dtype]
        if is_wrong and round_weights:
            reasons[name] = f"f32 weights too large for {dtype}"
        elif is_wrong:
            reasons[name] = (
                f"f32 weights that {dtype} does not hold exactly; "
                "accelerate(model, round_weights=True) rounds them"
            )
    return reasons


def _is_wrong(adapter: Adapter, round_weights: bool) -> torch.Tensor:
    """Whether copies differ from their weights; where rounded, whether they got infinite. []"""
    wrong = [
        (copy.isinf() & weight.isfinite()).any() if round_weights else (copy != weight).any()
        for copy, weight in zip(adapter.read, adapter.held, strict=True)
    ]
    return wrong[0] | wrong[1]


def memory_of(weight: torch.Tensor) -> Memory:
    """Where a weight lies, and how."""
    return weight.data_ptr(), weight.shape, weight.stride(), weight.dtype


def base_dtype_of(layer: Linear) -> torch.dtype | None:
    """Of the base layer's weight, which is that of the layer's inputs, too."""
    weight = layer._modules["base_layer"]._parameters.get("weight")
    return None if weight is None else weight.dtype


def dtype_to_read(weight: torch.Tensor, base_dtype: torch.dtype | None) -> torch.dtype:
    """In which heddle's kernels read a weight, if they do: its own, or that of copies."""
    taken = KERNEL_DTYPES.get(weight.device.type, ())
    if weight.dtype == torch.float32 and torch.float32 not in taken and base_dtype in taken:
        return base_dtype
    return weight.dtype


def why_unknown_weight(weight: torch.Tensor, base_dtype: torch.dtype | None) -> str | None:
    """Why PEFT keeps an adapter with such a weight, whatever it holds."""
    if type(weight) is not nn.Parameter:
        return f"weights of type {type(weight).__name__}"
    dtype = dtype_to_read(weight, base_dtype)
    reason = why_no_kernel(dtype, weight.device.type)
    if reason is not None:
        return reason
    if not weight.is_contiguous():
        return "weights with gaps"
    if dtype != weight.dtype and weight.is_inference():
        return "f32 weights made in inference mode, whose changes torch does not count"
    return None


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
