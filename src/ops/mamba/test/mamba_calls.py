"""A call of mamba_state_selective_copy, for python/tests/operations/operator_cases.py."""

import numpy as np
from case_arrays import Call, i32, i64, nines, randn


def mamba_state_selective_copy() -> Call:
    """Two layers of three, requests with a slot, without one, of prefill, and one of padding."""
    current = [nines(3, 5, 4, dtype=np.float32), nines(3, 5, 2, 3, dtype=np.float32)]
    drafted = [randn(3, 5, 3, 4), randn(3, 5, 3, 2, 3)]
    want = [state.copy() for state in current]
    for state, source in zip(want, drafted):
        state[:2, 4] = source[:2, 4, 2]
    given = {
        "current_states": current,
        "intermediate_states": drafted,
        "prefill_status": i32(0, 0, 1, 0),
        "state_idx": i64(4, -1, 2, 3),
        "accepted_counts": i64(2, 1, 1, 1),
        "num_layers": 2,
        "num_active": 3,
    }
    return given, {"current_states": want}


def mamba_state_selective_copy__counted_on_the_device() -> Call:
    current, drafted = nines(1, 2, 3, dtype=np.float32), randn(1, 2, 1, 3)
    given = {
        "current_states": [current],
        "intermediate_states": [drafted],
        "prefill_status": i32(0, 0),
        "state_idx": i32(0, 1),
        "accepted_counts": i32(0, 0),
        "num_layers": 1,
        "num_active": i64(1),
    }
    return given, {"current_states": [np.stack([drafted[:, 0, 0], current[:, 1]], 1)]}


CALLS = [mamba_state_selective_copy, mamba_state_selective_copy__counted_on_the_device]
