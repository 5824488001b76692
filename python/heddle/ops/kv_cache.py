"""The paged cache of keys and values.

A `heddle.PagedKv` says where pages lie, a `heddle.PageTable` which of them each sequence uses.
"""

from __future__ import annotations

from collections.abc import Sequence

from heddle._arguments import PagedKv, PageTable
from heddle._operation import Array, operation

__all__ = ["kv_append", "kv_init", "rope_kv_append"]

# Where pages are addresses, the memory that they point to changes and torch cannot know; that `pages`
# counts as written keeps such calls in order.
_PAGES = ["cache.k_pages", "cache.v_pages", "cache.k_scales", "cache.v_scales", "table.pages"]


@operation(mutates=_PAGES, only_read=["table.pages"])
def kv_init(
    cache: PagedKv,
    table: PageTable,
    k: Array,
    v: Array,
    seq_indptr: Array,
) -> None:
    """Stores new keys and values at the ends of the sequences.

    Token j of the n(i) of sequence i goes to its position `kv_len(i) - n(i) + j`. The
    page table describes the state after the call. Values are rounded once where the cache has
    another dtype. Nothing else in the cache is touched; sequences without pages are skipped.

    Args:
        cache: Where the pages lie, f32|f16|bf16; updated.
        table: The pages of each sequence, new tokens included.
        k: [num_tokens, num_kv_heads, head_dim] f32|f16|bf16; last axis without gaps.
        v: The same for values.
        seq_indptr: [num_seqs + 1] i32|i64: tokens of sequence i are rows seq_indptr[i] on.

    Raises:
        ValueError: Shapes that disagree, starts that descend, a layer out of range.
        NotImplementedError: Another dtype or device.

    Source: Kwon et al. 2023, arXiv 2309.06180.
    """


@operation(mutates=_PAGES, only_read=["table.pages"])
def kv_append(
    cache: PagedKv,
    table: PageTable,
    k: Array,
    v: Array,
) -> None:
    """`kv_init` with one new token per sequence, at position `kv_len(i) - 1`.

    Values are rounded once where the cache has another dtype.

    Args:
        cache: Where the pages lie, f32|f16|bf16; updated.
        table: The pages of each sequence, new tokens included.
        k: [num_seqs, num_kv_heads, head_dim] f32|f16|bf16; last axis without gaps.
        v: The same for values.

    Raises:
        ValueError: Shapes that disagree, starts that descend, a layer out of range.
        NotImplementedError: Another dtype or device.

    Source: Kwon et al. 2023, arXiv 2309.06180.
    """


@operation(mutates=["q", *_PAGES], only_read=["table.pages"])
def rope_kv_append(
    q: Array | None,
    cache: PagedKv,
    table: PageTable,
    k: Array,
    v: Array,
    seq_indptr: Array | None = None,
    positions: Array | None = None,
    *,
    theta: float = 1e4,
    scale: float = 1.0,
    rotary_dim: int = 0,
    llama3_scaling: Sequence[float] | None = None,
) -> None:
    """`q = rope(q)`, then `kv_init` of `rope(k)` and `v`, in one pass with the same bits.

    Queries are turned in place, keys on their way into the cache: in f32, one product rounded and
    the other fused into the sum, rounded once to the dtype of `k`, then to that of the cache. Rows
    that are not stored are not turned either.

    Args:
        q: [num_tokens, num_q_heads, head_dim], dtype of `k`, updated; or None.
        cache: Where the pages lie, f32|f16|bf16; updated.
        table: The pages of each sequence, new tokens included.
        k: [num_tokens, num_kv_heads, head_dim] f32|f16|bf16, head_dim up to 256.
        v: The same for values.
        seq_indptr: [num_seqs + 1] i32|i64: tokens of sequence i are rows seq_indptr[i] on; None:
            one new token per sequence.
        positions: [num_tokens] i32|i64: the positions of the angles; None: the tokens' places.
        theta: Base of the frequencies.
        scale: Positions are divided by it.
        rotary_dim: Leading elements of a head that turn, 0: all.
        llama3_scaling: Four numbers as in heddle.ops.rope, or None.

    Raises:
        ValueError: Shapes that disagree, starts that descend, a layer out of range.
        NotImplementedError: Another dtype or device, head_dim above 256.

    Source: Su et al. 2021, arXiv 2104.09864; Kwon et al. 2023, arXiv 2309.06180.
    """
