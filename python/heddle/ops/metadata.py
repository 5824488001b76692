"""Bookkeeping of a batch: page tables, positions, slots, and all of it for a whole step.

Every array is int32 or int64, in any mix, of any stride. Lengths and starts are read where the
arrays lie and nothing else determines how much is written, so a captured call may be replayed with other
contents; part i of a ragged array is `[cu[i], cu[i + 1])`. An entry whose source or destination
lies outside its array is skipped. With HEDDLE_VALIDATE=1 such an entry, a length below 0 and a
start that descends raise ValueError, with row and value. Entries that the formula does not reach
stay as they are, or get `fill_value`.

The first five are those of the metadata kernels of LoRAX and TGI.
"""

from __future__ import annotations

from heddle import _core
from heddle._operation import Array, operation

__all__ = [
    "MISSING_PAGES",
    "PAGE_OVERFLOW",
    "SEGMENT_OVERFLOW",
    "TOKEN_OVERFLOW",
    "block_tables_to_padded",
    "block_tables_to_ragged",
    "copy_next_input_ids_inplace",
    "prepare_batch",
    "prepare_position_slot_ids",
    "slots_filtering",
]

TOKEN_OVERFLOW: int = _core.TOKEN_OVERFLOW
"""Bit of `overflow`: more new tokens than rows of the token outputs."""
PAGE_OVERFLOW: int = _core.PAGE_OVERFLOW
"""Bit of `overflow`: more pages than `pages` or a row of `page_table` holds."""
MISSING_PAGES: int = _core.MISSING_PAGES
"""Bit of `overflow`: a request is longer than its pages in the given tables."""
SEGMENT_OVERFLOW: int = _core.SEGMENT_OVERFLOW
"""Bit of `overflow`: more runs of one adapter than segment outputs."""


@operation(mutates=["ragged"])
def block_tables_to_ragged(
    ragged: Array,
    block_tables: Array,
    input_lengths: Array,
    cache_lengths: Array,
    *,
    fill_value: int | None = None,
    total: int | None = None,
) -> None:
    """`ragged[start(i) + j] = block_tables[i][j]` for `j < input_lengths[i] + cache_lengths[i]`.

    `start` is the exclusive prefix sum of those lengths. A row longer than the table's width keeps
    its room in `ragged`; the entries that the table lacks are skipped.

    Arrays are i32 or i64, in any mix; results are exact.

    Args:
        ragged: [>= the sum of all lengths], written.
        block_tables: [num_seqs, width].
        input_lengths: [num_seqs].
        cache_lengths: [num_seqs].
        fill_value: For the entries that the formula does not reach.
        total: The sum of all lengths that `ragged` was sized for. On a GPU it is checked with
            HEDDLE_VALIDATE=1 alone.

    Raises:
        ValueError: Shapes that disagree; lengths that do not sum to `total`.
        NotImplementedError: Another dtype or device.

    Source: LoRAX and TGI, kernels of the same name.
    """


@operation(mutates=["block_tables"])
def block_tables_to_padded(
    block_tables: Array, ragged: Array, cu_seqlens: Array, *, fill_value: int | None = None
) -> None:
    """`block_tables[i][j] = ragged[cu_seqlens[i] + j]`.

    For `j < min(cu_seqlens[i + 1] - cu_seqlens[i], width)`.

    Arrays are i32 or i64, in any mix; results are exact.

    Args:
        block_tables: [num_seqs, width], written.
        ragged: [any].
        cu_seqlens: [num_seqs + 1].
        fill_value: For the tails of the rows; None leaves them as they are.

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: LoRAX and TGI, kernels of the same name.
    """


@operation(mutates=["all_input_ids"])
def copy_next_input_ids_inplace(
    all_input_ids: Array,
    next_input_ids: Array,
    cu_accepted_ids: Array,
    cache_lengths: Array,
    input_lengths: Array,
    prompt_lengths: Array,
) -> None:
    """`all_input_ids[i][p + j] = next_input_ids[cu_accepted_ids[i] + j]`.

    With `p = cache_lengths[i] + input_lengths[i]`, for `j < cu_accepted_ids[i + 1] -
    cu_accepted_ids[i]` where `p + j >= prompt_lengths[i]`: a prompt is never overwritten.

    Arrays are i32 or i64, in any mix; results are exact.

    Args:
        all_input_ids: [num_seqs, max_length], updated.
        next_input_ids: [any].
        cu_accepted_ids: [num_seqs + 1].
        cache_lengths: [num_seqs].
        input_lengths: [num_seqs].
        prompt_lengths: [num_seqs].

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: LoRAX and TGI, kernels of the same name.
    """


@operation(mutates=["position_ids", "slot_indices"])
def prepare_position_slot_ids(
    position_ids: Array | None,
    slot_indices: Array | None,
    cache_lengths: Array,
    cu_seqlens: Array,
    cu_slots: Array | None,
) -> None:
    """`position_ids[cu_seqlens[i] + j] = cache_lengths[i] + j`; `slot_indices` adds `cu_slots[i]`.

    For `j < cu_seqlens[i + 1] - cu_seqlens[i]`.

    Arrays are i32 or i64, in any mix; results are exact.

    Args:
        position_ids: [any], written; or None.
        slot_indices: [any], written; or None.
        cache_lengths: [num_seqs].
        cu_seqlens: [num_seqs + 1].
        cu_slots: [num_seqs] or [num_seqs + 1]; may be None without `slot_indices`.

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: LoRAX and TGI, kernels of the same name.
    """


@operation(mutates=["filtered_slots"])
def slots_filtering(
    filtered_slots: Array,
    slots: Array,
    cu_slots: Array,
    slots_start: Array,
    *,
    fill_value: int | None = None,
) -> None:
    """`filtered_slots[cu_slots[i] + j] = slots[slots_start[i] + j]`.

    For `j < cu_slots[i + 1] - cu_slots[i]`.

    Arrays are i32 or i64, in any mix; results are exact.

    Args:
        filtered_slots: [any], written.
        slots: [any].
        cu_slots: [num_seqs + 1], the starts in `filtered_slots`.
        slots_start: [num_seqs].
        fill_value: For the entries that the formula does not reach.

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: LoRAX and TGI, kernels of the same name.
    """


@operation(
    mutates=[
        "q_indptr",
        "start_lengths",
        "kv_lengths",
        "page_indptr",
        "last_page_len",
        "pages",
        "page_table",
        "positions",
        "kv_slots",
        "token_to_seq",
        "input_ids",
        "slot_ids",
        "seg_starts",
        "seg_ends",
        "seg_slots",
        "adapter_rows",
        "adapter_indptr",
        "all_input_ids",
        "overflow",
    ]
)
def prepare_batch(
    *,
    q_indptr: Array | None = None,
    start_lengths: Array | None = None,
    kv_lengths: Array | None = None,
    page_indptr: Array | None = None,
    last_page_len: Array | None = None,
    pages: Array | None = None,
    page_table: Array | None = None,
    positions: Array | None = None,
    kv_slots: Array | None = None,
    token_to_seq: Array | None = None,
    input_ids: Array | None = None,
    slot_ids: Array | None = None,
    seg_starts: Array | None = None,
    seg_ends: Array | None = None,
    seg_slots: Array | None = None,
    adapter_rows: Array | None = None,
    adapter_indptr: Array | None = None,
    all_input_ids: Array | None = None,
    overflow: Array | None = None,
    cache_lengths: Array,
    accepted_lengths: Array | None = None,
    input_lengths: Array | None = None,
    num_active: Array | None = None,
    seq_page_table: Array | None = None,
    seq_pages: Array | None = None,
    seq_page_indptr: Array | None = None,
    adapter_slots: Array | None = None,
    next_input_ids: Array | None = None,
    next_indptr: Array | None = None,
    prompt_lengths: Array | None = None,
    page_size: int = 0,
    tokens_per_seq: int = 1,
    accepted_extra: int = 0,
    pad_page: int = -1,
    pad_token: int = 0,
) -> None:
    """All metadata that a step of a model needs, in one pass.

    Outputs that are None are not computed. For request `i < num_active`, cut to what arrays hold:

    - `start(i) = cache_lengths[i] + accepted_lengths[i] + accepted_extra`, the last two where
      `accepted_lengths` is given
    - `n(i)`: its new tokens; `q_indptr` is their prefix sum
    - `used(i) = ceil((start(i) + n(i)) / page_size)` pages; `page_indptr` is their prefix sum
    - `kv(i) = min(start(i) + n(i), used(i) * page_size)`
    - `last_page_len(i) = kv(i) - (used(i) - 1) * page_size`

    Token j of request i is row `q_indptr[i] + j` and has position `p = start(i) + j`. Its id is
    `next_input_ids[next_indptr[i] + j]` where that exists and `p >= prompt_lengths[i]`, and is then
    stored at `all_input_ids[i][p]`, too; else it is `all_input_ids[i][p]`; `pad_token` where
    neither exists. Padding requests have length 0 and flat starts.

    Arrays are i32 or i64, in any mix; results are exact.

    Args:
        q_indptr: [num_seqs + 1], first row of each request.
        start_lengths: [num_seqs], tokens in the cache before this step.
        kv_lengths: [num_seqs], tokens in the cache with those of this step.
        page_indptr: [num_seqs + 1], first entry of each request in `pages`.
        last_page_len: [num_seqs], 1 to `page_size`; 0 without pages.
        pages: [max_pages], pages in use, then `pad_page`.
        page_table: [num_seqs, width], the same, every row padded with `pad_page`.
        positions: [num_tokens], then 0.
        kv_slots: [num_tokens], page * page_size + place in the page; -1 where the page is missing,
            and for padding.
        token_to_seq: [num_tokens], then -1.
        input_ids: [num_tokens], then `pad_token`.
        slot_ids: [num_tokens], slot of each row's adapter; -1 without one, and for padding. For
            `heddle.LoraBatch(slot_ids=)`.
        seg_starts: [num_segments], runs of rows of one adapter; num_seqs suffice. Unused ones are
            empty.
        seg_ends: [num_segments].
        seg_slots: [num_segments].
        adapter_rows: [num_tokens], rows that have an adapter, by slot, ascending within one; then
            -1.
        adapter_indptr: [num_slots + 1], first entry of each slot in `adapter_rows`. A slot at or
            above num_slots is none.
        all_input_ids: [num_seqs, max_length], ids by position, read and updated.
        overflow: [1], bits of TOKEN_OVERFLOW, PAGE_OVERFLOW, MISSING_PAGES and SEGMENT_OVERFLOW; 0
            when everything fits.
        cache_lengths: [num_seqs], tokens in the cache without those just accepted.
        accepted_lengths: [num_seqs], tokens of the last step that stay there.
        input_lengths: [num_seqs], new tokens; None: `tokens_per_seq` each.
        num_active: [1] or []: requests from here on are padding.
        seq_page_table: [num_seqs, width], pages of the requests; or
        seq_pages: [any], the same in ragged form, of request i from
        seq_page_indptr: [num_seqs + 1] on.
        adapter_slots: [num_seqs], slot of each request's adapter, < 0 for none.
        next_input_ids: [any], ids that this step brings.
        next_indptr: [num_seqs + 1], where those of each request begin.
        prompt_lengths: [num_seqs], positions below it keep their id.
        page_size: At least 1 where pages are given or requested.
        tokens_per_seq: New tokens of each request, without `input_lengths`.
        accepted_extra: Added to each accepted length: 1 where they count drafts alone.
        pad_page: See `pages`.
        pad_token: See `input_ids`.

    Raises:
        ValueError: Shapes that disagree, an output without the input that it needs.
        NotImplementedError: Another dtype or device.

    Source: heddle's own; page tables as in Kwon et al. 2023, arXiv 2309.06180.
    """
