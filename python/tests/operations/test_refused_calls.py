"""Options that an operation does not know, and arguments of another type: what the binding says.

Shapes and values are the C++ library's to check, and its tests'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import heddle
from heddle import AttentionOptions, LoraBatch, PagedKv, PageTable, ops

X = np.ones((2, 8), np.float32)
I = np.zeros(2, np.int64)  # noqa: E741
BATCH = LoraBatch(slot_ids=I)
A = np.ones((1, 4, 8), np.float32)
H = np.ones((2, 4), np.float32)
Q = np.ones((2, 2, 8), np.float32)
POOL, TABLE = PagedKv(*np.ones((2, 3, 2, 4, 8), np.float32)), PageTable(I, I, I)
F16, Y = np.zeros((8, 16), np.float16), np.zeros((2, 8), np.float16)
X16, BYTES = np.zeros((2, 16), np.float16), np.zeros(34, np.uint8)


def decode(cache: Any = POOL, table: Any = TABLE, options: Any = None) -> None:
    ops.batch_decode(Q, None, Q, cache, table, options)


def verify(count: Any) -> None:
    ops.verify_speculative_tokens(I, np.zeros(2, bool), I, I, count, 0, 4)


def shrink(batch: Any, **options: Any) -> None:
    ops.lora_shrink(H, X, A, batch, **options)


def packed(kind: str, rows: int, width: int, stored: Any = BYTES) -> heddle.PackedWeight:
    return heddle.PackedWeight(stored, kind, rows, width)


REFUSED: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ValueError, 'form is "none", expected "erf" or "tanh"', lambda: ops.gelu_and_mul(X, X, X, form="none")),
    (ValueError, "rope takes cos and sin, or positions", lambda: ops.rope(X)),
    (ValueError, "rope takes cos and sin, or positions", lambda: ops.rope(X, X)),
    (ValueError, "rope takes cos and sin, or positions", lambda: ops.rope(X, X, X, positions=I)),
    (ValueError, 'match is "best", expected "first" or "last"',
     lambda: ops.propose_ngram_drafts(I, I, I, I, 1, match="best")),
    (ValueError, "num_decode_requests has rank 1 and 2 elements", lambda: verify(I)),
    (TypeError, "num_decode_requests", lambda: verify(1.5)),
    (ValueError, "intermediate_states has 2 entries, expected 1",
     lambda: ops.mamba_state_selective_copy([X], [X, X], I, I, I, 1)),
    (TypeError, "needs the argument 'cache_lengths'", lambda: ops.prepare_batch()),  # type: ignore[call-arg]
    (TypeError, "unexpected keyword argument 'pages_size'",
     lambda: ops.prepare_batch(cache_lengths=I, pages_size=3)),  # type: ignore[call-arg]
    (TypeError, "page_size is no integer",
     lambda: ops.prepare_batch(cache_lengths=I, page_size="x")),  # type: ignore[arg-type]
    (ValueError, "k_pages and v_pages: only k_pages is given", lambda: decode(PagedKv(POOL.k_pages))),
    (ValueError, 'dtype is "f17", expected f32', lambda: decode(PagedKv.from_pointers("f17", 1, 0, 2, 4, 8))),
    (TypeError, "dtype is a NoneType", lambda: decode(PagedKv())),
    (TypeError, "cache is a PageTable, expected a heddle.PagedKv", lambda: decode(TABLE, POOL)),
    (TypeError, "table is a tuple, expected a heddle.PageTable", lambda: decode(table=tuple(TABLE))),
    (TypeError, "options is a dict, expected a heddle.AttentionOptions", lambda: decode(options={})),
    (TypeError, "llama3_scaling is a list",
     lambda: decode(options=AttentionOptions(rope_theta=1e4, llama3_scaling=[8.0, 1.0]))),
    (ValueError, 'layout is "odd", expected "rank_major" or "rank_minor"', lambda: shrink(BATCH, layout="odd")),
    (ValueError, "both seg_ends and seg_lens, expected one of them",
     lambda: shrink(LoraBatch(seg_starts=I, seg_ends=I, seg_lens=I, seg_slots=I))),
    (TypeError, "slot_ids is a list, expected an array", lambda: shrink(LoraBatch([0, 0]))),  # type: ignore[arg-type]
    (TypeError, "batch is a .*, expected a heddle.LoraBatch", lambda: shrink(I)),
    (TypeError, "max_pairs is a str", lambda: shrink(BATCH._replace(max_pairs="two"))),  # type: ignore[arg-type]
    (ValueError, 'type is "Q9", expected one of F32, F16', lambda: packed("Q9", 1, 32)),
    (ValueError, r"stored has 34 bytes, expected 68 for Q8_0 \[2, 32\]", lambda: packed("Q8_0", 2, 32)),
    (ValueError, "in_features is 33, expected a multiple of 32 for Q8_0", lambda: packed("Q8_0", 1, 33)),
    (ValueError, "stored bytes: 288230376151711744 x 4096, expected 0 to",
     lambda: packed("F32", 2**58, 2**10, BYTES[:0])),
    (ValueError, "y has 1 arrays, weight has 0", lambda: ops.linear([X], X, [])),
    (ValueError, "y has 1 arrays, weight has 2", lambda: ops.linear_site([Y], X16, [F16, F16])),
    (ValueError, "y has 1 arrays, bias has 0", lambda: ops.linear_site([Y], X16, [F16], bias=[])),
    (ValueError, 'path is "fast", expected "decode" or "prompt"',
     lambda: ops.linear_site([Y], X16, [F16], path="fast")),
    (ValueError, "1 of a, b and batch given, expected all or none",
     lambda: ops.linear_site([Y], X16, [F16], a=heddle.AdapterTable(1, [16], 4, dtype="f16"))),
]  # fmt: skip


@pytest.mark.parametrize(("error", "said", "call"), REFUSED, ids=[said for _, said, _ in REFUSED])
def test_what_is_refused_is_named(
    error: type[Exception], said: str, call: Callable[[], Any]
) -> None:
    with pytest.raises(error, match=said):
        call()


def test_heddle_validate_is_read_in_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEDDLE_VALIDATE", raising=False)
    filtered, starts = np.array([7, 7]), np.array([0, 5])
    call = (np.array([1, 2]), np.array([0, 1, 2]), starts)
    ops.slots_filtering(filtered, *call)
    assert filtered.tolist() == [1, 7]
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match=r"slots_start\[1\] is 5, with 1 slots from there"):
        ops.slots_filtering(filtered, *call)
