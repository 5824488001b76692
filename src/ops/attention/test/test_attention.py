"""Pages of the KV cache by address, which the calls of attention_calls.py have not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import Framework

from heddle import PagedKv, PageTable, ops

LAYERS, LAYER, KV_HEADS, PAGE, HEAD_DIM = 3, 1, 2, 4, 64


def address(array: Any) -> int:
    """Where the first element lies."""
    pointer: int = array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data
    return pointer


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_pages_by_address_have_the_bits_of_a_pool(
    framework: Framework, rng: np.random.Generator, dtype: str
) -> None:
    def randn(*shape: int) -> Any:
        return framework.array(rng.standard_normal(shape), dtype)

    pages = [
        framework.array(np.full((LAYERS, 2, KV_HEADS, PAGE, HEAD_DIM), np.nan), dtype)
        for _ in range(3)
    ]
    pool = framework.array(np.full((2, 3, KV_HEADS, PAGE, HEAD_DIM), np.nan), dtype)
    k, v, new_k, new_v = (randn(n, KV_HEADS, HEAD_DIM) for n in (9, 9, 2, 2))
    q, outputs = randn(2, 4, HEAD_DIM), [randn(2, 4, HEAD_DIM) for _ in range(2)]
    by_address = PagedKv.from_pointers(dtype, LAYERS, LAYER, KV_HEADS, PAGE, HEAD_DIM)
    numbers = framework.array([0, 1, 2], "i32")
    addresses = framework.array([address(page) for page in pages], "i64")
    for cache, ids, o in (
        (PagedKv.from_pool(pool[0], pool[1]), numbers, outputs[0]),
        (by_address, addresses, outputs[1]),
    ):
        starts, lengths = framework.array([0, 2, 3], "i32"), framework.array([2, 3], "i32")
        ops.kv_init(cache, PageTable(starts, ids, lengths), k, v, framework.array([0, 6, 9], "i64"))
        table = PageTable(starts, ids, framework.array([3, 4], "i32"))
        ops.kv_append(cache, table, new_k, new_v)
        ops.batch_decode(o, None, q, cache, table)
    stored = np.stack([framework.numpy(page) for page in pages], 2)
    np.testing.assert_array_equal(stored[LAYER], framework.numpy(pool))
    assert np.isnan(stored[[0, 2]]).all()
    assert not np.isnan(framework.numpy(pool)[:, [0, 2]]).any()
    first, second = (framework.numpy(o) for o in outputs)
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()
