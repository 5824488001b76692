#!/usr/bin/env python3
"""What a step's bookkeeping costs the thread that asks for it from Python, on torch CUDA tensors.

Usage: python_gpu_cost.py [--json FILE]. 256 requests with 3 drafts; microseconds per call, the
medians of rounds of calls that follow one another without waiting for the GPU. `torch add_` is an
in-place addition by torch, for comparison.
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable
from typing import Any

import torch
from call_cost import run, samples_of

from heddle import ops

ROUNDS, CALLS = 21, 100
REQUESTS, DRAFTS, TOKENS, WIDTH, AVERAGE = 256, 3, 4, 512, 253


def filled(*shape: int, value: int = 0, dtype: torch.dtype = torch.int32) -> Any:
    """A tensor on the GPU."""
    return torch.full(shape, value, dtype=dtype, device="cuda")


def starts(step: int) -> Any:
    """Of rows of `step` elements."""
    return torch.arange(0, REQUESTS * step + 1, step, dtype=torch.int32, device="cuda")


def metadata_calls() -> dict[str, Callable[[], None]]:
    """The five conversions and all that a step needs."""
    n = REQUESTS
    tables, ragged, rows = filled(n, WIDTH), filled(n * AVERAGE), starts(AVERAGE)
    lengths, zeros, first = filled(n, value=AVERAGE), filled(n), rows[:n].clone()
    positions, slots = filled(n * AVERAGE), filled(n * AVERAGE)
    ids, next_ids, next_rows = filled(n, 1024), filled(TOKENS * n), starts(TOKENS)
    return {
        "block_tables_to_ragged": lambda: ops.block_tables_to_ragged(
            ragged, tables, lengths, zeros
        ),
        "block_tables_to_padded": lambda: ops.block_tables_to_padded(tables, ragged, rows),
        "slots_filtering": lambda: ops.slots_filtering(positions, ragged, rows, first),
        "prepare_position_slot_ids": lambda: ops.prepare_position_slot_ids(
            positions, slots, zeros, rows, rows
        ),
        "copy_next_input_ids_inplace": lambda: ops.copy_next_input_ids_inplace(
            ids, next_ids, next_rows, zeros, lengths, zeros
        ),
        "prepare_batch": lambda: ops.prepare_batch(
            q_indptr=rows,
            positions=positions,
            kv_slots=slots,
            token_to_seq=ragged,
            cache_lengths=zeros,
            input_lengths=lengths,
            seq_page_table=tables,
            page_size=16,
        ),
    }


def speculation_calls() -> dict[str, Callable[[], None]]:
    """The three ops, and their fusion with what the next step needs."""
    n, blocks = REQUESTS, 64

    def longs(*shape: int, value: int = 0) -> Any:
        return filled(*shape, value=value, dtype=torch.int64)

    def bools(size: int) -> Any:
        return filled(size, dtype=torch.bool)

    kv = (
        longs(n, value=8),
        longs(n, value=10**6),
        longs(n, value=blocks),
        longs(n, value=7),
        longs(n, blocks, value=7),
    )
    inputs, outputs = longs(n * TOKENS, value=5), longs(n * TOKENS, value=5)
    indices, last, mask = longs(n * TOKENS), longs(n), bools(n * TOKENS)
    sampled, last_seq, tokens, counts = longs(n), longs(n), longs(n, DRAFTS), longs(n)
    released, is_released, states = longs(n), bools(n), longs(n)
    of_the_three = {
        "required_logit_indices": indices,
        "last_one_indices": last,
        "accepted_tokens_mask": mask,
        "sampled_tokens": sampled,
        "last_accepted_seq": last_seq,
        "accepted_tokens": tokens,
        "accepted_counts": counts,
        "blocks_to_release": released,
        "remove_mask": is_released,
    }
    of_the_next = {
        "released_ids": longs(n),
        "num_released": longs(1),
        "next_positions": longs(n, TOKENS),
        "next_slots": longs(n, TOKENS),
        "next_kv_lens": longs(n),
        "next_last_page_len": longs(n),
        "num_next_tokens": TOKENS,
    }

    def step(**wanted: Any) -> None:
        ops.speculative_step(*kv, inputs, outputs, n, 0, DRAFTS, 16, **wanted)

    return {
        "verify_speculative_tokens": lambda: ops.verify_speculative_tokens(
            last, mask, inputs, outputs, n, 0, DRAFTS
        ),
        "prepare_next_forward_pass": lambda: ops.prepare_next_forward_pass(
            sampled, last_seq, tokens, counts, outputs, indices, last, mask, inputs, n, DRAFTS
        ),
        "rewind_kv_cache": lambda: ops.rewind_kv_cache(
            released, is_released, *kv, counts, states, DRAFTS, 16
        ),
        "speculative_step, outputs of the three": lambda: step(**of_the_three),
        "speculative_step, all outputs": lambda: step(**of_the_three, **of_the_next),
    }


def measure() -> dict[str, Any]:
    """All calls, each of which is printed."""
    other = filled(REQUESTS)
    calls = {**metadata_calls(), **speculation_calls(), "torch add_": lambda: other.add_(0)}
    records = []
    for name, call in calls.items():
        samples = [round(us, 3) for us in samples_of(call, ROUNDS, CALLS, torch.cuda.synchronize)]
        us = statistics.median(samples)
        records.append({"op": name, "us": us, "samples": samples})
        print(f"{us:7.2f} us  {name}")
    return {
        "what": "microseconds per call from Python, 256 requests with 3 drafts",
        "device": torch.cuda.get_device_name(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "records": records,
    }


if __name__ == "__main__":
    run(__doc__ or "", measure)
