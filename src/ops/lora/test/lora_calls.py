"""Calls of the halves of LoRA with stacked weights, for python/tests/operations/operator_cases.py."""

from typing import Any

import numpy as np
from case_arrays import Call, i32, i64, nines, randn

from heddle import LoraBatch

HALF = np.float16
IDS = (1, -1, 0, 1, 7, 0)
"""Slots of six rows, of two: -1, and what is past the last, mean no adapter."""


def _by_segments(**more: Any) -> LoraBatch:
    """The rows of IDS."""
    starts, slots = i32(3, 0, 2, 5), i64(1, 1, 0, 0)
    return LoraBatch(seg_starts=starts, seg_slots=slots, **more)


def _product(start: Any, weights: Any, x: Any, factor: Any) -> Any:
    """start + factor[t] * weights[IDS[t]] x[t], weights [slots, out, in]."""
    result = start.astype(np.float64)
    for t, slot in enumerate(IDS):
        if 0 <= slot < len(weights):
            result[t] += factor[t] * (weights[slot].astype(np.float64) @ x[t])
    return result


def lora_shrink() -> Call:
    """By ids; rows without adapter are left alone."""
    y, x, a = nines(6, 4, dtype=np.float32), randn(6, 8, dtype=HALF), randn(2, 4, 8, dtype=HALF)
    want = _product(0 * y, a, x, [0.5] * 6)
    want[[1, 4]] = 9
    return {"y": y, "x": x, "a": a, "batch": LoraBatch(slot_ids=i64(*IDS)), "scale": 0.5}, {"y": want}


def lora_shrink__by_segments() -> Call:
    """With a factor for each row, added to y, from weights the other way round."""
    y, x, a, factor = randn(6, 4), randn(6, 8, dtype=HALF), randn(2, 4, 8, dtype=HALF), randn(6)
    batch = _by_segments(seg_ends=i64(4, 1, 3, 6), row_scale=factor)
    given = {"y": y, "x": x, "a": a.swapaxes(1, 2).copy(), "batch": batch}
    return given | {"accumulate": True, "layout": "rank_minor"}, {"y": _product(y, a, x, factor)}


def lora_expand() -> Call:
    """Into some columns, by segments with lengths."""
    y, h, b = randn(6, 9), randn(6, 4), randn(2, 6, 4, dtype=HALF)
    batch = _by_segments(seg_lens=i32(1, 1, 1, 1))
    want = y.copy()
    want[:, 2:8] = _product(y[:, 2:8], b, h, [1.5] * 6)
    return {"y": y, "h": h, "b": b, "batch": batch, "slice_offset": 2, "scale": 1.5}, {"y": want}


def lora_expand__overwrites() -> Call:
    """With weights the other way round."""
    y, h, b = nines(6, 5, dtype=np.float32), randn(6, 4), randn(2, 5, 4, dtype=HALF)
    want = _product(0 * y, b, h, [1.0] * 6)
    want[[1, 4]] = 9
    given = {"y": y, "h": h, "b": b.swapaxes(1, 2).copy(), "batch": LoraBatch(slot_ids=i32(*IDS))}
    return given | {"accumulate": False, "layout": "rank_major"}, {"y": want}


CALLS = [lora_shrink, lora_shrink__by_segments, lora_expand, lora_expand__overwrites]
