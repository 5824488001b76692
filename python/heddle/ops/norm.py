"""Root mean square layer normalisation."""

from __future__ import annotations

from heddle._operation import Array, operation


@operation(mutates=["output"])
def rms_norm(
    output: Array, input: Array, weight: Array, *, epsilon: float = 1e-6, weight_offset: int = 0
) -> None:
    """`output = input * rstd * (weight_offset + weight)`, over the last axis.

    `rstd = 1 / sqrt(mean(input^2) + epsilon)`. Sums in f32, one rounding at the end. The bits of a
    row depend on that row and the weight alone.

    Args:
        output: [..., width] f32|f16|bf16, written; may be `input` itself.
        input: [..., width], dtype of `output`; the last axis without gaps, others of any stride.
        weight: [width], dtype of `output` or f32.
        epsilon: Added to the mean of squares.
        weight_offset: 0 scales by `weight`, 1 by `1 + weight` (Gemma).

    Raises:
        ValueError: Shapes that disagree, gaps in the last axis.
        NotImplementedError: Another dtype or device.

    Source: Zhang and Sennrich 2019, arXiv 1910.07467.
    """


@operation(mutates=["output", "residual"])
def fused_add_rms_norm(
    output: Array,
    residual: Array,
    input: Array,
    weight: Array,
    *,
    epsilon: float = 1e-6,
    weight_offset: int = 0,
) -> None:
    """`residual = residual + input`, then `output = rms_norm(residual)`.

    The sum is taken in f32 and rounded; the norm is taken of the rounded residual, so that it can
    be computed again from what is stored.

    Args:
        output: [..., width] f32|f16|bf16, written; may be `input` itself.
        residual: [..., width], dtype of `output`, updated.
        input: [..., width], dtype of `output`.
        weight: [width], dtype of `output` or f32.
        epsilon: Added to the mean of squares.
        weight_offset: 0 scales by `weight`, 1 by `1 + weight` (Gemma).

    Raises:
        ValueError: Shapes that disagree, gaps in the last axis.
        NotImplementedError: Another dtype or device.

    Source: Zhang and Sennrich 2019, arXiv 1910.07467.
    """
