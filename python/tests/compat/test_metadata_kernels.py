"""heddle.compat.lorax.metadata_kernels against the oracle."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import oracle
import pytest
from frameworks import INTEGERS, Framework
from layouts import LAYOUTS, Guarded, laid_out

import heddle
from heddle.compat.lorax import metadata_kernels


def starts_of(lengths: Any) -> Any:
    return np.concatenate([[0], np.cumsum(lengths)])


def other(index: str) -> str:
    return "i64" if index == "i32" else "i32"


def test_has_triton_tells_whether_the_fast_path_is_there() -> None:
    assert metadata_kernels.has_triton() is heddle.has_cuda()
    assert metadata_kernels.has_triton() is metadata_kernels.has_triton()


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("num_seqs", [0, 1, 19])
def test_block_tables_to_padded(
    framework: Framework, rng: np.random.Generator, index: str, layout: str, num_seqs: int
) -> None:
    lengths, width = rng.integers(0, 300, num_seqs), 320
    tables, ragged = np.full((num_seqs, width), -5), rng.integers(0, 9999, lengths.sum())
    out = Guarded(framework, tables, index, layout)
    for hint in [int(lengths.max(initial=0)), 0, 1]:  # tells nothing about how much is copied
        returned = metadata_kernels.block_tables_to_padded(
            hint,
            laid_out(framework, starts_of(lengths), other(index), layout),
            out.array,
            laid_out(framework, ragged, index, layout),
        )
        assert returned is None
        want = oracle.block_tables_to_padded(starts_of(lengths), tables, ragged)
        np.testing.assert_array_equal(out.values(), want)


def test_block_tables_to_padded_stays_in_its_rows(framework: Framework) -> None:
    tables = framework.array(np.full((3, 2), -5), "i32")
    metadata_kernels.block_tables_to_padded(
        max_blocks=4,
        cu_seqlen=framework.array([0, 4, 5, 5], "i64"),
        block_tables=tables,
        block_tables_ragged=framework.array([1, 2, 3, 4, 5], "i32"),
    )
    assert framework.numpy(tables).tolist() == [[1, 2], [5, -5], [-5, -5]]


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lists", ["lists", "tuples", "arrays", "numpy"])
def test_block_tables_to_ragged(
    framework: Framework, rng: np.random.Generator, index: str, layout: str, lists: str
) -> None:
    for num_seqs in [0, 1, int(rng.integers(2, 40))]:
        input_lengths, cache_lengths = rng.integers(0, 9, num_seqs), rng.integers(0, 300, num_seqs)
        tables = rng.integers(0, 9999, (num_seqs, 320))
        tensors = [laid_out(framework, a, index, layout) for a in (input_lengths, cache_lengths)]
        given = {
            "lists": [input_lengths.tolist(), cache_lengths.tolist()],
            "tuples": [tuple(input_lengths.tolist()), tuple(cache_lengths.tolist())],
            "arrays": tensors,
            "numpy": [input_lengths, cache_lengths],
        }[lists]
        block_tables = laid_out(framework, tables, other(index), layout)
        ragged = metadata_kernels.block_tables_to_ragged(
            block_tables=block_tables,
            input_lengths=given[0],
            cache_lengths=given[1],
            input_lengths_tensor=tensors[0],
            cache_lengths_tensor=tensors[1],
            max_current_length=int((input_lengths + cache_lengths).max(initial=0)),
        )
        assert type(ragged) is type(block_tables) and str(ragged.dtype).endswith("int32")
        want = oracle.block_tables_to_ragged(tables, input_lengths, cache_lengths)
        np.testing.assert_array_equal(framework.numpy(ragged), want)


def test_block_tables_to_ragged_takes_keywords_alone_and_lists_that_agree(
    framework: Framework,
) -> None:
    tables = framework.array([[1, 2, 3], [4, 5, 6]], "i32")
    tensors = {
        "input_lengths_tensor": framework.array([1, 1], "i32"),
        "cache_lengths_tensor": framework.array([1, 2], "i32"),
        "max_current_length": 3,
    }
    with pytest.raises(TypeError):
        metadata_kernels.block_tables_to_ragged(tables, [1, 1], [1, 2], *tensors.values())
    for lists in [([1, 1], [1, 1]), ([1, 2], [1, 2]), ([1], [4]), ([1, 1, 0], [1, 2, 0])]:
        with pytest.raises(ValueError):
            metadata_kernels.block_tables_to_ragged(
                block_tables=tables, input_lengths=lists[0], cache_lengths=lists[1], **tensors
            )


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_copy_next_input_ids(
    framework: Framework, rng: np.random.Generator, index: str, layout: str
) -> None:
    for num_seqs in [0, 1, int(rng.integers(2, 40))]:
        accepted = rng.integers(0, 6, num_seqs)
        all_ids = rng.integers(0, 999, (num_seqs, 64))
        cache_lengths, input_lengths = rng.integers(0, 30, num_seqs), rng.integers(1, 20, num_seqs)
        prompt_lengths = (
            cache_lengths + input_lengths + rng.integers(-3, 8, num_seqs)
        )  # some are in their prompt yet
        next_ids = rng.integers(1000, 1999, accepted.sum())
        out = Guarded(framework, all_ids, index, layout)
        small = [
            laid_out(framework, a, other(index), layout)
            for a in (cache_lengths, input_lengths, prompt_lengths)
        ]
        returned = metadata_kernels.copy_next_input_ids_inplace(
            int(accepted.max(initial=0)),
            out.array,
            *small,
            laid_out(framework, next_ids, index, layout),
            laid_out(framework, starts_of(accepted), index, layout),
        )
        assert returned is None
        want = oracle.copy_next_input_ids(
            all_ids, cache_lengths, input_lengths, prompt_lengths, next_ids, starts_of(accepted)
        )
        np.testing.assert_array_equal(out.values(), want)


def test_copy_next_input_ids_stays_in_its_rows(framework: Framework) -> None:
    out = framework.array(np.zeros((2, 4)), "i64")
    metadata_kernels.copy_next_input_ids_inplace(
        max_next_input_ids=3,
        all_input_ids=out,
        cache_lengths=framework.array([2, 0], "i32"),
        input_lengths=framework.array([1, 1], "i32"),
        prompt_lengths=framework.array([1, 1], "i32"),
        next_input_ids=framework.array([7, 8, 9, 6], "i64"),
        cu_accepted_ids=framework.array([0, 3, 4], "i64"),
    )
    assert framework.numpy(out).tolist() == [[0, 0, 0, 7], [0, 6, 0, 0]]


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_prepare_position_slot_ids(
    framework: Framework, rng: np.random.Generator, index: str, layout: str
) -> None:
    for num_seqs in [0, 1, int(rng.integers(2, 40))]:
        lengths, cache_lengths = rng.integers(0, 300, num_seqs), rng.integers(0, 1000, num_seqs)
        cu_seqlen, cu_slots = starts_of(lengths), starts_of(lengths + cache_lengths)
        before = np.full(lengths.sum() + 3, -7)
        outs = [
            Guarded(framework, before, index, layout),
            Guarded(framework, before, other(index), layout),
        ]
        returned = metadata_kernels.prepare_position_slot_ids(
            1,
            laid_out(framework, cache_lengths, index, layout),
            laid_out(framework, cu_seqlen, other(index), layout),
            laid_out(framework, cu_slots, index, layout),
            *(out.array for out in outs),
        )
        assert returned is None
        want = oracle.position_slot_ids(cache_lengths, cu_seqlen, cu_slots, before, before)
        for got, values in zip(outs, want, strict=True):
            np.testing.assert_array_equal(got.values(), values)


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_slots_filtering(
    framework: Framework, rng: np.random.Generator, index: str, layout: str
) -> None:
    for num_seqs in [0, 1, int(rng.integers(2, 40))]:
        lengths = rng.integers(0, 300, num_seqs)
        slots, before = rng.integers(0, 99999, 4000), np.full(lengths.sum() + 2, -7)
        slots_start = rng.integers(0, 4000 - 300, num_seqs)
        out = Guarded(framework, before, index, layout)
        returned = metadata_kernels.slots_filtering(
            int(lengths.max(initial=0)),
            laid_out(framework, slots, other(index), layout),
            out.array,
            laid_out(framework, starts_of(lengths), index, layout),
            laid_out(framework, slots_start, other(index), layout),
        )
        assert returned is None
        want = oracle.slots_filtering(slots, before, starts_of(lengths), slots_start)
        np.testing.assert_array_equal(out.values(), want)


def test_by_keyword(framework: Framework) -> None:
    out = framework.array([0] * 4, "i64")
    metadata_kernels.slots_filtering(
        slots_start=framework.array([2, 0], "i64"),
        cu_slots=framework.array([0, 1, 3], "i64"),
        filtered_slots=out,
        slots=framework.array([50, 51, 52], "i64"),
        max_slots=2,
    )
    assert framework.numpy(out).tolist() == [52, 50, 51, 0]
    positions, slots = framework.array([-7] * 4, "i32"), framework.array([-7] * 4, "i64")
    metadata_kernels.prepare_position_slot_ids(
        slot_indices=slots,
        position_ids=positions,
        cu_slots=framework.array([0, 8, 16], "i64"),
        cu_seqlen=framework.array([0, 2, 3], "i32"),
        cache_lengths=framework.array([0, 5], "i32"),
        max_input_length=2,
    )
    assert framework.numpy(positions).tolist() == [0, 1, 5, -7]
    assert framework.numpy(slots).tolist() == [0, 1, 13, -7]


def test_wrong_shapes_and_dtypes_raise(framework: Framework) -> None:
    two, three, table = (
        framework.array([0, 1], "i32"),
        framework.array([0, 1, 2], "i32"),
        framework.array([[0], [0]], "i32"),
    )
    floats = framework.array([0.0, 1.0, 2.0], "f32")
    wrong = (ValueError, NotImplementedError)
    with pytest.raises(wrong):
        metadata_kernels.block_tables_to_padded(1, two, table, two)
    with pytest.raises(wrong):
        metadata_kernels.block_tables_to_padded(1, floats, table, two)
    with pytest.raises(wrong):
        metadata_kernels.copy_next_input_ids_inplace(1, table, two, two, two, two, two)
    with pytest.raises(wrong):
        metadata_kernels.prepare_position_slot_ids(1, two, two, three, two, two)
    with pytest.raises(wrong):
        metadata_kernels.slots_filtering(1, two, two, three, three)


def test_validation_names_row_and_value(
    framework: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = framework.array(np.zeros((2, 2)), "i32")
    ragged, descending = framework.array([1, 2, 3], "i32"), framework.array([0, 2, 1], "i64")
    metadata_kernels.block_tables_to_padded(2, descending, tables, ragged)
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match="cu_seqlen"):
        metadata_kernels.block_tables_to_padded(2, descending, tables, ragged)


def test_signatures() -> None:
    def names(function: Any) -> list[str]:
        parameters = inspect.signature(function).parameters.values()
        assert all(p.default is p.empty for p in parameters)
        return [("*" if p.kind is p.KEYWORD_ONLY else "") + p.name for p in parameters]

    def expected(text: str) -> list[str]:
        return text.split()

    kernels = metadata_kernels
    assert names(kernels.block_tables_to_padded) == expected(
        "max_blocks cu_seqlen block_tables block_tables_ragged"
    )
    assert names(kernels.block_tables_to_ragged) == expected(
        "*block_tables *input_lengths *cache_lengths *input_lengths_tensor *cache_lengths_tensor "
        "*max_current_length"
    )
    assert names(kernels.copy_next_input_ids_inplace) == expected(
        "max_next_input_ids all_input_ids cache_lengths input_lengths prompt_lengths "
        "next_input_ids cu_accepted_ids"
    )
    assert names(kernels.prepare_position_slot_ids) == expected(
        "max_input_length cache_lengths cu_seqlen cu_slots position_ids slot_indices"
    )
    assert names(kernels.slots_filtering) == expected(
        "max_slots slots filtered_slots cu_slots slots_start"
    )
    assert names(kernels.has_triton) == []
