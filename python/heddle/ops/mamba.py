"""State of Mamba layers after a pass over drafted tokens."""

from __future__ import annotations

from collections.abc import Sequence

from heddle._operation import Array, operation

__all__ = ["mamba_state_selective_copy"]


@operation(mutates=["current_states"])
def mamba_state_selective_copy(
    current_states: Sequence[Array],
    intermediate_states: Sequence[Array],
    prefill_status: Array,
    state_idx: Array,
    accepted_counts: Array,
    num_layers: int,
    *,
    num_active: int | Array | None = None,
) -> None:
    """`current[l, state_idx[i]] = intermediate[l, state_idx[i], accepted_counts[i]]`.

    In every layer `l < num_layers`, for each request `i < num_active` with `prefill_status[i] !=
    1`: the state after its last accepted token goes where the next step looks for it. Bytes are
    copied as they are, all states (the convolution's, the scan's) in one call. A slot outside [0,
    num_slots), -1 say, is skipped; counts outside [0, S] are clamped. Two requests must not share
    a slot. With HEDDLE_VALIDATE=1 a count outside [0, S], a slot past the end and a slot used
    twice raise ValueError with row and value.

    Args:
        current_states: Up to 8 arrays [num_state_layers, num_slots, *state], updated. Any dtype;
            the axes of the state without gaps, the two before them of any stride.
        intermediate_states: For each its [num_state_layers, num_slots, S + 1, *state], same
            dtype.
        prefill_status: [num_requests] i32|i64.
        state_idx: [num_requests] i32|i64.
        accepted_counts: [num_requests] i32|i64.
        num_layers: Layers that are copied, the first ones.
        num_active: Requests from here on are padding. None: there is none. An array of one
            element is read where it lies, so that a captured graph replays with another number.

    Raises:
        ValueError: Shapes or dtypes that disagree, gaps within a state, more layers than there
            are.
        NotImplementedError: Another dtype or device.

    Source: Megatron-LM, mtp_utils_triton.py.
    """
