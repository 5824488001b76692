"""Rotary position embedding, rotate-half form.

Element d of the first half of the rotated part turns with element d + rotary_dim / 2 by the angle
`position / scale * f(d)`, `f(d) = theta^(-2 d / rotary_dim)`. `llama3_scaling` holds the four
numbers of Llama 3.1's frequency correction: factor, low_freq_factor, high_freq_factor and
original_max_position.
"""

from __future__ import annotations

from collections.abc import Sequence

from heddle._operation import Array, operation

__all__ = ["rope", "rope_table"]


@operation(mutates=["cos", "sin"])
def rope_table(
    cos: Array,
    sin: Array,
    positions: Array,
    *,
    theta: float = 1e4,
    scale: float = 1.0,
    rotary_dim: int = 0,
    llama3_scaling: Sequence[float] | None = None,
    frequency_factors: Array | None = None,
) -> None:
    """`cos[t][d] = cos(positions[t] / scale * theta^(-2 d / rotary_dim))`; sin in the same way.

    Angles in double, reduced before the rounding to f32: exact to 1 ulp at any position.

    Args:
        cos: [num_tokens, rotary_dim / 2] f32, written.
        sin: [num_tokens, rotary_dim / 2] f32, written.
        positions: [num_tokens] i32|i64.
        theta: Base of the frequencies.
        scale: Positions are divided by it.
        rotary_dim: Elements of a head that turn; 0: twice the width of the table.
        llama3_scaling: Four numbers, or None for no correction.
        frequency_factors: [rotary_dim / 2] f32: frequency d is divided by factor d.

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: Su et al. 2021, arXiv 2104.09864.
    """


@operation(mutates=["x"])
def rope(
    x: Array,
    cos: Array | None = None,
    sin: Array | None = None,
    *,
    positions: Array | None = None,
    theta: float = 1e4,
    scale: float = 1.0,
    rotary_dim: int = 0,
    llama3_scaling: Sequence[float] | None = None,
) -> None:
    """Turns `x` in place: `x[d] cos - x[d + n] sin` and `x[d + n] cos + x[d] sin` for d < n.

    The table comes from `rope_table`, or is computed from `positions` and the options. In f32, one
    product rounded and the other fused into the sum; rounded once.

    Args:
        x: [num_tokens, num_heads, head_dim] f32|f16|bf16, updated; elements from 2 n on stay as
            they are; last axis without gaps.
        cos: [num_tokens, n] f32, or None with `positions`.
        sin: [num_tokens, n] f32, or None with `positions`.
        positions: [num_tokens] i32|i64, or None with a table.
        theta: Base of the frequencies; this and what follows is read with `positions` alone.
        scale: Positions are divided by it.
        rotary_dim: Leading elements of a head that turn, 0: all.
        llama3_scaling: Four numbers, or None for no correction.

    Raises:
        ValueError: Shapes that disagree; a table and positions both or neither given.
        NotImplementedError: Another dtype or device.

    Source: Su et al. 2021, arXiv 2104.09864.
    """
