"""Linear layers with weights in f16, bf16 or quantised blocks, and adapters of each row inside."""

from __future__ import annotations

from heddle._arguments import LoraBatch
from heddle._core import AdapterTable, PackedWeight
from heddle._operation import Array, operation

__all__ = ["linear_site"]


@operation(mutates=["y"], traceable=False)
def linear_site(
    y: list[Array],
    x: Array,
    weight: list[Array | PackedWeight],
    *,
    bias: list[Array] | None = None,
    path: str = "decode",
    a: AdapterTable | None = None,
    b: AdapterTable | None = None,
    batch: LoraBatch | None = None,
) -> None:
    """`y[s][t] = W_s x[t] + bias_s + row_scale[t] * scale * B_s A_s x[t]`, all slices at once.

    For layers that share their input, as q, k and v do. Sums are f32, and `y` is rounded once: the
    bits of the product in f32, of `lora_apply` to it, and of a rounding. A row's bits depend on
    neither the other rows of the batch nor the adapters that are loaded.

    Args:
        y: A list with the result of each slice, [num_tokens, out_features] of the dtype of `x`, or
            all f32, written; a column range of a fused product is a view of it.
        x: [num_tokens, in_features] f16|bf16; on a GPU at most 65536 rows.
        weight: A list with the weight of each slice: [out_features, in_features] of the dtype of
            `x`, or a `heddle.PackedWeight` of quantised blocks on the device of `x`, whose values
            are exact; with "prompt" a GPU rounds them to the dtype of `x`.
        bias: A list with the bias of each slice, [out_features] of the dtype of `x`; None: none.
        path: "decode": for few rows, weights are streamed once for 128 of them, packed ones for 32;
            "prompt": for many rows, a tiled product.
        a: The A weights of all adapters and slices, of the dtype of `x`.
        b: The B weights; each has the scale given to `AdapterTable.set`.
        batch: The slot of each row, by ids, segments or pairs. With `a` and `b`, or none of them.

    Raises:
        ValueError: Shapes or devices that disagree, some of `a`, `b` and `batch` given, an unknown
            path, a `PackedWeight` without blocks.
        NotImplementedError: Another dtype or device.

    Source: Hu et al. 2021, arXiv 2106.09685.
    """
