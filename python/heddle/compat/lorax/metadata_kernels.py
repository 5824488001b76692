"""Drop-in for `lorax_server.models.metadata_kernels`: the bookkeeping of a batch.

Index tensors are int32 or int64, in any mix and of any stride. The `max_*` arguments are hints for
a launch shape and tell nothing here: lengths and starts alone do, and nothing is written outside of
a row. Entries that a function does not reach stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from heddle import has_cuda, ops
from heddle.compat._arrays import empty

__all__ = [
    "block_tables_to_padded",
    "block_tables_to_ragged",
    "copy_next_input_ids_inplace",
    "has_triton",
    "prepare_position_slot_ids",
    "slots_filtering",
]


@functools.cache
def has_triton() -> bool:
    """Whether the functions here work on a GPU; on the CPU they always do, and without Triton."""
    if not has_cuda():
        return False
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def block_tables_to_padded(
    max_blocks: int, cu_seqlen: Any, block_tables: Any, block_tables_ragged: Any
) -> None:
    """Row i gets `block_tables_ragged[cu_seqlen[i]:cu_seqlen[i + 1]]`; the rest of it stays.

    Args:
        max_blocks: A hint.
        cu_seqlen: [batch + 1].
        block_tables: [batch, width], updated.
        block_tables_ragged: [any].
    """
    ops.block_tables_to_padded(block_tables, block_tables_ragged, cu_seqlen)


def block_tables_to_ragged(
    *,
    block_tables: Any,
    input_lengths: Sequence[int] | Any,
    cache_lengths: Sequence[int] | Any,
    input_lengths_tensor: Any,
    cache_lengths_tensor: Any,
    max_current_length: int,
) -> Any:
    """The first input_lengths[i] + cache_lengths[i] entries of each row i, row after row.

    Args:
        block_tables: [batch, width].
        input_lengths: [batch], numbers or an array on any device; together with cache_lengths it
            gives the result's length.
        cache_lengths: As input_lengths.
        input_lengths_tensor: [batch], the same numbers on the tables' device.
        cache_lengths_tensor: As input_lengths_tensor.
        max_current_length: A hint.

    Returns:
        An int32 array of the tables' framework, on their device.
    """
    for name, lengths, tensor in (
        ("input_lengths", input_lengths, input_lengths_tensor),
        ("cache_lengths", cache_lengths, cache_lengths_tensor),
    ):
        if len(lengths) != len(tensor):
            raise ValueError(
                f"{name} has {len(lengths)} entries, expected {len(tensor)} as {name}_tensor"
            )
    total = _sum(input_lengths) + _sum(cache_lengths)
    ragged = empty(block_tables, (total,), "int32")
    ops.block_tables_to_ragged(
        ragged, block_tables, input_lengths_tensor, cache_lengths_tensor, total=total
    )
    return ragged


def copy_next_input_ids_inplace(
    max_next_input_ids: int,
    all_input_ids: Any,
    cache_lengths: Any,
    input_lengths: Any,
    prompt_lengths: Any,
    next_input_ids: Any,
    cu_accepted_ids: Any,
) -> None:
    """Puts the accepted ids of each request after what it has, and never into its prompt.

    The first one goes to `all_input_ids[i][cache_lengths[i] + input_lengths[i]]`.

    Args:
        max_next_input_ids: A hint.
        all_input_ids: [batch, max_length], updated.
        cache_lengths: [batch].
        input_lengths: [batch].
        prompt_lengths: [batch]; positions below are not written.
        next_input_ids: [any].
        cu_accepted_ids: [batch + 1]; request i has the ids from cu_accepted_ids[i] to
            cu_accepted_ids[i + 1].
    """
    ops.copy_next_input_ids_inplace(
        all_input_ids, next_input_ids, cu_accepted_ids, cache_lengths, input_lengths, prompt_lengths
    )


def prepare_position_slot_ids(
    max_input_length: int,
    cache_lengths: Any,
    cu_seqlen: Any,
    cu_slots: Any,
    position_ids: Any,
    slot_indices: Any,
) -> None:
    """Token j of request i gets position cache_lengths[i] + j, and as slot cu_slots[i] plus that.

    Args:
        max_input_length: A hint.
        cache_lengths: [batch].
        cu_seqlen: [batch + 1]; the tokens of request i are those from cu_seqlen[i] to cu_seqlen[i +
            1].
        cu_slots: [batch + 1] or [batch].
        position_ids: [any], updated.
        slot_indices: [any], updated.
    """
    ops.prepare_position_slot_ids(position_ids, slot_indices, cache_lengths, cu_seqlen, cu_slots)


def slots_filtering(
    max_slots: int, slots: Any, filtered_slots: Any, cu_slots: Any, slots_start: Any
) -> None:
    """`filtered_slots[cu_slots[i]:cu_slots[i + 1]]` become the slots from slots_start[i] on.

    Args:
        max_slots: A hint.
        slots: [any].
        filtered_slots: [any], updated.
        cu_slots: [batch + 1], starts in filtered_slots.
        slots_start: [batch].
    """
    ops.slots_filtering(filtered_slots, slots, cu_slots, slots_start)


def _sum(lengths: Any) -> int:
    """Of an array by one reduction: its result alone is read from the array's device."""
    return int(lengths.sum() if hasattr(lengths, "sum") else sum(lengths))
