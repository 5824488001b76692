"""Activations of the feed-forward block."""

from __future__ import annotations

from heddle._operation import Array, operation

__all__ = ["gelu_and_mul", "silu_and_mul"]


@operation(mutates=["y"])
def silu_and_mul(y: Array, gate: Array, up: Array) -> None:
    """`y = silu(gate) * up`, `silu(v) = v / (1 + exp(-v))`.

    Computed in f32, rounded once. The bits of an element depend on its two inputs alone.

    Args:
        y: [num_tokens, width] f32|f16|bf16, written; may be `gate` or `up` itself.
        gate: [num_tokens, width], dtype of `y`; last axis without gaps, rows of any stride.
        up: [num_tokens, width], dtype of `y`; the two may be views of one fused product.

    Raises:
        ValueError: Shapes that disagree, gaps in a last axis.
        NotImplementedError: Another dtype or device.

    Source: Shazeer 2020, arXiv 2002.05202.
    """


@operation(mutates=["y"])
def gelu_and_mul(y: Array, gate: Array, up: Array, *, form: str) -> None:
    """`y = gelu(gate) * up`, with the form of GELU that the model was trained with.

    "erf" is `gelu(v) = v * (1 + erf(v / sqrt(2))) / 2`, "tanh" is
    `gelu(v) = v * (1 + tanh(sqrt(2 / pi) * (v + 0.044715 * v**3))) / 2` (Gemma, Phi-2).

    Computed in f32, rounded once. The bits of an element depend on its two inputs alone.

    Args:
        y: [num_tokens, width] f32|f16|bf16, written; may be `gate` or `up` itself.
        gate: [num_tokens, width], dtype of `y`; last axis without gaps, rows of any stride.
        up: [num_tokens, width], dtype of `y`; the two may be views of one fused product.
        form: "erf" or "tanh".

    Raises:
        ValueError: Shapes that disagree, gaps in a last axis, another form.
        NotImplementedError: Another dtype or device.

    Source: Hendrycks and Gimpel 2016, arXiv 1606.08415; Shazeer 2020, arXiv 2002.05202.
    """
