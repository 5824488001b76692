"""Drop-in for the extension module `punica_kernels`: paged attention, LoRA by address, and RMSNorm.

Arrays may lie on the CPU, where pointer tables hold host addresses; index arrays are int32 or
int64. Every shape works, an empty batch included. `tmp` and `tmpbuf` may be anything: no scratch is
taken from them. Wrong calls raise RuntimeError.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from heddle import ops
from heddle.compat._arrays import (
    addresses,
    dtype_name,
    numbers_from_zero,
    without_gaps,
    write_without_gaps,
)

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

# Ranks that one call of a LoRA operation takes; more are taken in parts.
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
        causal: A query sees no key behind its own position.
        window_left: Keys before its own position that a query sees; -1: all.
        logits_soft_cap: c > 0: the products s become c * tanh(s / c).
        lse: [tokens, num_q_heads] f32, gets the natural log of the sum of exp(s); or None.
    """
    options = _attention_options(
        rope, rope_theta, rope_scale, rotary_dim, sm_scale, window_left, logits_soft_cap
    )
    pages = _pages(num_layers, layer_idx, num_kv_heads, page_size)

    def attend(out: Any) -> None:
        ops.batch_prefill(
            out,
            lse,
            without_gaps(q),
            qo_indptr,
            None,
            None,
            kv_indptr,
            addresses(kv_ptrs),
            last_page_offset,
            causal=causal,
            **options,
            **pages,
        )

    write_without_gaps(o, attend)


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
        rope, rope_theta, rope_scale, rotary_dim, sm_scale, window_left, logits_soft_cap
    )
    pages = _pages(num_layers, layer_idx, num_kv_heads, page_size)

    def attend(out: Any) -> None:
        ops.batch_decode(
            out,
            lse,
            without_gaps(q),
            None,
            None,
            kv_indptr,
            addresses(kv_ptrs),
            last_page_offset,
            **options,
            **pages,
        )

    write_without_gaps(o, attend)


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
    pages = _cache_pages(k, v, num_layers, layer_idx, num_kv_heads, page_size)
    ops.kv_init(
        None,
        None,
        kv_indptr,
        addresses(kv_ptrs),
        last_page_offset,
        without_gaps(k),
        without_gaps(v),
        seqlen_indptr,
        **pages,
    )


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
    pages = _cache_pages(k, v, num_layers, layer_idx, num_kv_heads, page_size)
    ops.kv_append(
        None,
        None,
        kv_indptr,
        addresses(kv_ptrs),
        last_page_offset,
        without_gaps(k),
        without_gaps(v),
        **pages,
    )


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
    _add_product(y, x, w_ptr, layer_idx, scale=scale, slot_ids=indicies)


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
        s_end: [segments], row behind the last; up to s_start: an empty segment.
        tmp: Not used.
        layer_idx: The layer of this call.
    """
    segments = numbers_from_zero(s_start, len(s_start))
    _add_product(
        y,
        x,
        w_ptr,
        layer_idx,
        input_major=True,
        seg_starts=s_start,
        seg_ends=s_end,
        seg_slots=segments,
    )


@_raises_runtime_error
def sgmv_shrink(
    y: Any, x: Any, w_ptr: Any, s_start: Any, s_end: Any, tmp: Any, layer_idx: int
) -> None:
    """sgmv_cutlass with weights [layers, h_out, h_in]."""
    segments = numbers_from_zero(s_start, len(s_start))
    _add_product(y, x, w_ptr, layer_idx, seg_starts=s_start, seg_ends=s_end, seg_slots=segments)


def sgmv_cutlass_tmp_size(num_problems: int) -> int:
    """Bytes of the `tmp` that the original asks for."""
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
    x, w = without_gaps(input), without_gaps(weight)
    write_without_gaps(output, lambda y: ops.rms_norm(y, x, w, epsilon=epsilon))


def _add_product(
    y: Any,
    x: Any,
    w_ptr: Any,
    layer_idx: int,
    *,
    input_major: bool = False,
    scale: float = 1.0,
    **batch: Any,
) -> None:
    """y += scale * W x, as the half of LoRA whose rank is the smaller of the two widths."""
    for name, array in (("y", y), ("x", x)):
        if array.ndim != 2:
            raise ValueError(f"{name} has rank {array.ndim}, expected 2")
    h_out, h_in = y.shape[1], x.shape[1]
    options = {
        "scale": scale,
        "accumulate": True,
        "layer_idx": layer_idx,
        "weight_dtype": _weight_dtype(y, x),
        **batch,
    }
    x, pointers = without_gaps(x), addresses(w_ptr)

    def add(out: Any) -> None:
        if h_in < h_out and h_in <= _MAX_RANK:
            layout = "rank_major" if input_major else "rank_minor"
            ops.lora_expand(out, x, pointers, layout=layout, **options)
            return
        layout = "rank_minor" if input_major else "rank_major"
        for first in range(0, h_out, _MAX_RANK):
            columns = out[:, first : first + _MAX_RANK]
            ops.lora_shrink(
                columns, x, pointers, layout=layout, rank=h_out, first_rank=first, **options
            )

    write_without_gaps(y, add)


def _weight_dtype(y: Any, x: Any) -> str | None:
    """The model's dtype: f32 on one side is what lies between the halves. None: that of x."""
    if x.dtype == y.dtype:
        return None
    x_name, y_name = dtype_name(x), dtype_name(y)
    if x_name == "f32":
        return y_name
    if y_name != "f32":
        raise ValueError(f"y is {y_name}, expected {x_name} as x, or f32")
    return None


def _attention_options(
    rope: str,
    rope_theta: float,
    rope_scale: float,
    rotary_dim: int | None,
    sm_scale: float | None,
    window_left: int,
    logits_soft_cap: float,
) -> dict[str, Any]:
    if rope not in ("llama", "none"):
        raise ValueError(f'rope is "{rope}", expected "llama" or "none"')
    if rotary_dim is not None and rotary_dim < 1:
        raise ValueError(f"rotary_dim is {rotary_dim}, expected None or at least 1")
    options = {"sm_scale": sm_scale, "window_left": window_left, "logits_soft_cap": logits_soft_cap}
    if rope == "none":
        return options
    return {
        **options,
        "rope_theta": rope_theta,
        "rope_scale": rope_scale,
        "rotary_dim": rotary_dim or 0,
    }


def _pages(num_layers: int, layer_idx: int, num_kv_heads: int, page_size: int) -> dict[str, Any]:
    if num_kv_heads < 1:
        raise ValueError(f"num_kv_heads is {num_kv_heads}, expected at least 1")
    return {
        "num_layers": num_layers,
        "layer_idx": layer_idx,
        "num_kv_heads": num_kv_heads,
        "page_size": page_size,
    }


def _cache_pages(
    k: Any, v: Any, num_layers: int, layer_idx: int, num_kv_heads: int, page_size: int
) -> dict[str, Any]:
    if k.ndim != 3 or k.shape[1] != num_kv_heads:
        raise ValueError(
            f"k has shape {tuple(k.shape)}, expected [tokens, {num_kv_heads} heads, head_dim]"
        )
    if v.dtype != k.dtype:
        raise ValueError(f"v is {dtype_name(v)}, expected {dtype_name(k)} as k")
    return {"num_layers": num_layers, "layer_idx": layer_idx, "page_size": page_size}
