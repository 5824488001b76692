"""rewind_kv_cache of heddle.compat.megatron.mtp_utils against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from frameworks import INTEGERS, Framework
from layouts import LAYOUTS, Guarded, laid_out

from heddle.compat.megatron import mtp_utils

STATE = [
    "last_kv_block_offset",
    "kv_length_offsets",
    "kv_block_counts",
    "last_kv_block_id",
    "kv_block_ids",
]


def random_state(
    rng: np.random.Generator, num: int, max_blocks: int, block_size: int, longest: int
) -> dict[str, Any]:
    """A consistent cache of `num` requests, at least one token each."""
    lengths = rng.integers(1, min(longest, max_blocks * block_size) + 1, num)
    counts = -(-lengths // block_size)
    table = np.full((num, max_blocks), -1, np.int64)
    for i, count in enumerate(counts):
        table[i, :count] = rng.integers(1, 10_000, count)
    return {
        "last_kv_block_offset": (lengths - 1) % block_size,
        "kv_length_offsets": lengths,
        "kv_block_counts": counts,
        "last_kv_block_id": table[np.arange(num), counts - 1],
        "kv_block_ids": table,
    }


def check_rewind(
    framework: Framework,
    state: dict[str, Any],
    accepted: Any,
    prefill: Any,
    num_drafts: int,
    block_size: int,
    active: int | None = None,
    index: str = "i32",
    layout: str = "whole",
) -> tuple[Any, Any]:
    """Checks the state and both results of one call, and returns the results."""
    guarded = {name: Guarded(framework, values, index, layout) for name, values in state.items()}
    counts = laid_out(framework, accepted, "i64", layout)
    result = mtp_utils.rewind_kv_cache(
        counts,
        laid_out(framework, prefill, "i32", layout),
        *(guarded[name].array for name in STATE),
        num_drafts,
        block_size,
        **({} if active is None else {"num_active_requests": active}),
    )
    num_active = len(accepted) if active is None else active
    *want, release, mask = oracle.rewind(
        accepted, prefill, *state.values(), num_drafts, block_size, num_active
    )
    for name, values in zip(STATE, want, strict=True):
        np.testing.assert_array_equal(guarded[name].values(), values, name)
    assert isinstance(result, tuple) and [type(r) for r in result] == [type(counts)] * 2
    assert result[0].dtype == guarded["last_kv_block_id"].array.dtype
    assert "bool" in str(result[1].dtype)
    np.testing.assert_array_equal(framework.numpy(result[0]), release)
    np.testing.assert_array_equal(framework.numpy(result[1]), mask)
    return result


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rewind_of_random_batches(
    framework: Framework, rng: np.random.Generator, index: str, layout: str
) -> None:
    for num_drafts, block_size in [(1, 1), (3, 16), (4, 5), (7, 2), (0, 4)]:
        num = int(rng.integers(1, 50))
        check_rewind(
            framework,
            random_state(rng, num, 40, block_size, 60),
            rng.integers(0, num_drafts + 1, num),
            rng.integers(0, 3, num),  # 1 alone means: in prefill
            num_drafts,
            block_size,
            None,
            index,
            layout,
        )


def test_rewind_at_and_across_the_start_of_a_block(framework: Framework) -> None:
    state = {
        "last_kv_block_offset": np.array([2, 1, 0, 3, 0]),
        "kv_length_offsets": np.array([11, 10, 9, 12, 9]),
        "kv_block_counts": np.full(5, 3),
        "last_kv_block_id": np.array([30, 31, 32, 33, 34]),
        "kv_block_ids": np.array(
            [[10, 20, 30], [11, 21, 31], [12, 22, 32], [13, 23, 33], [14, 24, 34]]
        ),
    }
    release, mask = check_rewind(
        framework, state, np.array([0, 0, 0, 2, 0]), np.array([0, 0, 0, 0, 1]), 2, 4
    )
    assert framework.numpy(mask).tolist() == [0, 1, 1, 0, 0]
    assert framework.numpy(release).tolist() == [30, 31, 32, 33, 34]


def test_rewind_across_several_blocks_and_past_the_first(framework: Framework) -> None:
    state = {
        "last_kv_block_offset": np.array([0, 0, 1]),
        "kv_length_offsets": np.array([5, 1, 0]),
        "kv_block_counts": np.array([3, 1, 0]),
        "last_kv_block_id": np.array([7, 4, -1]),
        "kv_block_ids": np.array([[5, 6, 7, 70], [4, 71, 72, 73], [74, 75, 76, 77]]),
    }
    check_rewind(framework, state, np.zeros(3, int), np.zeros(3, int), 4, 2)


def test_rewind_clamps_accepted_counts(framework: Framework, rng: np.random.Generator) -> None:
    state = random_state(rng, 6, 8, 4, 30)
    check_rewind(framework, state, np.array([-1, -100, 4, 1000, 3, 0]), np.zeros(6, int), 3, 4)


@pytest.mark.parametrize("active", [0, 1, 4, 7])
def test_rewind_leaves_padding_alone(
    framework: Framework, rng: np.random.Generator, active: int
) -> None:
    state = random_state(rng, 7, 4, 4, 16)
    for values in state.values():
        values[active:] = -77
    check_rewind(framework, state, rng.integers(0, 4, 7), np.zeros(7, int), 3, 4, active)


def test_rewind_with_state_longer_than_the_batch(
    framework: Framework, rng: np.random.Generator
) -> None:
    state = random_state(rng, 9, 4, 4, 16)
    arrays = {name: framework.array(values, "i32") for name, values in state.items()}
    release, mask = mtp_utils.rewind_kv_cache(
        framework.array([0, 1, 0], "i64"), framework.array([0, 0, 0], "i32"), *arrays.values(), 2, 4
    )
    assert tuple(release.shape) == (9,) and tuple(mask.shape) == (3,)
    assert framework.numpy(release)[3:].tolist() == [0] * 6
    for name, values in state.items():
        np.testing.assert_array_equal(framework.numpy(arrays[name])[3:], values[3:], name)


def test_rewind_by_keyword_and_with_mixed_integers(
    framework: Framework, rng: np.random.Generator
) -> None:
    state, accepted = random_state(rng, 9, 6, 4, 20), rng.integers(0, 4, 9)
    dtypes = rng.choice(INTEGERS, len(STATE))
    arrays = {
        name: framework.array(values, dtype)
        for (name, values), dtype in zip(state.items(), dtypes, strict=True)
    }
    release, mask = mtp_utils.rewind_kv_cache(
        **arrays,
        num_active_requests=8,
        block_size_tokens=4,
        num_speculative_tokens=3,
        prefill_status=framework.array([0] * 9, "i32"),
        accepted_counts=framework.array(accepted, "i64"),
    )
    want = oracle.rewind(accepted, [0] * 9, *state.values(), 3, 4, 8)
    for got, values in zip([*arrays.values(), release, mask], want, strict=True):
        np.testing.assert_array_equal(framework.numpy(got), values)


def test_rewind_validates_accepted_counts(
    framework: Framework, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = random_state(rng, 3, 8, 4, 30)
    arrays = [framework.array(values, "i32") for values in state.values()]
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match=r"accepted_counts\[1\] is 4, "):
        mtp_utils.rewind_kv_cache(
            framework.array([0, 4, 0], "i64"), framework.array([0] * 3, "i32"), *arrays, 3, 4
        )
    for array, values in zip(arrays, state.values(), strict=True):
        np.testing.assert_array_equal(framework.numpy(array), values)


def test_rewind_of_nothing(framework: Framework) -> None:
    state = {name: np.zeros((0, 4) if name == "kv_block_ids" else 0, np.int64) for name in STATE}
    for index in INTEGERS:
        check_rewind(framework, state, np.zeros(0, int), np.zeros(0, int), 3, 4, None, index)


def test_rewind_refuses_what_cannot_be(framework: Framework, rng: np.random.Generator) -> None:
    state = random_state(rng, 4, 4, 4, 16)
    arrays = [framework.array(values, "i32") for values in state.values()]
    counts, status = framework.array([0] * 4, "i64"), framework.array([0] * 4, "i32")
    with pytest.raises(ValueError):
        mtp_utils.rewind_kv_cache(counts, status[:3], *arrays, 2, 4)
    with pytest.raises(ValueError):
        mtp_utils.rewind_kv_cache(counts, status, *arrays, 2, 0)
    with pytest.raises(ValueError):
        mtp_utils.rewind_kv_cache(counts, status, *arrays, -1, 4)
    for array, values in zip(arrays, state.values()):
        np.testing.assert_array_equal(framework.numpy(array), values)
