"""Products with packed weights, dense or quantised in the block formats of GGUF."""

from __future__ import annotations

from typing import overload

from heddle._core import PackedWeight
from heddle._operation import Array, operation

__all__ = ["dequantize", "linear"]


@overload
def linear(y: Array, x: Array, weight: PackedWeight) -> None: ...
@overload
def linear(y: list[Array], x: Array, weight: list[PackedWeight]) -> None: ...
@operation(mutates=["y"], traceable=False)
def linear(y: Array | list[Array], x: Array, weight: PackedWeight | list[PackedWeight]) -> None:
    """`y[t][o] = sum_k W[o][k] x[t][k]`, k ascending, one fused multiply-add each, from zero.

    W holds the exact f32 values of the stored weight, so `y` has the bits of that loop over the
    dequantised matrix, for any number of rows and threads.

    Each fused multiply-add is rounded to f32 once.

    Args:
        y: [num_tokens, out_features] f32, written; or a list of them, one for each weight: the same
            bits as one call after the other, in one parallel section.
        x: [num_tokens, in_features] f32; last axes without gaps, rows of any stride.
        weight: A `heddle.PackedWeight` in host memory, or a list of them.

    Raises:
        ValueError: Shapes or devices that disagree.
        NotImplementedError: Another dtype or device.

    Source: the stored formats are ggml's; the one order of sums is heddle's own (docs/numerics.md).
    """


@operation(mutates=["out"])
def dequantize(out: Array, type: str, stored: Array) -> None:
    """`out[i]` = the f32 value of weight i of stored rows, exact to the format's definition.

    Args:
        out: [num_weights] f32, written.
        type: "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K" or
            "Q6_K".
        stored: u8 array of the bytes as a GGUF file holds them, without gaps.

    Raises:
        ValueError: A number of bytes that `out` does not fit, an unknown type.
        NotImplementedError: Another dtype or device.

    Source: ggml, whose block formats GGUF files hold.
    """
