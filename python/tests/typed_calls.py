"""Calls that a type checker must accept; nothing runs them."""

from __future__ import annotations

import numpy as np

import heddle
from heddle import ops


def with_numpy() -> None:
    """NumPy arrays, options as keywords."""
    x = np.ones((2, 8), np.float32)
    weight = np.ones(8, np.float32)
    ops.rms_norm(x, x, weight, epsilon=1e-5)
    table = heddle.AdapterTable(2, [8], 4, dtype="f32")
    table.set(0, 0, weight, scale=2.0)
    ids = np.zeros(2, np.int32)
    ops.lora_shrink(x, x, table, heddle.LoraBatch(slot_ids=ids))
    pages = heddle.PageTable(page_indptr=ids, pages=ids, last_page_len=ids)
    cache = heddle.PagedKv.from_pool(x, x)
    ops.batch_prefill(x, None, x, ids, cache, pages, heddle.AttentionOptions(window_left=4))
    packed = heddle.PackedWeight(x, "F32", out_features=2, in_features=8)
    ops.linear(x, x, packed)
    ops.linear([x, x], x, [packed, packed])
    version: str = heddle.__version__
    threads: int = heddle.num_threads()
    print(version, threads)
