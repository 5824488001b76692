"""Drop-in for Megatron-LM's `mtp_utils_triton` and `mtp_utils_pytorch`: what follows drafting.

Index tensors are int32 or int64, in any mix and of any stride. A batch holds its decode requests
first, of `num_speculative_tokens + 1` tokens each, then its prefill requests, of one token each,
then padding.
"""

from __future__ import annotations

from typing import Any

from heddle import _core, ops
from heddle._operation import eagerly
from heddle.compat._arrays import empty, empty_like

__all__ = [
    "mamba_state_selective_copy",
    "prepare_next_forward_pass",
    "rewind_kv_cache",
    "verify_speculative_tokens",
]


@eagerly(_core.megatron_rewind_kv_cache)
def rewind_kv_cache(
    accepted_counts: Any,
    prefill_status: Any,
    last_kv_block_offset: Any,
    kv_length_offsets: Any,
    kv_block_counts: Any,
    last_kv_block_id: Any,
    kv_block_ids: Any,
    num_speculative_tokens: int,
    block_size_tokens: int,
    num_active_requests: int | None = None,
) -> tuple[Any, Any]:
    """Takes the rejected drafts of each request off its cache, over any number of blocks.

    Args:
        accepted_counts: [num_requests]; outside [0, num_speculative_tokens] they are clamped.
        prefill_status: [num_requests]; a request with 1 is not rewound.
        last_kv_block_offset: [>= num_requests], updated: place of the last token in its block.
        kv_length_offsets: [>= num_requests], updated.
        kv_block_counts: [>= num_requests], updated.
        last_kv_block_id: [>= num_requests], updated.
        kv_block_ids: [>= num_requests, max_blocks], updated: released entries become -1.
        num_speculative_tokens: Drafts of each request.
        block_size_tokens: Tokens of a block.
        num_active_requests: Requests from here on are padding, whose state is not touched; None:
            there is none.

    Returns:
        blocks_to_release, like last_kv_block_id: its values before the call, 0 in padding; and
        remove_mask, bool [num_requests]: whether that block is released. Where a request crosses
        more than one block, kv_block_ids has the others; heddle.ops.rewind_kv_cache lists them.
    """
    blocks_to_release = empty_like(last_kv_block_id)
    remove_mask = empty_like(accepted_counts, "bool")
    ops.rewind_kv_cache(
        blocks_to_release,
        remove_mask,
        last_kv_block_offset,
        kv_length_offsets,
        kv_block_counts,
        last_kv_block_id,
        kv_block_ids,
        accepted_counts,
        prefill_status,
        num_speculative_tokens,
        block_size_tokens,
        num_active=num_active_requests,
    )
    return blocks_to_release, remove_mask


@eagerly(_core.megatron_verify_speculative_tokens)
def verify_speculative_tokens(
    input_tokens: Any,
    output_tokens: Any,
    num_decode_requests: int,
    num_prefill_requests: int,
    num_speculative_tokens: int,
) -> tuple[Any, Any, Any]:
    """Accepts the drafts of each request up to the first that the model would not have sampled.

    Args:
        input_tokens: [num_tokens] or [1, num_tokens].
        output_tokens: [>= num_tokens] or [1, >= num_tokens], sampled after each token.
        num_decode_requests: Requests with drafts.
        num_prefill_requests: Requests without.
        num_speculative_tokens: Drafts of each decode request.

    Returns:
        last_one_indices, int64 [requests]: the last accepted place of each; accepted_tokens_mask,
        bool [num_tokens]; and input_tokens [num_tokens].
    """
    if input_tokens.ndim == 2 and input_tokens.shape[0] == 1:
        input_tokens = input_tokens[0]
    last_one_indices = empty(
        input_tokens, (max(num_decode_requests + num_prefill_requests, 0),), "int64"
    )
    accepted_tokens_mask = empty_like(input_tokens, "bool")
    ops.verify_speculative_tokens(
        last_one_indices,
        accepted_tokens_mask,
        input_tokens,
        output_tokens,
        num_decode_requests,
        num_prefill_requests,
        num_speculative_tokens,
    )
    return last_one_indices, accepted_tokens_mask, input_tokens


def prepare_next_forward_pass(
    num_decode_requests: int,
    output_tokens: Any,
    required_logit_indices: Any,
    last_one_indices: Any,
    accepted_tokens_mask: Any,
    input_tokens: Any,
    sampled_tokens_buf: Any,
    last_accepted_seq_buf: Any,
    accepted_tokens_per_request: Any,
    accepted_token_counts: Any,
    num_speculative_tokens: int,
) -> None:
    """What each request goes on with, into the buffers of the caller.

    Args:
        num_decode_requests: Requests with drafts.
        output_tokens: [>= num_tokens].
        required_logit_indices: [>= num_tokens].
        last_one_indices: [num_requests], of verify_speculative_tokens.
        accepted_tokens_mask: [num_tokens] bool.
        input_tokens: [num_tokens].
        sampled_tokens_buf: [>= num_requests], gets output_tokens[last_one_indices].
        last_accepted_seq_buf: [>= num_requests], gets required_logit_indices[last_one_indices].
        accepted_tokens_per_request: [>= num_decode_requests, >= num_speculative_tokens], gets the
            accepted drafts of each decode request, -1 after them. Rows of prefill requests are
            not needed and not touched.
        accepted_token_counts: [>= num_decode_requests], gets their number. The same holds.
        num_speculative_tokens: Drafts of each decode request.
    """
    ops.prepare_next_forward_pass(
        sampled_tokens_buf,
        last_accepted_seq_buf,
        accepted_tokens_per_request,
        accepted_token_counts,
        output_tokens,
        required_logit_indices,
        last_one_indices,
        accepted_tokens_mask,
        input_tokens,
        num_decode_requests,
        num_speculative_tokens,
    )


def mamba_state_selective_copy(
    intermediate_states: Any,
    current_states: Any,
    prefill_status: Any,
    state_idx: Any,
    accepted_counts: Any,
    num_layers: int,
) -> None:
    """`current[l][slot] = intermediate[l][slot][accepted_counts[i]]`, slot = state_idx[i].

    So for each request i that is not in prefill and each layer l < num_layers.

    Args:
        intermediate_states: [>= num_layers, slots, S + 1, *state], any dtype.
        current_states: [>= num_layers, slots, *state], the same dtype, updated.
        prefill_status: [num_requests]; a request with 1 is skipped.
        state_idx: [num_requests]; one with a negative slot is skipped.
        accepted_counts: [num_requests]; outside [0, S] they are clamped.
        num_layers: Layers that are copied.
    """
    ops.mamba_state_selective_copy(
        [current_states],
        [intermediate_states],
        prefill_status,
        state_idx,
        accepted_counts,
        num_layers,
    )
