"""heddle.ops: verification of drafts, the next pass, the cache's rewind, and all in one step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import INTEGERS, Framework

from heddle import ops


class Batch:
    """A drafted batch and the state of its cache as lists, with the formulas in plain Python."""

    def __init__(
        self, rng: np.random.Generator, decode: int, prefill: int, most: int, ragged: bool
    ):
        self.decode, self.prefill, self.most, self.ragged = decode, prefill, most, ragged
        self.rows = decode + prefill
        self.drafts = [int(rng.integers(0, most + 1)) if ragged else most for _ in range(decode)]
        self.indptr = np.cumsum([0, *self.drafts]).tolist()
        self.output = rng.integers(0, 9, self.rows + self.indptr[-1] + 2).tolist()
        right = rng.integers(0, 2, len(self.output))
        self.input = rng.integers(0, 9, len(self.output)).tolist()
        for t in range(1, len(self.output)):
            if right[t]:
                self.input[t] = self.output[t - 1]
        self.required = rng.integers(0, 999, len(self.output)).tolist()
        self.block_size, self.max_blocks = int(rng.integers(1, 5)), most + 4
        longest = self.block_size * self.max_blocks
        self.length = rng.integers(most + 1, longest + 1, self.rows).tolist()
        self.ids = []
        for n in self.length:
            count = -(-n // self.block_size)
            free = [-1] * (self.max_blocks - count)
            self.ids.append(rng.integers(0, 99, count).tolist() + free)

    def bases(self) -> list[int]:
        """First token of each request."""
        behind = self.decode + self.indptr[-1]
        decode = [p + self.indptr[p] for p in range(self.decode)]
        return decode + [behind + p for p in range(self.prefill)]

    def accepted(self) -> list[int]:
        """Accepted drafts of each request."""
        counts = [0] * self.rows
        for p, (base, drafts) in enumerate(zip(self.bases(), self.drafts, strict=False)):
            while (
                counts[p] < drafts
                and self.input[base + counts[p] + 1] == self.output[base + counts[p]]
            ):
                counts[p] += 1
        return counts

    def rejected(self) -> list[int]:
        """Rejected drafts of each request."""
        drafts = self.drafts + [0] * self.prefill
        return [n - kept for n, kept in zip(drafts, self.accepted(), strict=True)]


@pytest.fixture(params=[False, True], ids=["uniform", "ragged"])
def batch(request: pytest.FixtureRequest, rng: np.random.Generator) -> Batch:
    """Seven decode and two prefill requests with up to four drafts."""
    return Batch(rng, decode=7, prefill=2, most=4, ragged=request.param)


class Arrays:
    """The arrays of a batch; outputs are full of 7."""

    def __init__(self, framework: Framework, batch: Batch, dtype: str):
        def array(values: Any, kind: str = dtype) -> Any:
            return framework.array(values, kind)

        self.framework, rows = framework, batch.rows
        self.input, self.output = array(batch.input), array(batch.output)
        self.required = array(batch.required)
        self.last_ones, self.mask = array([7] * rows), array([1] * len(batch.input), "bool")
        self.sampled, self.last_seq = array([7] * rows), array([7] * rows)
        self.tokens, self.counts = array([[7] * batch.most] * rows), array([7] * rows)
        counts = [-(-n // batch.block_size) for n in batch.length]
        self.state = [
            array([(n - 1) % batch.block_size for n in batch.length]),
            array(batch.length),
            array(counts),
            array([row[n - 1] for row, n in zip(batch.ids, counts, strict=True)]),
            array(batch.ids),
        ]
        self.blocks, self.remove = array([7] * rows), array([1] * rows, "bool")
        self.released, self.num_released = array([7] * rows * 4), array([7])
        self.drafts: dict[str, Any] = {}
        if batch.ragged:
            self.drafts["draft_indptr"] = array(batch.indptr)

    def values(self, array: Any) -> Any:
        """As a list."""
        return self.framework.numpy(array).tolist()

    def check(self, batch: Batch) -> None:
        """All outputs but those of the next step, against the formulas."""
        bases, accepted = batch.bases(), batch.accepted()
        last_ones = [base + n for base, n in zip(bases, accepted, strict=True)]
        kept = {
            t for base, last in zip(bases, last_ones, strict=True) for t in range(base, last + 1)
        }
        assert self.values(self.last_ones) == last_ones
        assert self.values(self.mask) == [int(t in kept) for t in range(len(batch.input))]
        assert self.values(self.sampled) == [batch.output[t] for t in last_ones]
        assert self.values(self.last_seq) == [batch.required[t] for t in last_ones]
        prefill_rows = [[7] * batch.most] * batch.prefill
        assert self.values(self.counts) == accepted[: batch.decode] + [7] * batch.prefill
        decode_rows = [
            batch.input[base + 1 : base + 1 + n] + [-1] * (batch.most - n)
            for base, n in zip(bases[: batch.decode], accepted, strict=False)
        ]
        assert self.values(self.tokens) == decode_rows + prefill_rows
        self.check_cache(batch)

    def check_cache(self, batch: Batch) -> None:
        """The state of the cache and what left it."""
        released, last_ids, removed = [], [], []
        for i, rejected in enumerate(batch.rejected()):
            length = batch.length[i] - rejected
            before, now = (-(-n // batch.block_size) for n in (batch.length[i], length))
            ids = batch.ids[i]
            released += ids[now:before][::-1]
            last_ids.append(ids[before - 1])
            removed.append(int(now < before))
            kept = ids[:now] + [-1] * (batch.max_blocks - now)
            want = [(length - 1) % batch.block_size, length, now, kept[now - 1], kept]
            assert [self.values(array)[i] for array in self.state] == want
        assert self.values(self.blocks) == last_ids
        assert self.values(self.remove) == removed
        assert self.values(self.num_released) == [len(released)]
        assert self.values(self.released)[: len(released)] == released


@pytest.mark.parametrize("dtype", INTEGERS)
def test_verify_prepare_and_rewind(framework: Framework, batch: Batch, dtype: str) -> None:
    a = Arrays(framework, batch, dtype)
    ops.verify_speculative_tokens(
        a.last_ones,
        a.mask,
        a.input,
        a.output.reshape(1, -1),
        batch.decode,
        batch.prefill,
        batch.most,
        **a.drafts,
    )
    ops.prepare_next_forward_pass(
        a.sampled,
        a.last_seq,
        a.tokens,
        a.counts,
        a.output,
        a.required,
        a.last_ones,
        a.mask,
        a.input,
        batch.decode,
        batch.most,
        **a.drafts,
    )
    ops.rewind_kv_cache(
        a.blocks,
        a.remove,
        *a.state,
        a.counts,
        framework.array([0] * batch.decode + [1] * batch.prefill, "i32"),
        batch.most,
        batch.block_size,
        released_ids=a.released,
        num_released=a.num_released,
        **a.drafts,
    )
    a.check(batch)


@pytest.mark.parametrize("counts", ["host", "device"])
def test_speculative_step(framework: Framework, batch: Batch, counts: str) -> None:
    a = Arrays(framework, batch, "i64")
    positions, slots = (framework.array([[7] * 3] * batch.rows, "i32") for _ in range(2))
    kv_lens, last_page_len = (framework.array([7] * batch.rows, "i32") for _ in range(2))
    decode, prefill = batch.decode, batch.prefill
    on_device = framework.array([decode], "i32"), framework.array([prefill], "i64")
    ops.speculative_step(
        *a.state,
        a.input,
        a.output,
        *(on_device if counts == "device" else (decode, prefill)),
        batch.most,
        batch.block_size,
        required_logit_indices=a.required,
        last_one_indices=a.last_ones,
        accepted_tokens_mask=a.mask,
        sampled_tokens=a.sampled,
        last_accepted_seq=a.last_seq,
        accepted_tokens=a.tokens,
        accepted_counts=a.counts,
        blocks_to_release=a.blocks,
        remove_mask=a.remove,
        released_ids=a.released,
        num_released=a.num_released,
        next_positions=positions,
        next_slots=slots,
        next_kv_lens=kv_lens,
        next_last_page_len=last_page_len,
        num_next_tokens=3,
        **a.drafts,
    )
    a.check(batch)
    for i, rejected in enumerate(batch.rejected()):
        length = batch.length[i] - rejected
        blocks, size = -(-length // batch.block_size), batch.block_size
        places = [length, length + 1, length + 2]
        assert a.values(positions)[i] == places
        assert a.values(slots)[i] == [
            batch.ids[i][n // size] * size + n % size if n // size < blocks else -1 for n in places
        ]
        assert a.values(kv_lens)[i] == length + 3
        assert a.values(last_page_len)[i] == (length + 2) % size + 1


def test_rewind_leaves_padding_alone(framework: Framework, batch: Batch) -> None:
    a = Arrays(framework, batch, "i32")
    before = [a.values(array) for array in a.state]
    nothing = framework.array([0] * batch.rows, "i64")
    for active in (0, framework.array([0], "i32"), np.int64(0)):
        ops.rewind_kv_cache(a.blocks, a.remove, *a.state, nothing, nothing, 4, 2, num_active=active)
    assert [a.values(array) for array in a.state] == before
    assert a.values(a.blocks) == [0] * batch.rows
    assert a.values(a.remove) == [0] * batch.rows
    ops.rewind_kv_cache(None, None, *a.state, nothing, nothing, 0, 2)
    assert a.values(a.state[1]) == before[1]


def test_placeholders_are_compared_or_rejected(framework: Framework) -> None:
    tokens = framework.array([-1, -1, -1], "i64")
    last, mask = framework.array([0], "i64"), framework.array([0] * 3, "bool")
    ragged = {"draft_indptr": framework.array([0, 2], "i32")}
    for options, want in [
        ({}, 2),
        ({"reject_placeholders": True}, 0),
        (ragged, 0),
        (ragged | {"reject_placeholders": False}, 2),
    ]:
        ops.verify_speculative_tokens(last, mask, tokens, tokens, 1, 0, 2, **options)
        assert framework.numpy(last)[0] == want


def test_prefill_rows_are_written_where_asked(framework: Framework) -> None:
    def array(values: Any, dtype: str = "i64") -> Any:
        return framework.array(values, dtype)

    one, mask = array([5]), array([1], "bool")
    sampled, last_seq, tokens, counts = array([7]), array([7]), array([[7, 7]]), array([7])
    outputs = (sampled, last_seq, tokens, counts)
    ops.prepare_next_forward_pass(*outputs, one, one, array([0]), mask, one, 0, 2)
    assert [framework.numpy(x).tolist() for x in outputs] == [[5], [5], [[7, 7]], [7]]
    inputs = (one, one, array([0]), mask, one)
    ops.prepare_next_forward_pass(*outputs, *inputs, 0, 2, write_prefill_rows=True)
    assert [framework.numpy(x).tolist() for x in outputs] == [[5], [5], [[-1, -1]], [0]]


def test_errors(framework: Framework, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    a = Arrays(framework, batch, "i32")
    verify = (a.last_ones, a.mask, a.input, a.output)
    with pytest.raises(ValueError, match="num_decode_requests is 99, expected 0 to 9"):
        ops.verify_speculative_tokens(*verify, 99, 0, 4)
    with pytest.raises(ValueError, match="num_decode_requests has rank 1 and 9 elements"):
        ops.verify_speculative_tokens(*verify, a.last_ones, 0, 4)
    with pytest.raises(TypeError, match="num_decode_requests"):
        ops.verify_speculative_tokens(*verify, 1.5, 0, 4)  # type: ignore[arg-type]
    nothing = framework.array([0] * batch.rows, "i64")
    wrong = framework.array([0, 0, 9] + [0] * (batch.rows - 3), "i64")
    with pytest.raises(
        ValueError, match=r"prefill_status.size\(0\) is 3, expected at least .* = 9"
    ):
        ops.rewind_kv_cache(None, None, *a.state, nothing, nothing[:3], 4, batch.block_size)
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match=r"accepted_counts\[2\] is 9, expected 0 to .* = 0"):
        ops.rewind_kv_cache(None, None, *a.state, wrong, nothing, 0, batch.block_size)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_ngram_drafts(framework: Framework, rng: np.random.Generator, dtype: str) -> None:
    rows, wide, most = 9, 40, 4
    tokens = rng.integers(0, 3, (rows, wide)).tolist()
    lengths = [0, 1, *rng.integers(2, wide + 1, rows - 2).tolist()]
    for match in ("first", "last"):
        drafts = framework.array([[7] * most] * rows, dtype)
        counts = framework.array([7] * rows, dtype)
        ops.propose_ngram_drafts(
            drafts, counts, framework.array(tokens, dtype), framework.array(lengths, dtype), most,
            rows - 1, min_ngram=2, max_ngram=4, match=match, max_length=wide,
        )  # fmt: skip
        want = []
        for row, length in zip(tokens[:-1], lengths, strict=False):
            found: list[int] = []
            for n in (2, 3, 4):
                last = row[length - n : length]
                starts = [s for s in range(length - n) if row[s : s + n] == last]
                if starts:
                    begin = starts[0 if match == "first" else -1] + n
                    found = row[begin : min(length, begin + most)][: wide - length]
            want.append(found)
        want.append([])  # padding
        assert framework.numpy(counts).tolist() == [len(found) for found in want]
        assert framework.numpy(drafts).tolist() == [
            found + [-1] * (most - len(found)) for found in want
        ]


def test_ngram_drafts_refuse_another_match(framework: Framework) -> None:
    array = framework.array([[1, 2]], "i32")
    with pytest.raises(ValueError, match='match is "best", expected "first" or "last"'):
        ops.propose_ngram_drafts(array, array, array, array, 1, match="best")
