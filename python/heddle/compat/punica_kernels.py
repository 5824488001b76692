"""Drop-in for the extension module `punica_kernels`: paged attention, LoRA by address, and RMSNorm.

Arrays may lie on the CPU, where pointer tables hold host addresses, and on a GPU; index arrays are
int32 or int64. Every shape works, an empty batch included. `tmp` and `tmpbuf` may be anything: no
scratch is taken from them. Wrong calls raise RuntimeError.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from heddle import _core, ops
from heddle._arguments import AttentionOptions, LoraBatch, PagedKv, PageTable
from heddle.compat._arrays import dtype_name, in_any_layout, name_of

__all__ = [
    "append_kv",
    "batch_decode",
    "batch_prefill",
    "dispatch_bgmv",
    "init_kv",
    "rms_norm",
    "sgmv_cutlass",
    "sgmv_cutlass_tmp_size",
    "sgmv_shrink",
]

P = ParamSpec("P")
R = TypeVar("R")

# Ranks that one call of a LoRA operation takes; more take several calls.
_MAX_RANK = 512


def _raises_runtime_error(function: Callable[P, R]) -> Callable[P, R]:
    """Errors of arguments become RuntimeError, as a torch extension raises them."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (ValueError, MemoryError) as error:
            raise RuntimeError(str(error)) from error

    return call


def _accepts_indices(function: Callable[P, R]) -> Callable[P, R]:
    """The keyword `indices` may be spelled so, too."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if "indices" in kwargs:
            if "indicies" in kwargs:
                raise TypeError("dispatch_bgmv() got both indicies and indices")
            kwargs["indicies"] = kwargs.pop("indices")
        return function(*args, **kwargs)

    return call


@_raises_runtime_error
def batch_prefill(
    o: Any,
    q: Any,
    qo_indptr: Any,
    kv_ptrs: Any,
    kv_indptr: Any,
    last_page_offset: Any,
    tmpbuf: Any,
    num_layers: int,
    layer_idx: int,
    num_kv_heads: int,
    page_size: int,
    *,
    rope: str = "llama",
    rope_theta: float = 1e4,
    rope_scale: float = 1.0,
    rotary_dim: int | None = None,
    sm_scale: float | None = None,
    causal: bool = True,
    window_left: int = -1,
    logits_soft_cap: float = 0.0,
    lse: Any = None,
) -> None:
    """Attention of new tokens to their sequences, in which their own keys and values are the last.

    Keys are rotated inside, with the positions that they have in their sequence; so are queries,
    the last of which has the position of the last key.

    Args:
        o: [tokens, num_q_heads, head_dim] f32|f16|bf16, overwritten.
        q: As o, not rotated.
        qo_indptr: [batch + 1], first row of each request.
        kv_ptrs: [pages] int64, addresses of pages [num_layers, 2, num_kv_heads, page_size,
            head_dim] of q's dtype.
        kv_indptr: [batch + 1], first entry in kv_ptrs of each request.
        last_page_offset: [batch], tokens in the last page, 1 to page_size.
        tmpbuf: Not used.
        num_layers: Layers of a page.
        layer_idx: The layer of this call.
        num_kv_heads: A divisor of num_q_heads.
        page_size: Tokens of a page.
        rope: "llama" rotates q and k inside (element d with d + rotary_dim / 2), "none" takes them
            as they are.
        rope_theta: Base of the frequencies.
        rope_scale: Positions are divided by it.
        rotary_dim: Leading elements of a head that turn; None: all.
        sm_scale: Factor of the products; None: 1 / sqrt(head_dim).
        causal: A query sees no key after its own position.
        window_left: Keys before its own position that a query sees; -1: all.
        logits_soft_cap: c > 0: the products s become c * tanh(s / c).
        lse: [tokens, num_q_heads] f32, gets the natural log of the sum of exp(s); or None.
    """
    options = _attention_options(
        rope, rope_theta, rope_scale, rotary_dim, sm_scale, causal, window_left, logits_soft_cap
    )
    cache = _pages(q, num_layers, layer_idx, num_kv_heads, page_size)

    def attend(out: Any, queries: Any, ptrs: Any) -> None:
        table = PageTable(kv_indptr, ptrs, last_page_offset)
        ops.batch_prefill(out, lse, queries, qo_indptr, cache, table, options)

    in_any_layout(attend, o, q, kv_ptrs)


@_raises_runtime_error
def batch_decode(
    o: Any,
    q: Any,
    kv_ptrs: Any,
    kv_indptr: Any,
    last_page_offset: Any,
    tmpbuf: Any,
    num_layers: int,
    layer_idx: int,
    num_kv_heads: int,
    page_size: int,
    *,
    rope: str = "llama",
    rope_theta: float = 1e4,
    rope_scale: float = 1.0,
    rotary_dim: int | None = None,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float = 0.0,
    lse: Any = None,
) -> None:
    """batch_prefill with one new token per request.

    o and q are [batch, num_q_heads, head_dim], lse is [batch, num_q_heads].
    """
    options = _attention_options(
        rope, rope_theta, rope_scale, rotary_dim, sm_scale, True, window_left, logits_soft_cap
    )
    cache = _pages(q, num_layers, layer_idx, num_kv_heads, page_size)

    def attend(out: Any, queries: Any, ptrs: Any) -> None:
        table = PageTable(kv_indptr, ptrs, last_page_offset)
        ops.batch_decode(out, lse, queries, cache, table, options)

    in_any_layout(attend, o, q, kv_ptrs)


@_raises_runtime_error
def init_kv(
    kv_ptrs: Any,
    kv_indptr: Any,
    last_page_offset: Any,
    k: Any,
    v: Any,
    seqlen_indptr: Any,
    num_layers: int,
    layer_idx: int,
    num_kv_heads: int,
    page_size: int,
) -> None:
    """Stores keys and values at the end of sequences, whose tables tell the length with them.

    Args:
        kv_ptrs: [pages] int64, addresses of pages [num_layers, 2, num_kv_heads, page_size,
            head_dim] of k's dtype.
        kv_indptr: [batch + 1], first entry in kv_ptrs of each request.
        last_page_offset: [batch], tokens in the last page, 1 to page_size.
        k: [tokens, num_kv_heads, head_dim] f32|f16|bf16, not rotated.
        v: As k.
        seqlen_indptr: [batch + 1], first row of k and v of each request.
        num_layers: Layers of a page.
        layer_idx: The layer of this call.
        num_kv_heads: Heads of k and v.
        page_size: Tokens of a page.
    """
    cache = _cache_pages(k, v, num_layers, layer_idx, num_kv_heads, page_size)

    def store(_: None, ptrs: Any, keys: Any, values: Any) -> None:
        table = PageTable(kv_indptr, ptrs, last_page_offset)
        ops.kv_init(cache, table, keys, values, seqlen_indptr)

    in_any_layout(store, None, kv_ptrs, k, v)


@_raises_runtime_error
def append_kv(
    kv_ptrs: Any,
    kv_indptr: Any,
    last_page_offset: Any,
    k: Any,
    v: Any,
    num_layers: int,
    layer_idx: int,
    num_kv_heads: int,
    page_size: int,
) -> None:
    """init_kv with one new token per request: k and v [batch, num_kv_heads, head_dim]."""
    cache = _cache_pages(k, v, num_layers, layer_idx, num_kv_heads, page_size)

    def store(_: None, ptrs: Any, keys: Any, values: Any) -> None:
        ops.kv_append(cache, PageTable(kv_indptr, ptrs, last_page_offset), keys, values)

    in_any_layout(store, None, kv_ptrs, k, v)


@_accepts_indices
@_raises_runtime_error
def dispatch_bgmv(y: Any, x: Any, w_ptr: Any, indicies: Any, layer_idx: int, scale: float) -> None:
    """`y[i] += scale * W[indicies[i]][layer_idx] x[i]`, summed in f32 and rounded once.

    Args:
        y: [batch, h_out] f32|f16|bf16, updated; rows with a negative index, one past the table, or
            a null pointer are not touched.
        x: [batch, h_in] f32|f16|bf16.
        w_ptr: [adapters] int64, addresses of weights [layers, h_out, h_in] of x's dtype, or y's
            where x alone is f32.
        indicies: [batch], also accepted as `indices`.
        layer_idx: The layer of this call.
        scale: Factor of every row.
    """
    _add_product(y, x, w_ptr, layer_idx, scale, LoraBatch(slot_ids=indicies))


@_raises_runtime_error
def sgmv_cutlass(
    y: Any, x: Any, w_ptr: Any, s_start: Any, s_end: Any, tmp: Any, layer_idx: int
) -> None:
    """`y[t] += x[t] W[i][layer_idx]` for the rows t from s_start[i] to s_end[i], rounded once.

    Args:
        y: [tokens, h_out] f32|f16|bf16, updated; rows in no segment, or in one with a null pointer,
            are not touched.
        x: [tokens, h_in] f32|f16|bf16.
        w_ptr: [segments] int64, addresses of weights [layers, h_in, h_out] of x's dtype, or y's
            where x alone is f32.
        s_start: [segments], first row.
        s_end: [segments], row after the last; up to s_start: an empty segment.
        tmp: Not used.
        layer_idx: The layer of this call.
    """
    batch = LoraBatch(seg_starts=s_start, seg_ends=s_end)
    _add_product(y, x, w_ptr, layer_idx, 1.0, batch, input_major=True)


@_raises_runtime_error
def sgmv_shrink(
    y: Any, x: Any, w_ptr: Any, s_start: Any, s_end: Any, tmp: Any, layer_idx: int
) -> None:
    """sgmv_cutlass with weights [layers, h_out, h_in]."""
    _add_product(y, x, w_ptr, layer_idx, 1.0, LoraBatch(seg_starts=s_start, seg_ends=s_end))


def sgmv_cutlass_tmp_size(num_problems: int) -> int:
    """Bytes of the `tmp` that the original needs."""
    return 60 * operator.index(num_problems)


@_raises_runtime_error
def rms_norm(output: Any, input: Any, weight: Any, epsilon: float) -> None:
    """`output = input / sqrt(mean(input^2) + epsilon) * weight` over the last axis, rounded once.

    Args:
        output: [..., width] f32|f16|bf16, overwritten; may be the input.
        input: As output.
        weight: [width], output's dtype or f32.
        epsilon: Added to the mean of squares.
    """
    in_any_layout(lambda y, x, w: ops.rms_norm(y, x, w, epsilon=epsilon), output, input, weight)


def _add_product(
    y: Any,
    x: Any,
    w_ptr: Any,
    layer_idx: int,
    scale: float,
    batch: LoraBatch,
    input_major: bool = False,
) -> None:
    """y += scale * W x, as the half of LoRA whose rank is the smaller of the two widths."""
    h_out, h_in = _width("y", y), _width("x", x)
    weight_dtype = None if x.dtype == y.dtype else _weight_dtype(y, x)

    def add(out: Any, rows: Any, pointers: Any) -> None:
        if h_in < h_out and h_in <= _MAX_RANK:
            ops.lora_expand(
                out,
                rows,
                pointers,
                batch,
                scale=scale,
                layout="rank_major" if input_major else "rank_minor",
                weight_dtype=weight_dtype,
                layer_idx=layer_idx,
            )
            return
        if h_out > _MAX_RANK:
            _core.check_output("y", out)  # a part of a leaf would be none
        for first in range(0, h_out, _MAX_RANK):
            ops.lora_shrink(
                out if h_out <= _MAX_RANK else out[:, first : first + _MAX_RANK],
                rows,
                pointers,
                batch,
                scale=scale,
                accumulate=True,
                layout="rank_minor" if input_major else "rank_major",
                weight_dtype=weight_dtype,
                layer_idx=layer_idx,
                rank=h_out,
                first_rank=first,
            )

    in_any_layout(add, y, x, w_ptr)


def _width(name: str, array: Any) -> int:
    shape = array.shape
    if len(shape) != 2:
        raise ValueError(f"{name} has rank {len(shape)}, expected 2")
    return int(shape[1])


def _weight_dtype(y: Any, x: Any) -> str | None:
    """The model's dtype: f32 on one side is what lies between the halves. None: that of x."""
    x_name, y_name = dtype_name(x), dtype_name(y)
    if x_name == "f32":
        return y_name
    if y_name != "f32":
        raise ValueError(f"y is {y_name}, expected {x_name} as x, or f32")
    return None


# The calls of a model repeat the same few options and layers, and making tuples anew takes as long as
# a small call: both are kept.
@functools.lru_cache(maxsize=1024, typed=True)
def _attention_options(
    rope: str,
    rope_theta: float,
    rope_scale: float,
    rotary_dim: int | None,
    sm_scale: float | None,
    causal: bool,
    window_left: int,
    logits_soft_cap: float,
) -> AttentionOptions:
    if rope not in ("llama", "none"):
        raise ValueError(f'rope is "{rope}", expected "llama" or "none"')
    if rotary_dim is not None and rotary_dim < 1:
        raise ValueError(f"rotary_dim is {rotary_dim}, expected None or at least 1")
    return AttentionOptions(
        sm_scale,
        causal,
        window_left,
        logits_soft_cap,
        rope_theta if rope == "llama" else None,
        rope_scale,
        rotary_dim or 0,
    )


_kept_pages = functools.lru_cache(maxsize=1024, typed=True)(PagedKv.from_pointers)


def _pages(q: Any, num_layers: int, layer_idx: int, num_kv_heads: int, page_size: int) -> PagedKv:
    """Pages by address of q's dtype and head_dim."""
    if num_kv_heads < 1:
        raise ValueError(f"num_kv_heads is {num_kv_heads}, expected at least 1")
    shape = q.shape
    if len(shape) != 3:
        raise ValueError(f"q has rank {len(shape)}, expected 3")
    return _kept_pages(
        name_of(q.dtype), num_layers, layer_idx, num_kv_heads, page_size, int(shape[2])
    )


def _cache_pages(
    k: Any, v: Any, num_layers: int, layer_idx: int, num_kv_heads: int, page_size: int
) -> PagedKv:
    """Pages by address of the dtype and head_dim of k and v."""
    shape, dtype = k.shape, k.dtype
    if len(shape) != 3 or shape[1] != num_kv_heads:
        raise ValueError(
            f"k has shape {tuple(shape)}, expected [tokens, {num_kv_heads} heads, head_dim]"
        )
    if v.dtype != dtype:
        raise ValueError(f"v is {dtype_name(v)}, expected {dtype_name(k)} as k")
    return _kept_pages(
        name_of(dtype), num_layers, layer_idx, num_kv_heads, page_size, int(shape[2])
    )
