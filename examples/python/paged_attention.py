"""A prompt and one more token over a paged cache of keys and values.

Prints how far each step is from attention over the same keys and values without pages, and exits
with 1 where that is more than rounding.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import heddle
from heddle import ops

HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, NUM_PAGES = 4, 2, 64, 16, 8
PROMPTS = [20, 5]  # tokens of two sequences

rng = np.random.default_rng(0)


def random_rows(tokens: int, heads: int) -> Any:
    """[tokens, heads, head_dim]."""
    return rng.standard_normal((tokens, heads, HEAD_DIM), np.float32)


def attention(q: Any, k: Any, v: Any) -> Any:
    """The last len(q) tokens of a sequence see the keys up to their own."""
    k, v = (np.repeat(rows, HEADS // KV_HEADS, axis=1) for rows in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD_DIM)
    seen = np.tri(len(q), len(k), len(k) - len(q), dtype=bool)
    weights = np.exp(np.where(seen, scores, -np.inf))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)


# Keys and values of a layer: numbered pages of 16 tokens. The first sequence has pages 6 and 2, the
# second page 4; their last pages hold 20 - 16 = 4 tokens and 5.
pool = np.zeros((2, NUM_PAGES, KV_HEADS, PAGE_SIZE, HEAD_DIM), np.float32)
cache = heddle.PagedKv.from_pool(pool[0], pool[1])
table = heddle.PageTable(
    page_indptr=np.array([0, 2, 3]), pages=np.array([6, 2, 4]), last_page_len=np.array([4, 5])
)

# The prompts, one after the other.
starts = np.cumsum([0, *PROMPTS])
q, k, v = (random_rows(sum(PROMPTS), heads) for heads in (HEADS, KV_HEADS, KV_HEADS))
o = np.empty_like(q)
ops.kv_init(cache, table, k, v, starts)
ops.batch_prefill(o, None, q, starts, cache, table)

# One more token for each sequence: there is room for it in the last pages.
table.last_page_len[:] += 1
next_q, next_k, next_v = (random_rows(2, heads) for heads in (HEADS, KV_HEADS, KV_HEADS))
next_o = np.empty_like(next_q)
ops.kv_append(cache, table, next_k, next_v)
ops.batch_decode(next_o, None, next_q, cache, table)

worst = 0.0
for i in range(len(PROMPTS)):
    rows = slice(starts[i], starts[i + 1])
    of_prompt = attention(q[rows], k[rows], v[rows])
    keys, values = (
        np.concatenate([k[rows], next_k[i : i + 1]]),
        np.concatenate([v[rows], next_v[i : i + 1]]),
    )
    of_next = attention(next_q[i : i + 1], keys, values)
    errors = [np.abs(o[rows] - of_prompt).max(), np.abs(next_o[i : i + 1] - of_next).max()]
    print(f"sequence {i}: error of the prompt {errors[0]:.1e}, of the next token {errors[1]:.1e}")
    worst = max(worst, *errors)
sys.exit(bool(worst > 1e-5))
