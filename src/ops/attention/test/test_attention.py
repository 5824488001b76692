"""Pages of the KV cache by address and of f8e4m3, which the calls of attention_calls.py have not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
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


def scales_of(heads: Any) -> Any:
    """The scale of each head of keys or values [..., HEAD_DIM]."""
    return np.abs(heads).max(-1) / np.float32(448)


@pytest.mark.parametrize("scales", ["tokens", "numbers", "addresses"])
def test_pages_of_codes_and_scales(rng: np.random.Generator, scales: str) -> None:
    codes = np.zeros((2, 3, KV_HEADS, PAGE, HEAD_DIM), ml_dtypes.float8_e4m3fn)
    own = np.zeros((2, 3, KV_HEADS, PAGE), np.float32)
    page = np.zeros(codes[:, 0].nbytes + own[:, 0].nbytes, np.uint8)
    numbers = np.array([0.01, 0.02], np.float32)
    pages, last = np.array([1], np.int64), np.array([3], np.int32)
    if scales == "tokens":
        cache = PagedKv.from_pool(*codes, *own)
    elif scales == "numbers":
        cache = PagedKv.from_pool(*codes, k_scale=float(numbers[0]), v_scale=float(numbers[1]))
    else:
        cache = PagedKv.from_pointers("f8e4m3", 1, 0, KV_HEADS, PAGE, HEAD_DIM)
        pages[0] = address(page)
    k, v = rng.standard_normal((2, 3, KV_HEADS, HEAD_DIM), np.float32)
    table = PageTable(np.array([0, 1], np.int32), pages, last)
    ops.kv_init(cache, table, k, v, np.array([0, 3], np.int32))
    o = np.zeros((1, 4, HEAD_DIM), np.float32)
    ops.batch_decode(o, None, np.zeros_like(o), cache, table)  # all keys have the same weight

    if scales == "addresses":
        size = codes[:, 0].nbytes
        stored = page[:size].view(codes.dtype).reshape(codes[:, 0].shape)
        own[:, 1] = page[size:].view(np.float32).reshape(own[:, 1].shape)
    else:
        stored = codes[:, 1]
    read = []
    for given, got, given_scales, number in zip((k, v), stored, own[:, 1], numbers, strict=True):
        heads = given.swapaxes(0, 1)  # [KV_HEADS, 3, HEAD_DIM]
        want_scales = number if scales == "numbers" else scales_of(heads)
        if scales != "numbers":
            np.testing.assert_array_equal(given_scales[:, :3], want_scales)
        want_scales = np.broadcast_to(want_scales, heads.shape[:2])[..., None]
        want = np.clip(heads / want_scales, -448, 448).astype(codes.dtype)
        np.testing.assert_array_equal(got[:, :3].view(np.uint8), want.view(np.uint8))
        read.append(want.astype(np.float32) * want_scales)
    mean = np.repeat(read[1].mean(1), 2, 0)  # two heads of q share one
    np.testing.assert_allclose(o[0], mean, rtol=1e-5, atol=1e-6)


def test_wrong_scales_are_named() -> None:
    codes = np.zeros((2, 3, KV_HEADS, PAGE, HEAD_DIM), ml_dtypes.float8_e4m3fn)
    own = np.zeros((3, KV_HEADS, PAGE), np.float32)
    row = np.zeros((1, KV_HEADS, HEAD_DIM), np.float32)
    table = PageTable(*(np.array(x, np.int32) for x in ([0, 1], [1], [1])))
    by_address = PagedKv.from_pointers("f8e4m3", 1, 0, KV_HEADS, PAGE, HEAD_DIM)
    halves = np.zeros((2, 3, KV_HEADS, PAGE, HEAD_DIM), np.float16)
    for says, cache in (
        ("whose scales are missing", PagedKv.from_pool(*codes)),
        ("only k_scales is given", PagedKv.from_pool(*codes, own)),
        ("only k_scale is given", PagedKv.from_pool(*codes, k_scale=1.0)),
        ("expected one pair", PagedKv.from_pool(*codes, own, own, k_scale=1.0, v_scale=1.0)),
        ("expected above 0", PagedKv.from_pool(*codes, k_scale=1.0, v_scale=0.0)),
        (r"k_scales.size\(2\) is 3", PagedKv.from_pool(*codes, own[..., :3], own[..., :3])),
        ("addresses hold their own", by_address._replace(k_scales=own, v_scales=own)),
        ("k_pages is f16, but scales are given", PagedKv.from_pool(*halves, own, own)),
        ("k_pages is u8, supported: .*f8e4m3", PagedKv.from_pool(*codes.view(np.uint8))),
    ):
        with pytest.raises((ValueError, NotImplementedError, TypeError), match=says):
            ops.kv_append(cache, table, row, row)
