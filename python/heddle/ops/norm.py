"""Root mean square layer normalisation."""

from __future__ import annotations

from heddle._operation import Array, operation

__all__ = ["fused_add_rms_norm", "rms_norm"]


@operation(mutates=["output", "row_scales"])
def rms_norm(
    output: Array,
    input: Array,
    weight: Array,
    *,
    epsilon: float = 1e-6,
    weight_offset: int = 0,
    output_scale: Array | None = None,
    row_scales: Array | None = None,
) -> None:
    """`output = input * rstd * (weight_offset + weight)`, over the last axis.

    `rstd = 1 / sqrt(mean(input^2) + epsilon)`. Sums in f32, one rounding at the end. The bits of a
    row depend on that row and the weight alone.

    An output of float8_e4m3fn is `e4m3(v * (1 / scale))` with `v` the value above in f32; what is
    larger than 448 becomes 448. The scale is `output_scale`, or of each row `max(max|v| / 448,
    2**-126)`, which goes to `row_scales`.

    Args:
        output: [..., width], dtype of `input` or float8_e4m3fn, written; may be `input` itself.
        input: [..., width] f32|f16|bf16; the last axis without gaps, others of any stride.
        weight: [width], dtype of `input` or f32.
        epsilon: Added to the mean of squares.
        weight_offset: 0 scales by `weight`, 1 by `1 + weight` (Gemma).
        output_scale: One element f32, for an output of float8_e4m3fn; read where it lies.
        row_scales: [...] f32 without gaps, written; or this, one scale for each row.

    Raises:
        ValueError: Shapes that disagree, gaps in the last axis.
        NotImplementedError: Another dtype or device.

    Source: Zhang and Sennrich 2019, arXiv 1910.07467.
    """


@operation(mutates=["output", "residual", "row_scales"])
def fused_add_rms_norm(
    output: Array,
    residual: Array,
    input: Array,
    weight: Array,
    *,
    epsilon: float = 1e-6,
    weight_offset: int = 0,
    output_scale: Array | None = None,
    row_scales: Array | None = None,
) -> None:
    """`residual = residual + input`, then `output = rms_norm(residual)`.

    The sum is taken in f32 and rounded; the norm is taken of the rounded residual, so that it can
    be computed again from what is stored. An output of float8_e4m3fn has a scale, as in `rms_norm`.

    Args:
        output: [..., width], dtype of `input` or float8_e4m3fn, written; may be `input` itself.
        residual: [..., width], dtype of `input`, updated.
        input: [..., width] f32|f16|bf16.
        weight: [width], dtype of `input` or f32.
        epsilon: Added to the mean of squares.
        weight_offset: 0 scales by `weight`, 1 by `1 + weight` (Gemma).
        output_scale: One element f32, for an output of float8_e4m3fn; read where it lies.
        row_scales: [...] f32 without gaps, written; or this, one scale for each row.

    Raises:
        ValueError: Shapes that disagree, gaps in the last axis.
        NotImplementedError: Another dtype or device.

    Source: Zhang and Sennrich 2019, arXiv 1910.07467.
    """
