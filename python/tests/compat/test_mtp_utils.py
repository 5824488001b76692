"""heddle.compat.megatron.mtp_utils against the oracle; the rewind has a file of its own."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import oracle
import pytest
from frameworks import INTEGERS, Framework
from layouts import LAYOUTS, Guarded, laid_out

from heddle.compat.megatron import mtp_utils


def random_tokens(
    rng: np.random.Generator, num_decode: int, num_prefill: int, num_drafts: int, padding: int
) -> Any:
    """Tokens out of three, so that a third of the drafts match; -1 is one of them."""
    total = num_decode * (num_drafts + 1) + num_prefill + padding
    tokens, output = rng.integers(-1, 2, total), rng.integers(-1, 2, total)
    return tokens, output


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shapes", ["flat", "rows"])
def test_verify(
    framework: Framework, rng: np.random.Generator, index: str, layout: str, shapes: str
) -> None:
    for num_decode, num_prefill, num_drafts, padding in [
        (int(rng.integers(1, 20)), int(rng.integers(1, 9)), 3, int(rng.integers(0, 5))),
        (5, 0, 7, 6),
        (0, 5, 2, 1),
        (6, 2, 0, 3),
        (1, 0, 1, 0),
    ]:
        tokens, output = random_tokens(rng, num_decode, num_prefill, num_drafts, padding)
        shape = (1, -1) if shapes == "rows" else (-1,)
        given = laid_out(framework, tokens.reshape(shape), index, layout)
        result = mtp_utils.verify_speculative_tokens(
            given,
            laid_out(framework, output.reshape(shape), "i64", layout),
            num_decode,
            num_prefill,
            num_drafts,
        )
        assert isinstance(result, tuple) and [type(r) for r in result] == [type(given)] * 3
        last_one, mask, returned = result
        want_last, want_mask = oracle.verify(tokens, output, num_decode, num_prefill, num_drafts)
        assert (
            str(last_one.dtype).endswith("int64")
            and "bool" in str(mask.dtype)
            and returned.dtype == given.dtype
        )
        assert tuple(mask.shape) == tuple(returned.shape) == (len(tokens),)
        np.testing.assert_array_equal(framework.numpy(last_one), want_last)
        np.testing.assert_array_equal(framework.numpy(mask), want_mask)
        np.testing.assert_array_equal(framework.numpy(returned), tokens)


def test_verify_returns_its_input_and_not_a_copy(framework: Framework) -> None:
    tokens = framework.array([[4, 5]], "i64")
    _, _, returned = mtp_utils.verify_speculative_tokens(tokens, tokens, 1, 0, 1)
    returned[0] = 9
    assert framework.numpy(tokens).tolist() == [[9, 5]]


def test_verify_by_keyword_and_with_output_of_the_other_shape(
    framework: Framework, rng: np.random.Generator
) -> None:
    tokens, output = random_tokens(rng, 4, 1, 2, 0)
    for shape, other in [((-1,), (1, -1)), ((1, -1), (-1,))]:
        last_one, mask, _ = mtp_utils.verify_speculative_tokens(
            input_tokens=framework.array(tokens.reshape(shape), "i64"),
            output_tokens=framework.array(output.reshape(other), "i32"),
            num_decode_requests=4,
            num_prefill_requests=1,
            num_speculative_tokens=2,
        )
        want_last, want_mask = oracle.verify(tokens, output, 4, 1, 2)
        np.testing.assert_array_equal(framework.numpy(last_one), want_last)
        np.testing.assert_array_equal(framework.numpy(mask), want_mask)


def test_verify_of_nothing(framework: Framework) -> None:
    none = framework.array(np.zeros(0, int), "i64")
    last_one, mask, tokens = mtp_utils.verify_speculative_tokens(none, none, 0, 0, 3)
    assert [tuple(a.shape) for a in (last_one, mask, tokens)] == [(0,)] * 3
    padding = framework.array([7, 7], "i64")
    last_one, mask, _ = mtp_utils.verify_speculative_tokens(padding, padding, 0, 0, 3)
    assert tuple(last_one.shape) == (0,) and not framework.numpy(mask).any()


def test_verify_refuses_too_few_tokens(framework: Framework) -> None:
    tokens = framework.array([1] * 8, "i64")
    with pytest.raises(ValueError):
        mtp_utils.verify_speculative_tokens(tokens, tokens, 2, 1, 3)
    with pytest.raises(ValueError):
        mtp_utils.verify_speculative_tokens(tokens, tokens[:7], 2, 0, 3)
    with pytest.raises(ValueError):
        mtp_utils.verify_speculative_tokens(tokens, tokens, -1, 1, 3)
    with pytest.raises(ValueError):
        mtp_utils.verify_speculative_tokens(tokens, tokens, 2, 0, -1)


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_prepare(framework: Framework, rng: np.random.Generator, index: str, layout: str) -> None:
    for num_decode, num_prefill, num_drafts in [
        (int(rng.integers(1, 20)), int(rng.integers(1, 9)), 3),
        (4, 0, 1),
        (0, 4, 2),
        (5, 2, 0),
    ]:
        tokens, output = random_tokens(rng, num_decode, num_prefill, num_drafts, 2)
        last_one, mask = oracle.verify(tokens, output, num_decode, num_prefill, num_drafts)
        logit_indices = rng.integers(0, 1000, len(tokens))
        inputs = [laid_out(framework, a, index, layout) for a in (output, logit_indices, last_one)]
        inputs += [
            laid_out(framework, mask, "bool", layout),
            laid_out(framework, tokens, index, layout),
        ]
        capacity = num_decode + num_prefill + 3
        before = [
            np.full(capacity, -9),
            np.full(capacity, -8),
            np.full((capacity, num_drafts), -7),
            np.full(capacity, -6),
        ]
        buffers = [Guarded(framework, b, index, layout) for b in before]
        returned = mtp_utils.prepare_next_forward_pass(
            num_decode, *inputs, *(b.array for b in buffers), num_drafts
        )
        assert returned is None
        want = oracle.prepare_next(
            num_decode, output, logit_indices, last_one, mask, tokens, *before, num_drafts
        )
        for got, values in zip(buffers, want, strict=True):
            np.testing.assert_array_equal(got.values(), values)


def test_prepare_by_keyword_and_rows_without_a_last_one(framework: Framework) -> None:
    tokens, output, mask = (
        np.array([1, 2, 3, 4, 5, 6]),
        np.array([2, 3, 9, 9, 9, 9]),
        np.array([1, 1, 1, 0, 0, 0], bool),
    )
    last_one, logit_indices = np.array([2, -1]), np.array([10, 11, 12, 13, 14, 15])
    before = [np.full(2, -9), np.full(2, -8), np.full((2, 2), -7), np.full(2, -6)]
    buffers = [framework.array(b, "i64") for b in before]
    mtp_utils.prepare_next_forward_pass(
        num_decode_requests=2,
        output_tokens=framework.array(output, "i64"),
        required_logit_indices=framework.array(logit_indices, "i64"),
        last_one_indices=framework.array(last_one, "i64"),
        accepted_tokens_mask=framework.array(mask, "bool"),
        input_tokens=framework.array(tokens, "i64"),
        sampled_tokens_buf=buffers[0],
        last_accepted_seq_buf=buffers[1],
        accepted_tokens_per_request=buffers[2],
        accepted_token_counts=buffers[3],
        num_speculative_tokens=2,
    )
    want = oracle.prepare_next(2, output, logit_indices, last_one, mask, tokens, *before, 2)
    for got, values in zip(buffers, want, strict=True):
        np.testing.assert_array_equal(framework.numpy(got), values)


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_prepare_into_rows_of_decode_requests_alone(
    framework: Framework, rng: np.random.Generator, index: str, layout: str
) -> None:
    """Accepted tokens and counts have no row for prefill requests, as Megatron passes them."""
    for num_decode, num_prefill, num_drafts, rows in [
        (3, 2, 2, 3),
        (0, 3, 2, 0),
        (0, 3, 2, 1),
        (5, 3, 4, 6),
        (int(rng.integers(1, 90)), int(rng.integers(1, 90)), 1, None),
    ]:
        rows, total = num_decode if rows is None else rows, num_decode + num_prefill
        tokens, output = random_tokens(rng, num_decode, num_prefill, num_drafts, 1)
        last_one, mask = oracle.verify(tokens, output, num_decode, num_prefill, num_drafts)
        last_one = np.where(rng.random(total) < 0.3, -1, last_one)
        logit_indices = rng.integers(0, 1000, len(tokens))
        before = [np.full(total, -9), np.full(total, -8), np.full((total, num_drafts), -7)]
        before += [np.full(total, -6)]
        lengths = [total, total, rows, rows]
        buffers = [
            Guarded(framework, b[:n], index, layout) for b, n in zip(before, lengths, strict=True)
        ]
        inputs = [
            laid_out(framework, a, index, layout) for a in (output, logit_indices, last_one)
        ]
        mtp_utils.prepare_next_forward_pass(
            num_decode,
            *inputs,
            laid_out(framework, mask, "bool", layout),
            laid_out(framework, tokens, index, layout),
            *(b.array for b in buffers),
            num_drafts,
        )
        want = oracle.prepare_next(
            num_decode, output, logit_indices, last_one, mask, tokens, *before, num_drafts
        )
        for p in range(num_decode, total):
            if last_one[p] < 0:  # a row without a last one gets nothing, where there is one
                want[2][p], want[3][p] = -1, 0
        for got, values, n in zip(buffers, want, lengths, strict=True):
            np.testing.assert_array_equal(got.values(), values[:n])


def test_prepare_of_nothing(framework: Framework) -> None:
    none, mask = (
        framework.array(np.zeros(0, int), "i64"),
        framework.array(np.zeros(0, bool), "bool"),
    )
    buffer, table = framework.array([5], "i64"), framework.array([[5, 5]], "i64")
    mtp_utils.prepare_next_forward_pass(
        0, none, none, none, mask, none, buffer, buffer, table, buffer, 2
    )
    assert framework.numpy(buffer).tolist() == [5] and framework.numpy(table).tolist() == [[5, 5]]


def test_prepare_refuses_small_buffers(framework: Framework) -> None:
    tokens, mask = framework.array([1, 2, 3, 4], "i64"), framework.array([1, 0, 1, 0], "bool")
    last_one = framework.array([0, 2], "i64")
    two, one = framework.array([0, 0], "i64"), framework.array([0], "i64")
    table = framework.array([[0], [0]], "i64")
    for buffers in [
        (one, two, table, two),
        (two, one, table, two),
        (two, two, table[:1], two),
        (two, two, table, one),
    ]:
        with pytest.raises(ValueError):
            mtp_utils.prepare_next_forward_pass(
                2, tokens, tokens, last_one, mask, tokens, *buffers, 1
            )
    with pytest.raises(ValueError):
        mtp_utils.prepare_next_forward_pass(
            2, tokens, tokens, last_one, mask, tokens, two, two, table, two, 2
        )


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "u8"])
@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4), (0,)])
def test_mamba_copy(
    framework: Framework,
    rng: np.random.Generator,
    dtype: str,
    index: str,
    layout: str,
    shape: tuple[int, ...],
) -> None:
    layers, slots, num_drafts, used_layers = 3, 12, 2, 2
    intermediate = rng.integers(0, 100, (layers, slots, num_drafts + 1, *shape))
    current = rng.integers(100, 200, (layers, slots, *shape))
    num = int(rng.integers(4, 10))
    state_idx = rng.permutation(slots)[:num]
    state_idx[rng.permutation(num)[:2]] = -1, -7
    prefill, accepted = rng.integers(0, 3, num), rng.integers(-2, num_drafts + 3, num)
    states = framework.array(current, dtype)
    returned = mtp_utils.mamba_state_selective_copy(
        framework.array(intermediate, dtype),
        states,
        laid_out(framework, prefill, index, layout),
        laid_out(framework, state_idx, index, layout),
        laid_out(framework, accepted, "i64", layout),
        used_layers,
    )
    assert returned is None
    want = oracle.mamba_copy(intermediate, current, prefill, state_idx, accepted, used_layers)
    np.testing.assert_array_equal(framework.numpy(states), want)


def test_mamba_copy_in_slices_of_larger_states(
    framework: Framework, rng: np.random.Generator
) -> None:
    intermediate, current = rng.random((4, 9, 4, 6)), rng.random((4, 9, 6))
    source, states = framework.array(intermediate, "f32"), framework.array(current, "f32")
    want = framework.numpy(states).copy()
    index = [framework.array(a, "i32") for a in ([0, 0], [1, 3], [0, 2])]
    mtp_utils.mamba_state_selective_copy(
        intermediate_states=source[1:, ::2, 1:],
        current_states=states[1:, ::2],
        prefill_status=index[0],
        state_idx=index[1],
        accepted_counts=index[2],
        num_layers=3,
    )
    inner = framework.numpy(source)[1:, ::2, 1:]
    want[1:, ::2] = oracle.mamba_copy(inner, want[1:, ::2], [0, 0], [1, 3], [0, 2], 3)
    np.testing.assert_array_equal(framework.numpy(states), want)


def test_mamba_copy_skips_a_slot_past_the_end_and_validates_counts(
    framework: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = framework.array(np.zeros((1, 3, 2)), "f32")
    copies = framework.array(np.ones((1, 3, 2, 2)), "f32")
    status, slots = framework.array([0, 0], "i32"), framework.array([3, 1], "i32")
    counts = framework.array([0, 5], "i64")
    mtp_utils.mamba_state_selective_copy(copies, states, status, slots, counts, 1)
    assert framework.numpy(states)[0].tolist() == [[0, 0], [1, 1], [0, 0]]
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match=r"state_idx\[0\] is 3, "):
        mtp_utils.mamba_state_selective_copy(copies, states, status, slots, counts, 1)
    with pytest.raises(ValueError, match=r"accepted_counts\[1\] is 5, "):
        mtp_utils.mamba_state_selective_copy(
            copies, states, status, framework.array([-1, 1], "i32"), counts, 1
        )


def test_mamba_copy_refuses_what_cannot_be(framework: Framework) -> None:
    index = [framework.array([0], "i64")] * 3
    states = framework.array(np.zeros((2, 3, 4)), "f32")
    copies = framework.array(np.zeros((2, 3, 2, 4)), "f32")
    with pytest.raises((ValueError, NotImplementedError)):
        mtp_utils.mamba_state_selective_copy(
            framework.array(np.zeros((2, 3, 2, 4)), "f16"), states, *index, 2
        )
    with pytest.raises(ValueError):
        mtp_utils.mamba_state_selective_copy(copies, states, *index, 3)
    with pytest.raises(ValueError):
        mtp_utils.mamba_state_selective_copy(copies[:, :, :, :3], states, *index, 2)
    none = framework.array(np.zeros(0, int), "i64")
    mtp_utils.mamba_state_selective_copy(copies, states, none, none, none, 2)
    assert not framework.numpy(states).any()


def test_signatures() -> None:
    def declared(name: str) -> str:
        signature = inspect.signature(getattr(mtp_utils, name))
        return ", ".join(
            p.name if p.default is p.empty else f"{p.name}={p.default}"
            for p in signature.parameters.values()
        )

    state = (
        "last_kv_block_offset, kv_length_offsets, kv_block_counts, last_kv_block_id, kv_block_ids"
    )
    assert declared("rewind_kv_cache") == (
        f"accepted_counts, prefill_status, {state}, "
        "num_speculative_tokens, block_size_tokens, num_active_requests=None"
    )
    assert declared("verify_speculative_tokens") == (
        "input_tokens, output_tokens, "
        "num_decode_requests, num_prefill_requests, num_speculative_tokens"
    )
    buffers = (
        "sampled_tokens_buf, last_accepted_seq_buf, "
        "accepted_tokens_per_request, accepted_token_counts"
    )
    assert declared("prepare_next_forward_pass") == (
        "num_decode_requests, output_tokens, required_logit_indices, last_one_indices, "
        f"accepted_tokens_mask, input_tokens, {buffers}, num_speculative_tokens"
    )
    assert declared("mamba_state_selective_copy") == (
        "intermediate_states, current_states, "
        "prefill_status, state_idx, accepted_counts, num_layers"
    )
