"""Attention over the paged cache; `heddle.PagedKv` and `heddle.PageTable` tell where it lies.

The bits of a row depend on its query, the keys and values that it sees and the options alone: not
on the batch, the page size, the threads, or how a prompt was cut into chunks.
"""

from __future__ import annotations

from heddle import _core
from heddle._arguments import AttentionOptions, PagedKv, PageTable
from heddle._operation import Array, operation

__all__ = ["batch_decode", "batch_prefill", "decode_bundle", "merge_states"]


@operation(mutates=["o", "lse"])
def batch_prefill(
    o: Array,
    lse: Array | None,
    q: Array,
    q_indptr: Array,
    cache: PagedKv,
    table: PageTable,
    options: AttentionOptions | None = None,
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
        cache: The keys and values, f32|f16|bf16.
        table: The pages of each sequence.
        options: Scale, window, soft cap, rotation, tree masks; None: those of
            `heddle.AttentionOptions()`.

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
    cache: PagedKv,
    table: PageTable,
    options: AttentionOptions | None = None,
) -> None:
    """`batch_prefill` with one query per sequence, at position `kv_len(i) - 1`.

    On the CPU with the bits of `batch_prefill`.

    Everything is f32 between the loads and the one rounding of `o`.

    Args:
        o: [num_seqs, num_q_heads, head_dim] f32|f16|bf16, written.
        lse: [num_seqs, num_q_heads] f32, written: log of the sum of exp(s_j); or None.
        q: [num_seqs, num_q_heads, head_dim], dtype of `o`.
        cache: The keys and values, f32|f16|bf16.
        table: The pages of each sequence.
        options: Scale, window, soft cap, rotation, bundles; None: those of
            `heddle.AttentionOptions()`.

    Raises:
        ValueError: Shapes that disagree, starts that descend, a layer out of range.
        NotImplementedError: Another dtype or device, head_dim above 256.

    Source: Milakov and Gimelshein 2018, arXiv 1805.02867; Kwon et al. 2023, arXiv 2309.06180.
    """


def decode_bundle(
    cache_dtype: str,
    num_q_heads: int,
    num_kv_heads: int,
    head_dim: int,
    window_left: int,
    kv_len: int,
    num_queries: int,
) -> int:
    """How many queries of a sequence may be one bundle of `batch_decode`.

    Of `num_queries`, the first of which shows `kv_len` keys and each later one a key more: those
    from the first on that a GPU cuts alike and has room for. The same for all devices.

    Args:
        cache_dtype: "f32", "f16", "bf16" or "f8e4m3"; of the last each query is alone.
        num_q_heads: Heads of the queries.
        num_kv_heads: Heads of the cache.
        head_dim: Elements of a head.
        window_left: As in `heddle.AttentionOptions`; -1: all keys.
        kv_len: Keys of the first query.
        num_queries: At least 1.

    Returns:
        1 to 16.

    Raises:
        ValueError: Numbers below 1, heads that do not divide.
    """
    return _core.decode_bundle(
        cache_dtype, num_q_heads, num_kv_heads, head_dim, window_left, kv_len, num_queries
    )


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
