"""The metadata ops on torch's CUDA tensors: results, the drop-ins, CUDA graphs and validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frameworks import INTEGERS
from torch_on_gpu import GPU, torch

from heddle import ops
from heddle.compat.lorax import metadata_kernels

DTYPES = {"i32": torch.int32, "i64": torch.int64}


def there(values: Any, index: str = "i32") -> torch.Tensor:
    """A tensor on the GPU."""
    return torch.as_tensor(np.array(values, np.int64)).to(GPU, DTYPES[index])


def starts_of(lengths: Any) -> Any:
    return np.concatenate([[0], np.cumsum(lengths)])


def expect(got: torch.Tensor, want: Any) -> None:
    np.testing.assert_array_equal(got.cpu().numpy(), want)


def captured(call: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A graph of the call, made after the kernels are loaded."""
    call()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        call()
    return graph


def twice(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An output on the GPU and one on the CPU, whose results the oracle's tests cover."""
    return tensor, tensor.cpu()


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("num_seqs", [0, 1, 19, 700])
def test_drop_ins_are_as_on_the_cpu(rng: np.random.Generator, index: str, num_seqs: int) -> None:
    lengths, cache = rng.integers(0, 50, num_seqs), rng.integers(0, 50, num_seqs)
    accepted = rng.integers(0, 6, num_seqs)
    tables, new = there(rng.integers(0, 9999, (num_seqs, 100)), index), there(lengths)
    old, prompt = there(cache, "i64"), there(lengths + cache + rng.integers(-3, 4, num_seqs))
    starts, cu = there(starts_of(lengths + cache), "i64"), there(starts_of(lengths), index)
    given, slots_start = there(rng.integers(0, 9999, 4000)), there(rng.integers(0, 3000, num_seqs))
    next_ids, cu_next = there(rng.integers(0, 999, accepted.sum())), there(starts_of(accepted))
    padded = twice(there(np.full((num_seqs, 100), -5), index))
    positions = twice(there([-7] * (lengths.sum() + 3), index))
    slots, filtered = twice(there([-7] * (lengths.sum() + 3))), twice(positions[0].clone())
    ids = twice(there(rng.integers(0, 999, (num_seqs, 120)), index))
    ragged = []
    places: list[Callable[[torch.Tensor], torch.Tensor]] = [lambda t: t, lambda t: t.cpu()]
    for which, place in enumerate(places):
        ragged.append(
            metadata_kernels.block_tables_to_ragged(
                block_tables=place(tables),
                input_lengths=lengths.tolist(),
                cache_lengths=cache.tolist(),
                input_lengths_tensor=place(new),
                cache_lengths_tensor=place(old),
                max_current_length=100,
            )
        )
        metadata_kernels.block_tables_to_padded(100, place(starts), padded[which], ragged[which])
        metadata_kernels.prepare_position_slot_ids(
            1, place(old), place(cu), place(starts), positions[which], slots[which]
        )
        metadata_kernels.slots_filtering(
            1, place(given), filtered[which], place(cu), place(slots_start)
        )
        metadata_kernels.copy_next_input_ids_inplace(
            6, ids[which], place(old), place(new), place(prompt), place(next_ids), place(cu_next)
        )
    assert ragged[0].dtype == torch.int32 and ragged[0].device == GPU
    for got, want in (ragged, padded, positions, slots, filtered, ids):
        expect(got, want.numpy())


def test_a_graph_follows_lengths_that_change(rng: np.random.Generator) -> None:
    tables = rng.integers(0, 9999, (64, 30))
    lengths, zeros, given = there([0] * 64), there([0] * 64), there(tables)
    ragged = there([-1] * 64 * 30)
    graph = captured(lambda: ops.block_tables_to_ragged(ragged, given, lengths, zeros))
    for _ in range(3):
        new = rng.integers(0, 31, 64)
        lengths.copy_(there(new))
        ragged.fill_(-1)
        graph.replay()
        want = np.concatenate([row[:length] for row, length in zip(tables, new, strict=True)])
        expect(ragged, np.concatenate([want, np.full(64 * 30 - len(want), -1)]))


def test_prepare_batch_is_as_on_the_cpu_and_follows_in_a_graph(rng: np.random.Generator) -> None:
    num_seqs, slots, page_size = 256, 5, 16
    inputs: dict[str, Any] = {
        "cache_lengths": there([0] * num_seqs),
        "accepted_lengths": there([0] * num_seqs),
        "input_lengths": there([0] * num_seqs),
        "seq_page_table": there(rng.integers(0, 999, (num_seqs, 33)), "i64"),
        "adapter_slots": there([0] * num_seqs),
    }
    sizes = {
        "q_indptr": num_seqs + 1,
        "kv_lengths": num_seqs,
        "page_indptr": num_seqs + 1,
        "last_page_len": num_seqs,
        "pages": num_seqs * 33,
        "positions": 4 * num_seqs,
        "kv_slots": 4 * num_seqs,
        "token_to_seq": 4 * num_seqs,
        "slot_ids": 4 * num_seqs,
        "seg_starts": num_seqs,
        "seg_ends": num_seqs,
        "seg_slots": num_seqs,
        "adapter_rows": 4 * num_seqs,
        "adapter_indptr": slots + 1,
        "overflow": 1,
    }
    outputs: dict[str, Any] = {name: there([77] * size) for name, size in sizes.items()}
    scalars: dict[str, Any] = {"page_size": page_size, "accepted_extra": 1}
    graph = captured(lambda: ops.prepare_batch(**scalars, **inputs, **outputs))
    for _ in range(3):
        inputs["cache_lengths"].copy_(there(rng.integers(0, 500, num_seqs)))
        inputs["accepted_lengths"].copy_(there(rng.integers(0, 4, num_seqs)))
        inputs["input_lengths"].copy_(there(rng.integers(0, 5, num_seqs)))
        inputs["adapter_slots"].copy_(there(rng.integers(-1, slots, num_seqs)))
        graph.replay()
        want: dict[str, Any] = {
            name: torch.full((size,), 77, dtype=torch.int32) for name, size in sizes.items()
        }
        on_cpu: dict[str, Any] = {name: t.cpu() for name, t in inputs.items()}
        ops.prepare_batch(**scalars, **on_cpu, **want)
        for name, got in outputs.items():
            expect(got, want[name].numpy())


def test_validation_names_row_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, ragged = there([[9, 9, 9], [9, 9, 9]]), there([1, 2, 3, 4])
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match=r"cu_seqlens\[2\] is 1"):
        ops.block_tables_to_padded(tables, ragged, there([0, 3, 1]))
