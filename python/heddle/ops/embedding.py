"""Rows of an embedding table."""

from __future__ import annotations

from heddle._core import PackedWeight
from heddle._operation import Array, operation

__all__ = ["embedding"]


@operation(mutates=["y"])
def embedding(y: Array, token_ids: Array, table: Array | PackedWeight) -> None:
    """`y[t] = table[token_ids[t]]`, exact: values are copied or widened.

    Args:
        y: [num_tokens, width] f32 or the table's dtype, written; f32, f16 or bf16 for a
            `PackedWeight`, whose values are rounded to it.
        token_ids: [num_tokens] i32|i64; an id outside the table gives a row of zeros, and
            is an error with HEDDLE_VALIDATE=1.
        table: [vocab_size, width] f32|f16|bf16, rows of any stride; or a `heddle.PackedWeight`
            [out_features = vocab_size, in_features = width] on the device of `y`.

    Raises:
        ValueError: Shapes or devices that disagree.
        NotImplementedError: Another dtype or device.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.4.
    """
