"""Bookkeeping after a pass over drafted tokens: what is confirmed, and what the cache keeps.

All is integers, so every device gives the same results. Index arrays are int32 or int64, each its
own, of any stride; masks are bool or uint8. A batch holds its decode requests first, then its
prefill requests, then padding. A decode request has its last sure token and then its drafts, a
prefill request one token:

- `num_speculative_tokens` drafts each; or
- with `draft_indptr`, [>= num_decode_requests + 1], request p has `draft_indptr[p + 1] -
  draft_indptr[p]` of them, `num_speculative_tokens` at most.

A draft -1 is a placeholder: with `reject_placeholders` it is never accepted. None means: in
ragged batches, while in others tokens are compared whatever they are, as published.

Counts (`num_decode_requests`, `num_prefill_requests`, `num_active`) are ints, or arrays of one
element that are read where they lie, so that a captured graph replays with other numbers.

With HEDDLE_VALIDATE=1 counts, starts and lengths out of range raise ValueError with row and
value; else nothing outside the arrays is read or written. Source of all: Megatron-LM,
mtp_utils_triton.py.
"""

from __future__ import annotations

from heddle._operation import Array, operation

__all__ = [
    "prepare_next_forward_pass",
    "propose_ngram_drafts",
    "rewind_kv_cache",
    "speculative_step",
    "verify_speculative_tokens",
]


@operation(mutates=["last_one_indices", "accepted_tokens_mask"])
def verify_speculative_tokens(
    last_one_indices: Array,
    accepted_tokens_mask: Array,
    input_tokens: Array,
    output_tokens: Array,
    num_decode_requests: int | Array,
    num_prefill_requests: int | Array,
    num_speculative_tokens: int,
    *,
    draft_indptr: Array | None = None,
    reject_placeholders: bool | None = None,
) -> None:
    """Accepts each draft that equals the output before it, up to the first that does not.

    With `base` the place of a request's first token: `mask[base] = True`, and
    `mask[base + j] = mask[base + j - 1] and input[base + j] == output[base + j - 1]`.
    `last_one_indices` is the last true place of each request, whose output is the bonus token.

    Index arrays are i32 or i64, in any mix, masks bool or u8; results are exact.

    Args:
        last_one_indices: [>= num_decode_requests + num_prefill_requests], written, -1 after
            them.
        accepted_tokens_mask: As `input_tokens`, written, False after the last request.
        input_tokens: [num_tokens] or [1, num_tokens]; may be longer than what the requests need.
        output_tokens: [>= num_tokens] or [1, >= num_tokens].
        num_decode_requests: Requests with drafts.
        num_prefill_requests: Requests without.
        num_speculative_tokens: Drafts of each decode request, or the largest number of one.
        draft_indptr: [>= num_decode_requests + 1], starts of ragged drafts.
        reject_placeholders: Whether a draft -1 is never accepted.

    Raises:
        ValueError: Shapes that disagree, fewer tokens than the requests have.
        NotImplementedError: Another dtype or device.

    Source: Megatron-LM, mtp_utils_triton.py.
    """


@operation(mutates=["sampled_tokens", "last_accepted_seq", "accepted_tokens", "accepted_counts"])
def prepare_next_forward_pass(
    sampled_tokens: Array,
    last_accepted_seq: Array,
    accepted_tokens: Array,
    accepted_counts: Array,
    output_tokens: Array,
    required_logit_indices: Array,
    last_one_indices: Array,
    accepted_tokens_mask: Array,
    input_tokens: Array,
    num_decode_requests: int | Array,
    num_speculative_tokens: int,
    *,
    draft_indptr: Array | None = None,
    write_prefill_rows: bool = False,
) -> None:
    """What each request goes on with.

    `sampled_tokens[p] = output_tokens[last_one_indices[p]]`; `last_accepted_seq[p] =
    required_logit_indices[last_one_indices[p]]`; `accepted_tokens[p, s]` is draft s where its
    mask is true, else -1; `accepted_counts[p]` the number of true masks. A row whose
    `last_one_indices` is -1 gets -1, -1, -1 and 0.

    Index arrays are i32 or i64, in any mix, masks bool or u8; results are exact.

    Args:
        sampled_tokens: [>= num_rows], written.
        last_accepted_seq: [>= num_rows], written.
        accepted_tokens: [>= num_rows, >= num_speculative_tokens], written for decode requests;
            rows of decode requests alone will do where their number is no array and
            `write_prefill_rows` is false.
        accepted_counts: [>= num_rows], written for decode requests; the same holds.
        output_tokens: [>= num_tokens] or [1, >= num_tokens].
        required_logit_indices: [>= num_tokens].
        last_one_indices: [num_rows].
        accepted_tokens_mask: [num_tokens] or [1, num_tokens].
        input_tokens: [num_tokens] or [1, num_tokens].
        num_decode_requests: Requests with drafts.
        num_speculative_tokens: Drafts of each decode request, or the largest number of one.
        draft_indptr: [>= num_decode_requests + 1], starts of ragged drafts.
        write_prefill_rows: Write -1 and 0 to the rows of requests without drafts, too.

    Raises:
        ValueError: Shapes that disagree.
        NotImplementedError: Another dtype or device.

    Source: Megatron-LM, mtp_utils_triton.py.
    """


@operation(
    mutates=[
        "blocks_to_release",
        "remove_mask",
        "last_kv_block_offset",
        "kv_length_offsets",
        "kv_block_counts",
        "last_kv_block_id",
        "kv_block_ids",
        "released_ids",
        "num_released",
    ]
)
def rewind_kv_cache(
    blocks_to_release: Array | None,
    remove_mask: Array | None,
    last_kv_block_offset: Array,
    kv_length_offsets: Array,
    kv_block_counts: Array,
    last_kv_block_id: Array,
    kv_block_ids: Array,
    accepted_counts: Array,
    prefill_status: Array,
    num_speculative_tokens: int,
    block_size_tokens: int,
    num_active: int | Array | None = None,
    *,
    draft_indptr: Array | None = None,
    released_ids: Array | None = None,
    num_released: Array | None = None,
) -> None:
    """Takes the rejected drafts of each request off its cache, over any number of blocks.

    With r the rejected drafts (none where `prefill_status` is 1) and `k = max(ceil((r -
    last_kv_block_offset) / block_size_tokens), 0)`: the offset goes back by r modulo the block
    size, the length by r, the count by k but not below 0. The k table entries that are no longer
    in use become -1, `last_kv_block_id` the last one that still is, or -1. Accepted counts
    outside [0, drafts] are clamped.

    Index arrays are i32 or i64, in any mix, masks bool or u8; results are exact.

    Args:
        blocks_to_release: [>= num_requests], written: the last block id before the call, 0 in
            padding.
        remove_mask: [>= num_requests], written: whether that block is released; False in padding.
        last_kv_block_offset: [>= num_requests], updated: place of the last token in its block.
        kv_length_offsets: [>= num_requests], updated: tokens.
        kv_block_counts: [>= num_requests], updated: blocks in use.
        last_kv_block_id: [>= num_requests], updated.
        kv_block_ids: [>= num_requests, max_blocks], updated.
        accepted_counts: [num_requests].
        prefill_status: [>= num_requests].
        num_speculative_tokens: Drafts of each request, or the largest number of one.
        block_size_tokens: Tokens of a block.
        num_active: Requests from here on are padding, whose state is not touched. None: there is
            none.
        draft_indptr: Starts of ragged drafts; a request past their end has none.
        released_ids: [capacity], written: all released ids in request order, within a request the
            last block first. num_requests * ceil(num_speculative_tokens / block_size_tokens)
            suffice.
        num_released: One element, written: their number, also where it exceeds the capacity.

    Raises:
        ValueError: Shapes that disagree, a block size below 1.
        NotImplementedError: Another dtype or device.

    Source: Megatron-LM, mtp_utils_triton.py.
    """


@operation(
    mutates=[
        "last_kv_block_offset",
        "kv_length_offsets",
        "kv_block_counts",
        "last_kv_block_id",
        "kv_block_ids",
        "last_one_indices",
        "accepted_tokens_mask",
        "sampled_tokens",
        "last_accepted_seq",
        "accepted_tokens",
        "accepted_counts",
        "blocks_to_release",
        "remove_mask",
        "released_ids",
        "num_released",
        "next_positions",
        "next_slots",
        "next_kv_lens",
        "next_last_page_len",
    ]
)
def speculative_step(
    last_kv_block_offset: Array,
    kv_length_offsets: Array,
    kv_block_counts: Array,
    last_kv_block_id: Array,
    kv_block_ids: Array,
    input_tokens: Array,
    output_tokens: Array,
    num_decode_requests: int | Array,
    num_prefill_requests: int | Array,
    num_speculative_tokens: int,
    block_size_tokens: int,
    *,
    required_logit_indices: Array | None = None,
    draft_indptr: Array | None = None,
    reject_placeholders: bool | None = None,
    last_one_indices: Array | None = None,
    accepted_tokens_mask: Array | None = None,
    sampled_tokens: Array | None = None,
    last_accepted_seq: Array | None = None,
    accepted_tokens: Array | None = None,
    accepted_counts: Array | None = None,
    blocks_to_release: Array | None = None,
    remove_mask: Array | None = None,
    released_ids: Array | None = None,
    num_released: Array | None = None,
    next_positions: Array | None = None,
    next_slots: Array | None = None,
    next_kv_lens: Array | None = None,
    next_last_page_len: Array | None = None,
    write_prefill_rows: bool = False,
    num_next_tokens: int = 1,
) -> None:
    """The three operations above in one, and where the tokens of the next step lie.

    Equal, bit for bit, to `verify_speculative_tokens`, `prepare_next_forward_pass` and
    `rewind_kv_cache` one after another with `prefill_status[p] = (p >= num_decode_requests)` and
    `num_active` the sum of both counts. num_requests is the number of rows of `kv_block_ids`.
    Outputs are requested by name.

    In the next step each request has `num_next_tokens` tokens, its sampled one first. With n
    tokens in its cache after the rewind, token j has position n + j; its slot is block id *
    block_size_tokens + place in the block, -1 in a block that is yet to be had. In padding rows
    positions and slots are -1, lengths 0.

    Index arrays are i32 or i64, in any mix, masks bool or u8; results are exact.

    Args:
        last_kv_block_offset: [>= num_requests], updated; as the next four see `rewind_kv_cache`.
        kv_length_offsets: [>= num_requests], updated.
        kv_block_counts: [>= num_requests], updated.
        last_kv_block_id: [>= num_requests], updated.
        kv_block_ids: [num_requests, max_blocks], updated.
        input_tokens: [num_tokens] or [1, num_tokens].
        output_tokens: [>= num_tokens] or [1, >= num_tokens].
        num_decode_requests: Requests with drafts.
        num_prefill_requests: Requests without.
        num_speculative_tokens: Drafts of each decode request, or the largest number of one.
        block_size_tokens: Tokens of a block.
        required_logit_indices: [>= num_tokens]; needed for `last_accepted_seq` alone.
        draft_indptr: [>= num_decode_requests + 1], starts of ragged drafts.
        reject_placeholders: Whether a draft -1 is never accepted.
        last_one_indices: [>= num_requests], written; see `verify_speculative_tokens`.
        accepted_tokens_mask: As `input_tokens`, written.
        sampled_tokens: [>= num_requests], written; as the next three see
            `prepare_next_forward_pass`.
        last_accepted_seq: [>= num_requests], written.
        accepted_tokens: [>= num_requests, >= num_speculative_tokens], written.
        accepted_counts: [>= num_requests], written.
        blocks_to_release: [>= num_requests], written; as the next three see `rewind_kv_cache`.
        remove_mask: [>= num_requests], written.
        released_ids: [capacity], written.
        num_released: One element, written.
        next_positions: [>= num_requests, >= num_next_tokens], written.
        next_slots: [>= num_requests, >= num_next_tokens], written.
        next_kv_lens: [>= num_requests], written: n + num_next_tokens.
        next_last_page_len: [>= num_requests], written: tokens in the last block then.
        write_prefill_rows: As in `prepare_next_forward_pass`.
        num_next_tokens: 1 + num_speculative_tokens where the next step has drafts again.

    Raises:
        ValueError: Shapes that disagree, fewer tokens than the requests have, a block size below
            1.
        NotImplementedError: Another dtype or device.

    Source: the three are Megatron-LM's, mtp_utils_triton.py; one pass for all is heddle's own.
    """


@operation(mutates=["draft_tokens", "num_drafts"])
def propose_ngram_drafts(
    draft_tokens: Array,
    num_drafts: Array,
    tokens: Array,
    lengths: Array,
    num_speculative_tokens: int,
    num_active: int | Array | None = None,
    *,
    min_ngram: int = 1,
    max_ngram: int = 3,
    match: str = "first",
    max_length: int = 0,
) -> None:
    """Drafts from a sequence's own tokens (prompt lookup).

    The last n tokens of a row, for the largest n from `max_ngram` down to `min_ngram` that occur
    earlier in the row, are looked up there; the tokens after that place are the drafts. Of several
    places the first counts, after which most tokens follow, as in vLLM and Hugging Face's prompt
    lookup, or with `match="last"` the most recent one. It may overlap the last n tokens.

    Index arrays are i32 or i64, in any mix; results are exact.

    Args:
        draft_tokens: [>= num_rows, >= num_speculative_tokens], written; -1 after a row's drafts.
        num_drafts: [>= num_rows], written.
        tokens: [>= num_rows, max_tokens].
        lengths: [num_rows], tokens of each row.
        num_speculative_tokens: Drafts that a row gets at most.
        num_active: One element; rows from it on are padding without drafts. None: all are active.
        min_ngram: The least n.
        max_ngram: The largest n.
        match: "first" or "last".
        max_length: Tokens that a row may have with its drafts; 0: any number.

    Raises:
        ValueError: Shapes that disagree, n-grams of no tokens.
        NotImplementedError: Another dtype or device.

    Source: prompt lookup decoding, A. Saxena 2023; vLLM's n-gram proposer takes the same place.
    """
