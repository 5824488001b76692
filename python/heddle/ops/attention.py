"""Attention over the paged cache; heddle.ops.kv_cache tells how pages are given.

The bits of a row depend on its query, the keys and values that it sees and the options alone: not
on the batch, the page size, the threads, or how a prompt was cut into chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

from heddle._operation import Array, operation

__all__ = ["batch_decode", "batch_prefill", "merge_states"]


@operation(mutates=["o", "lse"])
def batch_prefill(
    o: Array,
    lse: Array | None,
    q: Array,
    q_indptr: Array,
    k_pages: Array | None,
    v_pages: Array | None,
    page_indptr: Array,
    pages: Array,
    last_page_len: Array,
    tree_mask: Array | None = None,
    tree_mask_indptr: Array | None = None,
    *,
    sm_scale: float | None = None,
    causal: bool = True,
    window_left: int = -1,
    logits_soft_cap: float = 0.0,
    rope_theta: float | None = None,
    rope_scale: float = 1.0,
    rotary_dim: int = 0,
    llama3_scaling: Sequence[float] | None = None,
    num_layers: int = 1,
    layer_idx: int = 0,
    num_kv_heads: int = 0,
    page_size: int = 0,
    cache_dtype: str | None = None,
) -> None:
    """`o[t][h] = sum_j softmax_j(s_j) v_j`, `s_j = sm_scale * q[t][h] . k_j`.

    Over the keys j that token t may see. It is number r of the q_len(i) rows of sequence i, its
    position `kv_len(i) - q_len(i) + r`. Everything is f32 between the loads and the one rounding of
    `o`. A row that sees no key is zeros.

    Args:
        o: [num_tokens, num_q_heads, head_dim] f32|f16|bf16, written.
        lse: [num_tokens, num_q_heads] f32, written: log of the sum of exp(s_j); or None.
        q: [num_tokens, num_q_heads, head_dim], dtype of `o`; num_q_heads a multiple of
            num_kv_heads.
        q_indptr: [num_seqs + 1] i32|i64: first row of each sequence.
        k_pages: [num_pages, num_kv_heads, page_size, head_dim] f32|f16|bf16, or None.
        v_pages: The same for values.
        page_indptr: [num_seqs + 1] i32|i64.
        pages: [page_indptr[-1]] i32|i64, page numbers; addresses, i64, without a pool.
        last_page_len: [num_seqs] i32|i64.
        tree_mask: [num_words] i32, or None: which of its sequence's q_len(i) new tokens each token
            sees, instead of `causal`: ceil(q_len(i) / 32) words each, bit j % 32 of word j / 32 for
            new token j. The keys before them are all seen.
        tree_mask_indptr: [num_seqs + 1] i32|i64: first word of each sequence, of which one without
            words has no mask; or None.
        sm_scale: None: 1 / sqrt(head_dim).
        causal: Keys after the token's position are not seen.
        window_left: Keys before the token's position that it sees; -1: all.
        logits_soft_cap: c > 0: s becomes c * tanh(s / c).
        rope_theta: Rotate q and k inside with this theta; None: they come rotated.
        rope_scale: Positions are divided by it.
        rotary_dim: Leading elements of a head that turn, 0: all.
        llama3_scaling: Four numbers as in heddle.ops.rope, or None.
        num_layers: Layers of a page; like the rest, without a pool alone.
        layer_idx: The layer of this call.
        num_kv_heads: 0: num_q_heads.
        page_size: Tokens of a page.
        cache_dtype: "f32", "f16" or "bf16"; None: that of `q`.

    Raises:
        ValueError: Shapes that disagree, starts that descend, a layer out of range.
        NotImplementedError: Another dtype or device, head_dim above 256.

    Source: Milakov and Gimelshein 2018, arXiv 1805.02867; Kwon et al. 2023, arXiv 2309.06180.
    """


@operation(mutates=["o", "lse"])
def batch_decode(
    o: Array,
    lse: Array | None,
    q: Array,
    k_pages: Array | None,
    v_pages: Array | None,
    page_indptr: Array,
    pages: Array,
    last_page_len: Array,
    *,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float = 0.0,
    rope_theta: float | None = None,
    rope_scale: float = 1.0,
    rotary_dim: int = 0,
    llama3_scaling: Sequence[float] | None = None,
    num_layers: int = 1,
    layer_idx: int = 0,
    num_kv_heads: int = 0,
    page_size: int = 0,
    cache_dtype: str | None = None,
) -> None:
    """`batch_prefill` with one query per sequence, at position `kv_len(i) - 1`.

    On the CPU with the bits of `batch_prefill`.

    Everything is f32 between the loads and the one rounding of `o`.

    Args:
        o: [num_seqs, num_q_heads, head_dim] f32|f16|bf16, written.
        lse: [num_seqs, num_q_heads] f32, written: log of the sum of exp(s_j); or None.
        q: [num_seqs, num_q_heads, head_dim], dtype of `o`.
        k_pages: [num_pages, num_kv_heads, page_size, head_dim] f32|f16|bf16, or None.
        v_pages: The same for values.
        page_indptr: [num_seqs + 1] i32|i64.
        pages: [page_indptr[-1]] i32|i64, page numbers; addresses, i64, without a pool.
        last_page_len: [num_seqs] i32|i64.
        sm_scale: None: 1 / sqrt(head_dim).
        window_left: Keys before the token's position that it sees; -1: all.
        logits_soft_cap: c > 0: s becomes c * tanh(s / c).
        rope_theta: Rotate q and k inside with this theta; None: they come rotated.
        rope_scale: Positions are divided by it.
        rotary_dim: Leading elements of a head that turn, 0: all.
        llama3_scaling: Four numbers as in heddle.ops.rope, or None.
        num_layers: Layers of a page; like the rest, without a pool alone.
        layer_idx: The layer of this call.
        num_kv_heads: 0: num_q_heads.
        page_size: Tokens of a page.
        cache_dtype: "f32", "f16" or "bf16"; None: that of `q`.

    Raises:
        ValueError: Shapes that disagree, starts that descend, a layer out of range.
        NotImplementedError: Another dtype or device, head_dim above 256.

    Source: Milakov and Gimelshein 2018, arXiv 1805.02867; Kwon et al. 2023, arXiv 2309.06180.
    """


@operation(mutates=["o", "lse"])
def merge_states(
    o: Array, lse: Array | None, o_a: Array, lse_a: Array, o_b: Array, lse_b: Array
) -> None:
    """Attention over the union of two disjoint key sets from the results over each.

    `lse = log(exp(lse_a) + exp(lse_b))`, `o = o_a exp(lse_a - lse) + o_b exp(lse_b - lse)`, in f32,
    rounded once. A state whose lse is -inf counts nothing; two of them give zeros and -inf.

    Args:
        o: [num_tokens, num_q_heads, head_dim] f32|f16|bf16, written; may be `o_a` or `o_b`.
        lse: [num_tokens, num_q_heads] f32, written, or None; may be `lse_a` or `lse_b`.
        o_a: As `o`.
        lse_a: [num_tokens, num_q_heads] f32, natural logarithms.
        o_b: As `o`.
        lse_b: As `lse_a`.

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: Milakov and Gimelshein 2018, arXiv 1805.02867.
    """
