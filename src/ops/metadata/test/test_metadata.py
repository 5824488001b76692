"""heddle.ops: the metadata conversions and prepare_batch, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import INTEGERS, TORCH_WANTED, Framework

from heddle import ops

Rng = np.random.Generator


class Ints:
    """Index arrays of one framework whose dtype and stride change from one to the next."""

    def __init__(self, framework: Framework, rng: Rng) -> None:
        self.framework = framework
        self.rng = rng

    def __call__(self, values: Any) -> Any:
        """A new array of the values, every second element of a larger one at times."""
        dtype = str(self.rng.choice(INTEGERS))
        values = np.asarray(values, np.int64)
        if values.ndim == 1 and self.rng.integers(2) == 0:
            return self.framework.array(np.repeat(values, 2), dtype)[::2]
        return self.framework.array(values, dtype)

    def numpy(self, array: Any) -> Any:
        """The array's values as int64."""
        return self.framework.numpy(array)


@pytest.fixture
def ints(framework: Framework, rng: Rng) -> Ints:
    """Makes index arrays of random dtypes."""
    return Ints(framework, rng)


def starts(lengths: Any) -> Any:
    """Exclusive prefix sum and total."""
    return np.concatenate([[0], np.cumsum(lengths)])


@pytest.mark.parametrize("fill_value", [None, -1])
@pytest.mark.parametrize("num_seqs", [0, 1, 7, 300])
def test_tables_to_ragged_and_back(
    ints: Ints, rng: Rng, num_seqs: int, fill_value: int | None
) -> None:
    cache, new = rng.integers(0, 6, num_seqs), rng.integers(0, 6, num_seqs)
    lengths = cache + new
    tables = rng.integers(0, 1000, (num_seqs, 11))
    ragged = ints(np.full(lengths.sum() + 3, 7))
    total = int(lengths.sum())
    ops.block_tables_to_ragged(
        ragged, ints(tables), ints(new), ints(cache), fill_value=fill_value, total=total
    )
    want = np.concatenate(
        [
            *[tables[i, :n] for i, n in enumerate(lengths)],
            np.full(3, 7 if fill_value is None else -1),
        ]
    )
    assert (ints.numpy(ragged) == want).all()

    padded = ints(np.full((num_seqs, 11), 7))
    ops.block_tables_to_padded(padded, ragged, ints(starts(lengths)), fill_value=fill_value)
    got = ints.numpy(padded)
    for i, n in enumerate(lengths):
        assert (got[i, :n] == tables[i, :n]).all()
        assert (got[i, n:] == (7 if fill_value is None else -1)).all()


def test_a_table_that_is_too_narrow_cuts_rows_and_touches_nothing_else(ints: Ints) -> None:
    padded = ints(np.full((3, 4), 7))
    ops.block_tables_to_padded(padded[:, :2], ints([1, 2, 3, 4, 5]), ints([0, 3, 4, 5]))
    assert ints.numpy(padded).tolist() == [[1, 2, 7, 7], [4, 7, 7, 7], [5, 7, 7, 7]]


def test_copy_next_input_ids(ints: Ints, rng: Rng) -> None:
    num_seqs, width = 40, 24
    cache, new, accepted = (
        rng.integers(0, 20, num_seqs),
        rng.integers(0, 3, num_seqs),
        rng.integers(0, 5, num_seqs),
    )
    prompt, cu = rng.integers(0, 24, num_seqs), starts(accepted)
    ids, before = rng.integers(0, 1000, cu[-1]), rng.integers(0, 1000, (num_seqs, width))
    got = ints(before)
    ops.copy_next_input_ids_inplace(got, ints(ids), ints(cu), ints(cache), ints(new), ints(prompt))
    want = before.copy()
    for i in range(num_seqs):
        for j in range(accepted[i]):
            position = cache[i] + new[i] + j
            if prompt[i] <= position < width:
                want[i, position] = ids[cu[i] + j]
    assert (ints.numpy(got) == want).all()


def test_prepare_position_slot_ids(ints: Ints, rng: Rng) -> None:
    num_seqs = 50
    cache, new = rng.integers(0, 20, num_seqs), rng.integers(0, 5, num_seqs)
    cu, cu_slots = starts(new), starts(cache + new)
    positions, slots = ints(np.full(cu[-1], -1)), ints(np.full(cu[-1], -1))
    ops.prepare_position_slot_ids(positions, slots, ints(cache), ints(cu), ints(cu_slots))
    want = np.concatenate([np.arange(c, c + n) for c, n in zip(cache, new, strict=True)])
    assert (ints.numpy(positions) == want).all()
    assert (ints.numpy(slots) == want + np.repeat(cu_slots[:-1], new)).all()
    again = ints(np.full(cu[-1], -1))
    ops.prepare_position_slot_ids(again, None, ints(cache), ints(cu), None)
    assert (ints.numpy(again) == want).all()


def test_slots_filtering(ints: Ints, rng: Rng) -> None:
    slots, kept = rng.integers(0, 1000, 200), rng.integers(0, 6, 30)
    begin, cu = rng.integers(0, 195, 30), starts(kept)
    filtered = ints(np.full(cu[-1] + 2, 7))
    ops.slots_filtering(filtered, ints(slots), ints(cu), ints(begin), fill_value=-3)
    want = np.concatenate([*[slots[b : b + n] for b, n in zip(begin, kept, strict=True)], [-3, -3]])
    assert (ints.numpy(filtered) == want).all()


def test_prepare_batch(ints: Ints) -> None:
    tables = [[10, 11, 99], [20, 21, 99], [30, 31, 32], [40, 41, 42]]
    want: dict[str, Any] = {
        "q_indptr": [0, 1, 4, 6, 6],
        "start_lengths": [5, 0, 7, 0],
        "kv_lengths": [6, 3, 9, 0],
        "page_indptr": [0, 2, 3, 6, 6],
        "last_page_len": [2, 3, 1, 0],
        "pages": [10, 11, 20, 30, 31, 32, -1, -1, -1],
        "page_table": [[10, 11, -1], [20, -1, -1], [30, 31, 32], [-1, -1, -1]],
        "positions": [5, 0, 1, 2, 7, 8, 0, 0],
        "kv_slots": [45, 80, 81, 82, 127, 128, -1, -1],
        "token_to_seq": [0, 1, 1, 1, 2, 2, -1, -1],
        "input_ids": [101, 7, 7, 7, 301, 302, 0, 0],
        "slot_ids": [2, -1, -1, -1, 2, 2, -1, -1],
        "seg_starts": [0, 4, 0, 0],
        "seg_ends": [1, 6, 0, 0],
        "seg_slots": [2, 2, -1, -1],
        "adapter_rows": [0, 4, 5, -1, -1, -1, -1, -1],
        "adapter_indptr": [0, 0, 0, 3],
        "overflow": [0],
    }
    outputs = {name: ints(np.full_like(np.asarray(values), 4242)) for name, values in want.items()}
    all_input_ids = ints(np.full((4, 10), 7))
    ops.prepare_batch(
        **outputs,
        all_input_ids=all_input_ids,
        cache_lengths=ints([4, 0, 6, 9]),
        accepted_lengths=ints([0, -1, 0, 5]),
        accepted_extra=1,
        input_lengths=ints([1, 3, 2, 1]),
        num_active=ints([3]),
        seq_page_table=ints(tables),
        page_size=4,
        adapter_slots=ints([2, -1, 2, 0]),
        next_input_ids=ints([101, 301, 302, 401]),
        next_indptr=ints([0, 1, 1, 3, 4]),
    )
    for name, values in want.items():
        assert ints.numpy(outputs[name]).tolist() == values, name
    ids = np.full((4, 10), 7)
    ids[0, 5], ids[2, 7:9] = 101, (301, 302)
    assert (ints.numpy(all_input_ids) == ids).all()


def test_prepare_batch_takes_ragged_tables_and_tells_what_it_cut(ints: Ints) -> None:
    overflow, kv_slots, q_indptr = ints([9]), ints([9, 9, 9]), ints([9, 9, 9])
    ops.prepare_batch(
        q_indptr=q_indptr,
        kv_slots=kv_slots,
        overflow=overflow,
        cache_lengths=ints([2, 0]),
        tokens_per_seq=2,
        seq_pages=ints([5]),
        seq_page_indptr=ints([0, 0, 1]),
        page_size=2,
    )
    assert ints.numpy(overflow)[0] == ops.TOKEN_OVERFLOW | ops.MISSING_PAGES
    assert ints.numpy(q_indptr).tolist() == [0, 2, 3]
    assert ints.numpy(kv_slots).tolist() == [-1, -1, 10]


def test_errors_name_the_array_the_axis_and_both_values(ints: Ints) -> None:
    with pytest.raises(ValueError, match=r"cu_seqlens.size\(0\) is 2, expected num_seqs \+ 1 = 3"):
        ops.block_tables_to_padded(ints(np.zeros((2, 3))), ints([1]), ints([0, 1]))
    with pytest.raises(
        ValueError, match="input_lengths and cache_lengths sum to 3, expected total = 4"
    ):
        ops.block_tables_to_ragged(ints([0] * 4), ints([[1, 2, 3]]), ints([1]), ints([2]), total=4)
    with pytest.raises(NotImplementedError, match="ragged is f32, supported: i32, i64"):
        ops.block_tables_to_ragged(
            ints.framework.array([0], "f32"), ints([[1]]), ints([1]), ints([0])
        )
    with pytest.raises(TypeError, match="needs the argument 'cache_lengths'"):
        ops.prepare_batch()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'pages_size'"):
        ops.prepare_batch(cache_lengths=ints([1]), pages_size=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="page_size is no integer"):
        ops.prepare_batch(cache_lengths=ints([1]), page_size="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kv_slots is asked for with page_size 0"):
        ops.prepare_batch(kv_slots=ints([1]), cache_lengths=ints([1]))


def test_validation_names_row_and_value(ints: Ints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEDDLE_VALIDATE", raising=False)
    filtered = ints([7, 7])
    call = (ints([1, 2]), ints([0, 1, 2]), ints([0, 5]))
    ops.slots_filtering(filtered, *call)
    assert ints.numpy(filtered).tolist() == [1, 7]
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match=r"slots_start\[1\] is 5, with 1 slots from there"):
        ops.slots_filtering(filtered, *call)
    with pytest.raises(
        ValueError, match=r"request 0 brings 3 tokens, expected at most the 1 that are left"
    ):
        ops.prepare_batch(positions=ints([0]), cache_lengths=ints([0]), input_lengths=ints([3]))


@pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")
def test_a_traced_step_follows_its_tensors() -> None:
    import torch

    from heddle import torch as operators

    assert "prepare_batch" in operators.OPERATORS

    def step(cache: Any, positions: Any, q_indptr: Any) -> Any:
        ops.prepare_batch(positions=positions, q_indptr=q_indptr, cache_lengths=cache)
        return positions + 1

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    cache, positions = torch.tensor([4, 7]), torch.zeros(3, dtype=torch.int32)
    q_indptr = torch.zeros(3, dtype=torch.int32)
    assert compiled(cache, positions, q_indptr).tolist() == [5, 8, 1]
    cache += 1
    assert compiled(cache, positions, q_indptr).tolist() == [6, 9, 1]
    assert q_indptr.tolist() == [0, 1, 2]
