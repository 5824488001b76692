"""Calls of attention and its cache, for python/tests/operations/operator_cases.py.

Two sequences of 6 and 3 tokens in pages of 4, whose last 3 and 2 tokens are new.
"""

from typing import Any

import numpy as np
from case_arrays import Call, i32, i64, nan, randn, rotated

from heddle import AttentionOptions, PagedKv, PageTable

HALF, DIM = np.float16, 64
LENGTHS, NEW, PAGES = (6, 3), (3, 2), ((2, 0), (1,))
LAST = np.arange(3, 6), np.arange(1, 3)
"""The positions of the new tokens of each sequence."""


def _table() -> PageTable:
    return PageTable(i64(0, 2, 3), i32(2, 0, 1), i64(2, 3))


def _cache() -> tuple[PagedKv, list[Any]]:
    """The cache, and keys and values of each sequence, [length, 2, DIM]."""
    k, v = randn(3, 2, 4, DIM, dtype=HALF), randn(3, 2, 4, DIM, dtype=HALF)
    tokens = []
    for length, pages in zip(LENGTHS, PAGES):
        rows = [np.concatenate([x[page] for page in pages], 1) for x in (k, v)]
        tokens.append([x[:, :length].swapaxes(0, 1) for x in rows])
    return PagedKv.from_pool(k, v), tokens


def _stored(cache: PagedKv, keys: Any, values: Any, last: Any = LAST) -> dict[str, Any]:
    """The pages with the new tokens at the ends of their sequences."""
    pages = [cache.k_pages.copy(), cache.v_pages.copy()]
    row = 0
    for seq, places in enumerate(last):
        for place in places:
            at = PAGES[seq][place // 4], slice(None), place % 4
            pages[0][at], pages[1][at] = keys[row], values[row]
            row += 1
    return {"k_pages": pages[0], "v_pages": pages[1]}


def _attention(
    q: Any, k: Any, v: Any, seen: Any, scale: float = DIM**-0.5, cap: float = 0.0
) -> tuple[Any, Any]:
    """o and lse of q [n, 4, DIM] over k, v [m, 2, DIM], in double; seen: [n, m]."""
    q, k, v = (x.astype(np.float64) for x in (q, np.repeat(k, 2, 1), np.repeat(v, 2, 1)))
    scores = np.einsum("nhd,mhd->nhm", q, k) * scale
    scores = cap * np.tanh(scores / cap) if cap else scores
    weights = np.exp(np.where(seen[:, None], scores, -np.inf))
    sums = weights.sum(-1)
    return np.einsum("nhm,mhd->nhd", weights / sums[..., None], v), np.log(sums)


def _causal(seq: int, window: int = -1) -> Any:
    """Which keys the new tokens of a sequence see."""
    at, keys = LAST[seq][:, None], np.arange(LENGTHS[seq])
    return (keys <= at) & ((window < 0) | (keys >= at - window))


def kv_init() -> Call:
    """Values are rounded to those of the pages."""
    cache, (k, v) = _cache()[0], (randn(5, 2, DIM), randn(5, 2, DIM))
    given = {"cache": cache, "table": _table(), "k": k, "v": v, "seq_indptr": i64(0, 3, 5)}
    return given, _stored(cache, k, v)


def kv_append() -> Call:
    cache, (k, v) = _cache()[0], (randn(2, 2, DIM, dtype=HALF), randn(2, 2, DIM, dtype=HALF))
    given = {"cache": cache, "table": _table(), "k": k, "v": v}
    return given, _stored(cache, k, v, last=([5], [2]))


ROPE = {"theta": 5e5, "scale": 2.0, "rotary_dim": 32, "llama3_scaling": [8.0, 1.0, 4.0, 64.0]}
FORMULA = {"theta": 5e5, "scale": 2.0, "rotary_dim": 32, "llama3": ROPE["llama3_scaling"]}


def rope_kv_append() -> Call:
    """At positions of the caller's."""
    cache, places = _cache()[0], i64(40, 41, 42, 7, 8)
    q, k, v = (randn(5, heads, DIM, dtype=HALF) for heads in (4, 2, 2))
    given = {"q": q, "cache": cache, "table": _table(), "k": k, "v": v, "positions": places}
    want = _stored(cache, rotated(k, places, **FORMULA), v)
    want["q"] = rotated(q, places, **FORMULA)
    return given | ROPE | {"seq_indptr": i32(0, 3, 5)}, want


def rope_kv_append__at_the_ends() -> Call:
    """One token each, by the lengths of the table; no queries."""
    cache, (k, v) = _cache()[0], (randn(2, 2, DIM, dtype=HALF), randn(2, 2, DIM, dtype=HALF))
    given = {"q": None, "cache": cache, "table": _table(), "k": k, "v": v}
    return given, _stored(cache, rotated(k, i64(5, 2)), v, last=([5], [2]))


def _prefill(options: AttentionOptions | None, seen: list[Any], **formula: Any) -> Call:
    cache, tokens = _cache()
    q = randn(5, 4, DIM, dtype=HALF)
    parts = [
        _attention(q[rows], *tokens[seq], seen[seq], **formula)
        for seq, rows in enumerate((slice(0, 3), slice(3, 5)))
    ]
    given = {"o": nan(5, 4, DIM, dtype=HALF), "lse": nan(5, 4), "q": q, "cache": cache}
    given |= {"q_indptr": i64(0, 3, 5), "table": _table(), "options": options}
    o, lse = (np.concatenate(part) for part in zip(*parts))
    return given, {"o": o, "lse": lse}


def batch_prefill() -> Call:
    options = AttentionOptions(sm_scale=0.3, window_left=2, logits_soft_cap=3.0)
    return _prefill(options, [_causal(0, 2), _causal(1, 2)], scale=0.3, cap=3.0)


def batch_prefill__all_keys() -> Call:
    seen = [np.ones((new, length), bool) for new, length in zip(NEW, LENGTHS)]
    return _prefill(AttentionOptions(causal=False), seen)


def batch_prefill__of_a_tree() -> Call:
    """The first sequence's second and third new token follow the first and do not see each other."""
    branches = np.concatenate([np.ones((3, 3)), [[1, 0, 0], [1, 1, 0], [1, 0, 1]]], 1) > 0
    masks = {"tree_mask": i32(1, 3, 5), "tree_mask_indptr": i64(0, 3, 3)}
    return _prefill(AttentionOptions(**masks), [branches, _causal(1)])


def batch_decode() -> Call:
    """Keys and queries turn inside."""
    cache, tokens = _cache()
    q = randn(2, 4, DIM, dtype=HALF)
    o, lse = nan(2, 4, DIM), nan(2, 4)
    for seq, (k, v) in enumerate(tokens):
        at = i64(LENGTHS[seq] - 1)
        turned = rotated(k, np.arange(LENGTHS[seq]), **FORMULA)
        query = rotated(q[seq : seq + 1], at, **FORMULA)
        o[seq : seq + 1], lse[seq : seq + 1] = _attention(query, turned, v, np.ones((1, len(k)), bool))
    options = {f"rope_{name}": ROPE[name] for name in ("theta", "scale")}
    options |= {name: ROPE[name] for name in ("rotary_dim", "llama3_scaling")}
    given = {"o": nan(2, 4, DIM, dtype=HALF), "lse": nan(2, 4), "q": q, "cache": cache}
    given |= {"table": _table(), "options": AttentionOptions(**options)}
    return given, {"o": o, "lse": lse}


def batch_decode__in_bundles() -> Call:
    """The sequence's last two tokens, of which the first sees one key less."""
    cache, tokens = _cache()
    q, (k, v) = randn(2, 4, DIM, dtype=HALF), tokens[0]
    seen = np.ones((2, len(k)), bool)
    seen[0, -1] = False
    o, lse = _attention(q, k, v, seen)
    both = _table()
    starts, pages, last = (np.asarray(getattr(both, name)) for name in ("page_indptr", "pages", "last_page_len"))
    own = pages[: starts[1]]
    table = PageTable(i32(0, len(own), 2 * len(own)), np.concatenate([own, own]), np.stack([last[0] - 1, last[0]]))
    given = {"o": nan(2, 4, DIM, dtype=HALF), "lse": nan(2, 4), "q": q, "cache": cache}
    given |= {"table": table, "options": AttentionOptions(bundle_indptr=i32(0, 2), max_bundle=2)}
    return given, {"o": o, "lse": lse}


def merge_states() -> Call:
    a, b = randn(3, 2, DIM, dtype=HALF), randn(3, 2, DIM, dtype=HALF)
    lse_a, lse_b = randn(3, 2), randn(3, 2)
    x, y = np.exp(lse_a)[..., None], np.exp(lse_b)[..., None]
    given = {"o": nan(3, 2, DIM, dtype=HALF), "lse": nan(3, 2), "o_a": a, "lse_a": lse_a}
    want = {"o": (a * x + b * y) / (x + y), "lse": np.log(x + y)[..., 0]}
    return given | {"o_b": b, "lse_b": lse_b}, want


CALLS = [
    kv_init,
    kv_append,
    rope_kv_append,
    rope_kv_append__at_the_ends,
    batch_prefill,
    batch_prefill__all_keys,
    batch_prefill__of_a_tree,
    batch_decode,
    batch_decode__in_bundles,
    merge_states,
]
