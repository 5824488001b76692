"""Arguments that hold several arrays: `LoraBatch`, `PageTable`, `PagedKv`, `AttentionOptions`.

They are the structs of the C++ headers as named tuples: made once for the calls of a step, and
cheap, since nothing is copied or looked at when one is made. A call looks at the arrays as they
are at that moment. So a tensor that was filled anew, resized or given other memory in between is
seen as it is now, and a captured CUDA graph keeps to the memory that the arrays had at the capture.
The tuple keeps its arrays alive; `_replace` makes one with other fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from heddle._operation import Array


def _told(value: Any) -> str:
    """An array as `int32[16] on cuda:0`, all else by its repr."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return repr(value)
    dtype = str(value.dtype).rpartition(".")[2]
    device = str(getattr(value, "device", "cpu"))
    place = "" if device == "cpu" else f" on {device}"
    return f"{dtype}{list(map(int, value.shape))}{place}"


def _repr(arguments: Any) -> str:
    """The fields that are not at their defaults, arrays by dtype and shape."""
    defaults = arguments._field_defaults
    given = (
        f"{name}={_told(value)}"
        for name, value in zip(arguments._fields, arguments, strict=True)
        if name not in defaults or value is not defaults[name]
    )
    return f"{type(arguments).__name__}({', '.join(given)})"


class LoraBatch(NamedTuple):
    """Which adapter each row of a batch uses: by ids, by segments, or by pairs (adapter, scale).

    `LoraBatch(slot_ids=ids)`: row t uses slot `slot_ids[t]`.
    `LoraBatch(seg_starts=starts, seg_ends=ends, seg_slots=slots)`: rows `seg_starts[s]` up to
    `seg_ends[s]` use slot `seg_slots[s]`; `seg_lens`, in place of `seg_ends`, gives the number of
    rows of each. Segments must not overlap; they may come in any order and leave gaps.
    `LoraBatch(pair_starts=starts, pair_slots=slots, pair_scales=scales)`, for `lora_apply`: token t
    has the pairs `pair_starts[t]` up to `pair_starts[t + 1]`, in this order.

    One of the three is given. A negative slot, one at or above the number of slots, a slot whose
    weights are null, and a row in no segment mean: no adapter, the row is not touched.

    Args:
        slot_ids: [num_tokens] i32|i64.
        seg_starts: [num_segments] i32|i64.
        seg_ends: [num_segments] i32|i64.
        seg_slots: [num_segments] i32|i64, or None: segment s uses slot s.
        row_scale: [num_tokens] f32, a factor for each row; None: 1.
        plan: [>= lora_plan_bytes] u8, of `ops.lora_plan`; None: a call on a GPU makes its own, and
            with pairs it always does. The CPU needs none.
        pair_starts: [num_tokens + 1] i32|i64.
        pair_slots: [num_pairs] i32|i64.
        pair_scales: [num_pairs] f32; None: 1.
        max_pairs: The largest number of pairs of a token: one that has more uses the first ones. None: all,
            which the call counts itself; on a GPU it cannot, and raises. A GPU takes time for
            each, whether or not a token has as many.
        seg_lens: [num_segments] i32|i64, rows of each segment, in place of seg_ends.
    """

    slot_ids: Array | None = None
    seg_starts: Array | None = None
    seg_ends: Array | None = None
    seg_slots: Array | None = None
    row_scale: Array | None = None
    plan: Array | None = None
    pair_starts: Array | None = None
    pair_slots: Array | None = None
    pair_scales: Array | None = None
    max_pairs: int | None = None
    seg_lens: Array | None = None

    def __repr__(self) -> str:
        return _repr(self)


class PageTable(NamedTuple):
    """Which pages the sequences of a batch use, in CSR form.

    Sequence i uses `pages[page_indptr[i]:page_indptr[i + 1]]`, the last of which holds
    `last_page_len[i]` tokens. Its length is
    `kv_len(i) = (number of its pages - 1) * page_size + last_page_len[i]`, 0 without pages.

    Args:
        page_indptr: [num_seqs + 1] i32|i64, ascending from 0.
        pages: [page_indptr[-1]] i32|i64, page numbers; addresses, i64, without a pool.
        last_page_len: [num_seqs] i32|i64, 1 to page_size.
    """

    page_indptr: Array
    pages: Array
    last_page_len: Array

    def __repr__(self) -> str:
        return _repr(self)


class PagedKv(NamedTuple):
    """Where the keys and values of one layer lie: made by `from_pool` or `from_pointers`."""

    k_pages: Array | None = None
    v_pages: Array | None = None
    k_scales: Array | None = None
    v_scales: Array | None = None
    k_scale: float | None = None
    v_scale: float | None = None
    dtype: str | None = None
    num_layers: int = 1
    layer_idx: int = 0
    num_kv_heads: int = 0
    page_size: int = 0
    head_dim: int = 0

    @classmethod
    def from_pool(
        cls,
        k_pages: Array,
        v_pages: Array,
        k_scales: Array | None = None,
        v_scales: Array | None = None,
        *,
        k_scale: float | None = None,
        v_scale: float | None = None,
    ) -> PagedKv:
        """Pages that are numbered by their place in a pool.

        Args:
            k_pages: [num_pages, num_kv_heads, page_size, head_dim] f32|f16|bf16|float8_e4m3fn;
                permute the axes of a view for token-major pages, narrow a larger tensor for one
                layer.
            v_pages: The same for values, with equal strides.
            k_scales: Of float8_e4m3fn, whose elements are codes to be multiplied by a scale:
                [num_pages, num_kv_heads, page_size] f32, which calls that store tokens write.
            v_scales: The same for values, with equal strides.
            k_scale: In place of k_scales: that of all keys.
            v_scale: That of all values.
        """
        return cls(k_pages, v_pages, k_scales, v_scales, k_scale, v_scale)

    @classmethod
    def from_pointers(
        cls,
        dtype: str,
        num_layers: int,
        layer_idx: int,
        num_kv_heads: int,
        page_size: int,
        head_dim: int,
        k_scale: float | None = None,
        v_scale: float | None = None,
    ) -> PagedKv:
        """Pages of their own addresses, which the page table holds, on the device of the call.

        Each is [num_layers, 2, num_kv_heads, page_size, head_dim] without gaps, keys before values.
        In "f8e4m3" the scales of all layers follow, [num_layers, 2, num_kv_heads, page_size] f32
        from the next multiple of 16 bytes on, unless k_scale and v_scale are given.

        Args:
            dtype: "f32", "f16", "bf16" or "f8e4m3".
            num_layers: Layers of a page.
            layer_idx: The layer of the calls.
            num_kv_heads: Heads of keys and values.
            page_size: Tokens of a page.
            head_dim: Elements of a head.
            k_scale: Of "f8e4m3" alone: the scale of all keys.
            v_scale: That of all values.
        """
        sizes = num_layers, layer_idx, num_kv_heads, page_size, head_dim
        return cls(None, None, None, None, k_scale, v_scale, dtype, *sizes)

    def __repr__(self) -> str:
        return _repr(self)


class AttentionOptions(NamedTuple):
    """What `batch_prefill` and `batch_decode` compute besides plain causal attention.

    Args:
        sm_scale: Factor of the products q . k; None: 1 / sqrt(head_dim).
        causal: Keys after the token's position are not seen; prefill only.
        window_left: Keys before the token's position that it sees; -1: all.
        logits_soft_cap: c > 0: s becomes c * tanh(s / c).
        rope_theta: Rotate q and k inside with this theta; None: they come rotated.
        rope_scale: Positions are divided by it.
        rotary_dim: Leading elements of a head that turn, 0: all.
        llama3_scaling: Four numbers as in `ops.rope`, or None.
        tree_mask: [num_words] i32, or None; prefill only. Which of its sequence's q_len(i) new
            tokens each token sees, instead of `causal`: ceil(q_len(i) / 32) words each, bit j % 32
            of word j / 32 for new token j. The keys before them are all seen.
        tree_mask_indptr: [num_seqs + 1] i32|i64: first word of each sequence, of which one without
            words has no mask; or None.
        bundle_indptr: [num_bundles + 1] i32|i64, or None; decode only. First query of each bundle:
            queries of one sequence that list the same pages, the kv_len of each one more than that
            of the one before, read its keys together on a GPU, with the bits that each has alone.
        max_bundle: 1 to 16: no bundle has more queries, and none more than `ops.decode_bundle`
            allows.
    """

    sm_scale: float | None = None
    causal: bool = True
    window_left: int = -1
    logits_soft_cap: float = 0.0
    rope_theta: float | None = None
    rope_scale: float = 1.0
    rotary_dim: int = 0
    llama3_scaling: Sequence[float] | None = None
    tree_mask: Array | None = None
    tree_mask_indptr: Array | None = None
    bundle_indptr: Array | None = None
    max_bundle: int = 1

    def __repr__(self) -> str:
        return _repr(self)


TUPLES = (LoraBatch, PageTable, PagedKv, AttentionOptions)
"""All of them."""
