"""The paged cache of keys and values.

Pages are numbered places in a pool, `k_pages` and `v_pages` [num_pages, num_kv_heads, page_size,
head_dim] with equal strides (permute the axes of a view for token-major pages). Or, with None for
both, `pages` holds their addresses, each a page [num_layers, 2, num_kv_heads, page_size, head_dim]
without gaps, keys before values; `layer_idx` picks the layer, and `num_layers`, `page_size` and
`cache_dtype` say what an address cannot.

The page table, in CSR form: sequence i uses `pages[page_indptr[i]:page_indptr[i + 1]]`, the last of
which holds `last_page_len[i]` tokens (1 to page_size).
"""

from __future__ import annotations

from collections.abc import Sequence

from heddle._operation import Array, operation

__all__ = ["kv_append", "kv_init", "rope_kv_append"]

# Where pages are addresses, the memory behind them changes and torch cannot know; that `pages`
# counts as written keeps such calls in order.


@operation(mutates=["k_pages", "v_pages", "pages"], only_read=["pages"])
def kv_init(
    k_pages: Array | None,
    v_pages: Array | None,
    page_indptr: Array,
    pages: Array,
    last_page_len: Array,
    k: Array,
    v: Array,
    seq_indptr: Array,
    *,
    num_layers: int = 1,
    layer_idx: int = 0,
    page_size: int = 0,
    cache_dtype: str | None = None,
) -> None:
    """Stores new keys and values at the ends of the sequences.

    Token j of the n(i) of sequence i goes to its position `kv_len(i) - n(i) + j`. The
    page table describes the state after the call. Values are rounded once where the cache has
    another dtype. Nothing else in the cache is touched; sequences without pages are skipped.

    Args:
        k_pages: [num_pages, num_kv_heads, page_size, head_dim] f32|f16|bf16, updated; or None.
        v_pages: The same for values.
        page_indptr: [num_seqs + 1] i32|i64.
        pages: [page_indptr[-1]] i32|i64, page numbers; addresses, i64, without a pool.
        last_page_len: [num_seqs] i32|i64.
        k: [num_tokens, num_kv_heads, head_dim] f32|f16|bf16; last axis without gaps.
        v: The same for values.
        seq_indptr: [num_seqs + 1] i32|i64: tokens of sequence i are rows seq_indptr[i] on.
        num_layers: Layers of a page; like the rest, without a pool alone.
        layer_idx: The layer of this call.
        page_size: Tokens of a page.
        cache_dtype: "f32", "f16" or "bf16"; None: that of `k`.

    Raises:
        ValueError: Shapes that disagree, starts that descend, a layer out of range.
        NotImplementedError: Another dtype or device.

    Source: Kwon et al. 2023, arXiv 2309.06180.
    """


@operation(mutates=["k_pages", "v_pages", "pages"], only_read=["pages"])
def kv_append(
    k_pages: Array | None,
    v_pages: Array | None,
    page_indptr: Array,
    pages: Array,
    last_page_len: Array,
    k: Array,
    v: Array,
    *,
    num_layers: int = 1,
    layer_idx: int = 0,
    page_size: int = 0,
    cache_dtype: str | None = None,
) -> None:
    """`kv_init` with one new token per sequence, at position `kv_len(i) - 1`.

    Values are rounded once where the cache has another dtype.

    Args:
        k_pages: [num_pages, num_kv_heads, page_size, head_dim] f32|f16|bf16, updated; or None.
        v_pages: The same for values.
        page_indptr: [num_seqs + 1] i32|i64.
        pages: [page_indptr[-1]] i32|i64, page numbers; addresses, i64, without a pool.
        last_page_len: [num_seqs] i32|i64, new token included.
        k: [num_seqs, num_kv_heads, head_dim] f32|f16|bf16; last axis without gaps.
        v: The same for values.
        num_layers: Layers of a page; like the rest, without a pool alone.
        layer_idx: The layer of this call.
        page_size: Tokens of a page.
        cache_dtype: "f32", "f16" or "bf16"; None: that of `k`.

    Raises:
        ValueError: Shapes that disagree, starts that descend, a layer out of range.
        NotImplementedError: Another dtype or device.

    Source: Kwon et al. 2023, arXiv 2309.06180.
    """


@operation(mutates=["q", "k_pages", "v_pages", "pages"], only_read=["pages"])
def rope_kv_append(
    q: Array | None,
    k_pages: Array | None,
    v_pages: Array | None,
    page_indptr: Array,
    pages: Array,
    last_page_len: Array,
    k: Array,
    v: Array,
    seq_indptr: Array | None = None,
    positions: Array | None = None,
    *,
    theta: float = 1e4,
    scale: float = 1.0,
    rotary_dim: int = 0,
    llama3_scaling: Sequence[float] | None = None,
    num_layers: int = 1,
    layer_idx: int = 0,
    page_size: int = 0,
    cache_dtype: str | None = None,
) -> None:
    """`q = rope(q)`, then `kv_init` of `rope(k)` and `v`, in one pass with the same bits.

    Queries are turned in place, keys on their way into the cache: in f32, one product rounded and
    the other fused into the sum, rounded once to the dtype of `k`, then to that of the cache. Rows
    that are not stored are not turned either.

    Args:
        q: [num_tokens, num_q_heads, head_dim], dtype of `k`, updated; or None.
        k_pages: [num_pages, num_kv_heads, page_size, head_dim] f32|f16|bf16, updated; or None.
        v_pages: The same for values.
        page_indptr: [num_seqs + 1] i32|i64.
        pages: [page_indptr[-1]] i32|i64, page numbers; addresses, i64, without a pool.
        last_page_len: [num_seqs] i32|i64, new tokens included.
        k: [num_tokens, num_kv_heads, head_dim] f32|f16|bf16, head_dim up to 256.
        v: The same for values.
        seq_indptr: [num_seqs + 1] i32|i64: tokens of sequence i are rows seq_indptr[i] on; None:
            one new token per sequence.
        positions: [num_tokens] i32|i64: the positions of the angles; None: the tokens' places.
        theta: Base of the frequencies.
        scale: Positions are divided by it.
        rotary_dim: Leading elements of a head that turn, 0: all.
        llama3_scaling: Four numbers as in heddle.ops.rope, or None.
        num_layers: Layers of a page; like the rest, without a pool alone.
        layer_idx: The layer of this call.
        page_size: Tokens of a page.
        cache_dtype: "f32", "f16" or "bf16"; None: that of `k`.

    Raises:
        ValueError: Shapes that disagree, starts that descend, a layer out of range.
        NotImplementedError: Another dtype or device, head_dim above 256.

    Source: Su et al. 2021, arXiv 2104.09864; Kwon et al. 2023, arXiv 2309.06180.
    """
