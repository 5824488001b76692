"""LoraBatch, PageTable, PagedKv, AttentionOptions: named tuples that are looked at in each call."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest
from frameworks import TORCH_WANTED, Framework

import heddle
from heddle import AttentionOptions, LoraBatch, PagedKv, PageTable, ops

needs_torch = pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")


def shrunk(framework: Framework, batch: LoraBatch) -> list[float]:
    """One number of each of two rows: slot s has the weight s + 1, rows without adapter stay 0."""
    y = framework.array(np.zeros((2, 1)), "f32")
    x = framework.array(np.ones((2, 1)), "f32")
    ops.lora_shrink(y, x, framework.array([[[1]], [[2]], [[3]]], "f32"), batch)
    return [float(row[0]) for row in framework.numpy(y)]


def test_arrays_that_are_filled_anew_are_seen(framework: Framework) -> None:
    ids = framework.array([0, 1], "i64")
    batch = LoraBatch(slot_ids=ids)
    assert shrunk(framework, batch) == [1, 2]
    ids[:] = framework.array([2, -1], "i64")
    assert shrunk(framework, batch) == [3, 0]


@needs_torch
def test_a_tensor_whose_memory_has_moved_is_seen_where_it_is() -> None:
    import torch
    from frameworks import TorchFramework

    ids = torch.tensor([0, 1])
    batch, framework = LoraBatch(slot_ids=ids), TorchFramework()
    assert shrunk(framework, batch) == [1, 2]
    first = ids.data_ptr()
    ids.data = torch.tensor([1, 2])
    assert ids.data_ptr() != first
    assert shrunk(framework, batch) == [2, 3]
    ids.set_(torch.tensor([2, 0]))  # type: ignore[call-overload]
    assert shrunk(framework, batch) == [3, 1]
    ids.resize_(1 << 20)
    with pytest.raises(ValueError, match=r"slot_ids.size\(0\) is 1048576, expected num_tokens = 2"):
        shrunk(framework, batch)
    ids.resize_(2)
    ids.copy_(torch.tensor([-1, 2]))
    assert shrunk(framework, batch) == [0, 3]


def test_an_array_that_was_resized_is_seen_as_it_is() -> None:
    from frameworks import NumpyFramework

    ids = np.array([0, 1])
    batch, framework = LoraBatch(slot_ids=ids), NumpyFramework()
    assert shrunk(framework, batch) == [1, 2]
    ids.resize(1 << 20, refcheck=False)
    with pytest.raises(ValueError, match=r"slot_ids.size\(0\) is 1048576, expected num_tokens = 2"):
        shrunk(framework, batch)


def test_a_tuple_keeps_its_arrays_alive(framework: Framework) -> None:
    batch = LoraBatch(slot_ids=framework.array([2, 1], "i32"))
    gc.collect()
    assert shrunk(framework, batch) == [3, 2]


def test_fields_do_not_change() -> None:
    batch = LoraBatch(slot_ids=np.zeros(2, np.int32))
    with pytest.raises(AttributeError):
        batch.slot_ids = None  # type: ignore[misc]
    other = batch._replace(row_scale=np.ones(2, np.float32))
    assert other.slot_ids is batch.slot_ids
    assert batch.row_scale is None


def test_what_is_printed_tells_dtypes_and_shapes(framework: Framework) -> None:
    ids = framework.array([0, 1, 2], "i32")
    pool = framework.array(np.zeros((2, 1, 4, 8)), "f16")
    assert repr(LoraBatch()) == "LoraBatch()"
    assert repr(LoraBatch(slot_ids=ids, max_pairs=2)) == "LoraBatch(slot_ids=int32[3], max_pairs=2)"
    table = PageTable(ids, ids, ids[:2])
    told = "PageTable(page_indptr=int32[3], pages=int32[3], last_page_len=int32[2])"
    assert repr(table) == told
    told = "PagedKv(k_pages=float16[2, 1, 4, 8], v_pages=float16[2, 1, 4, 8])"
    assert repr(PagedKv.from_pool(pool, pool)) == told
    told = (
        "PagedKv(dtype='f16', num_layers=3, layer_idx=1, num_kv_heads=2, page_size=16, head_dim=64)"
    )
    assert repr(PagedKv.from_pointers("f16", 3, 1, 2, 16, 64)) == told
    assert repr(AttentionOptions(causal=False, rope_theta=5e5)) == (
        "AttentionOptions(causal=False, rope_theta=500000.0)"
    )


def test_they_can_be_copied_and_stored() -> None:
    batch = LoraBatch(slot_ids=np.arange(3), max_pairs=4)
    for other in (copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert type(other) is LoraBatch
        assert other.slot_ids is not batch.slot_ids
        assert other.slot_ids.tolist() == [0, 1, 2]
        assert other.max_pairs == 4


@pytest.mark.parametrize("kind", [LoraBatch, PageTable, PagedKv, AttentionOptions])
def test_every_field_is_documented(kind: Any) -> None:
    texts = [kind.__doc__, *(getattr(kind, n).__doc__ for n in dir(kind) if n.startswith("from_"))]
    text = "\n".join(texts)
    assert [field for field in kind._fields if f" {field}: " not in text] == []
    assert kind.__name__ in heddle.__all__


@needs_torch
def test_one_may_be_made_inside_of_a_compiled_function() -> None:
    import torch

    import heddle.torch

    def step(x: Any, a: Any, ids: Any) -> Any:
        h = torch.zeros(len(x), 4)
        ops.lora_shrink(h, x, a, LoraBatch(slot_ids=ids), scale=2.0)
        return h + 1

    x, a, ids = torch.randn(3, 8), torch.randn(2, 4, 8), torch.tensor([1, -1, 0])
    assert "lora_shrink" in heddle.torch.OPERATORS
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    want = step(x, a, ids)
    assert torch.equal(compiled(x, a, ids), want)
    assert bool((want[0] != 1).any())
    assert bool((want[1] == 1).all())
