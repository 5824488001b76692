#!/usr/bin/env python3
"""What a call costs the thread that makes it from Python, on torch CUDA tensors.

Usage: python_gpu_cost.py [--json FILE]. Microseconds per call, the medians of rounds of calls that
follow one another without waiting for the GPU. The metadata and speculation calls have 256 requests
with 3 drafts, the others 16 rows; drop-ins get the dtypes of their callers. `empty launch` is
torch's kernel that sleeps for no time; `torch add_` is an in-place addition by torch.

What a call may take above the empty launch: 3 us for `lora_apply`, `batch_decode` and the drop-ins,
some of which make tensors for their results, and 12 where they also sum lists of Python; 1.5 us and
0.15 us for each array for all others. Calls that take more are marked.
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from call_cost import run, samples_of

import heddle
from heddle import ops
from heddle.compat.lorax import metadata_kernels
from heddle.compat.lorax import ops as lorax_ops
from heddle.compat.megatron import mtp_utils

ROUNDS, CALLS = 21, 100
REQUESTS, DRAFTS, TOKENS, WIDTH, AVERAGE = 256, 3, 4, 512, 253


ROWS, HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, WIDTH_OF_LAYER, RANK = 16, 32, 8, 128, 16, 4096, 16


@dataclass(frozen=True)
class Case:
    """A call, and how many arrays it has."""

    arrays: int
    call: Callable[[], Any]
    most_us: float | None = None
    """What it may take above an empty launch; None: what follows from the number of arrays."""

    def target_us(self) -> float:
        """See the head of this file."""
        return 1.5 + 0.15 * self.arrays if self.most_us is None else self.most_us


def filled(*shape: int, value: int = 0, dtype: torch.dtype = torch.int32) -> Any:
    """A tensor on the GPU."""
    return torch.full(shape, value, dtype=dtype, device="cuda")


def starts(step: int) -> Any:
    """Of rows of `step` elements."""
    return torch.arange(0, REQUESTS * step + 1, step, dtype=torch.int32, device="cuda")


def metadata_calls() -> dict[str, Case]:
    """The five conversions and all that a step needs."""
    n = REQUESTS
    tables, ragged, rows = filled(n, WIDTH), filled(n * AVERAGE), starts(AVERAGE)
    lengths, zeros, first = filled(n, value=AVERAGE), filled(n), rows[:n].clone()
    positions, slots = filled(n * AVERAGE), filled(n * AVERAGE)
    ids, next_ids, next_rows = filled(n, 1024), filled(TOKENS * n), starts(TOKENS)
    return {
        "block_tables_to_ragged": Case(
            4, lambda: ops.block_tables_to_ragged(ragged, tables, lengths, zeros)
        ),
        "block_tables_to_padded": Case(3, lambda: ops.block_tables_to_padded(tables, ragged, rows)),
        "slots_filtering": Case(4, lambda: ops.slots_filtering(positions, ragged, rows, first)),
        "prepare_position_slot_ids": Case(
            5, lambda: ops.prepare_position_slot_ids(positions, slots, zeros, rows, rows)
        ),
        "copy_next_input_ids_inplace": Case(
            6,
            lambda: ops.copy_next_input_ids_inplace(
                ids, next_ids, next_rows, zeros, lengths, zeros
            ),
        ),
        "prepare_batch": Case(
            7,
            lambda: ops.prepare_batch(
                q_indptr=rows,
                positions=positions,
                kv_slots=slots,
                token_to_seq=ragged,
                cache_lengths=zeros,
                input_lengths=lengths,
                seq_page_table=tables,
                page_size=16,
            ),
        ),
    }


def speculation_calls() -> dict[str, Case]:
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

    given, all_outputs = (*kv, inputs, outputs, n, 0, DRAFTS, 16), of_the_three | of_the_next
    return {
        "verify_speculative_tokens": Case(
            4, lambda: ops.verify_speculative_tokens(last, mask, inputs, outputs, n, 0, DRAFTS)
        ),
        "prepare_next_forward_pass": Case(
            9,
            lambda: ops.prepare_next_forward_pass(
                sampled, last_seq, tokens, counts, outputs, indices, last, mask, inputs, n, DRAFTS
            ),
        ),
        "rewind_kv_cache": Case(
            9,
            lambda: ops.rewind_kv_cache(released, is_released, *kv, counts, states, DRAFTS, 16),
        ),
        "speculative_step, outputs of the three": Case(
            16, lambda: ops.speculative_step(*given, **of_the_three)
        ),
        "speculative_step, all outputs": Case(
            22, lambda: ops.speculative_step(*given, **all_outputs)
        ),
    }


def megatron_calls(state: torch.dtype) -> dict[str, Case]:
    """Megatron-LM's drop-ins, tokens int64 and the state of the cache of this dtype."""
    n, blocks = REQUESTS, 64
    kv = [filled(n, value=value, dtype=state) for value in (8, 10**6, blocks, 7)]
    kv.append(filled(n, blocks, value=7, dtype=state))
    prefill = filled(n, dtype=state)
    longs = [filled(n, dtype=torch.int64) for _ in range(4)]
    tokens, sampled, indices = (filled(n * TOKENS, value=5, dtype=torch.int64) for _ in range(3))
    accepted, mask = filled(n, DRAFTS, dtype=torch.int64), filled(n * TOKENS, dtype=torch.bool)
    suffix = f", state {str(state).rpartition('.')[2]}"
    return {
        "Megatron-LM's verify_speculative_tokens" + suffix: Case(
            4, lambda: mtp_utils.verify_speculative_tokens(tokens, sampled, n, 0, DRAFTS), 3.0
        ),
        "Megatron-LM's prepare_next_forward_pass" + suffix: Case(
            9,
            lambda: mtp_utils.prepare_next_forward_pass(
                n, sampled, indices, longs[0], mask, tokens, *longs[1:3], accepted, longs[3], DRAFTS
            ),
            3.0,
        ),
        "Megatron-LM's rewind_kv_cache" + suffix: Case(
            9, lambda: mtp_utils.rewind_kv_cache(longs[0], prefill, *kv, DRAFTS, 16), 3.0
        ),
    }


def lorax_calls() -> dict[str, Case]:
    """LoRAX's conversions: page tables and lengths int32, slots, ids and their starts int64."""
    n = REQUESTS
    tables, ragged = filled(n, WIDTH), filled(n * AVERAGE)
    lengths, zeros, given, none = filled(n, value=AVERAGE), filled(n), [AVERAGE] * n, [0] * n
    rows, cu_seqlen, next_rows = starts(AVERAGE).long(), starts(AVERAGE), starts(TOKENS).long()
    slots, filtered = (filled(n * AVERAGE, dtype=torch.int64) for _ in range(2))
    positions, ids = filled(n * AVERAGE), filled(n, 1024, dtype=torch.int64)
    next_ids, first = filled(TOKENS * n, dtype=torch.int64), rows[:n].clone()
    kernels = metadata_kernels
    return {
        "LoRAX's block_tables_to_padded": Case(
            3, lambda: kernels.block_tables_to_padded(WIDTH, rows, tables, ragged), 3.0
        ),
        "LoRAX's block_tables_to_ragged, with two sums of lists": Case(
            4,
            lambda: kernels.block_tables_to_ragged(
                block_tables=tables,
                input_lengths=given,
                cache_lengths=none,
                input_lengths_tensor=lengths,
                cache_lengths_tensor=zeros,
                max_current_length=AVERAGE,
            ),
            12.0,
        ),
        "LoRAX's copy_next_input_ids_inplace": Case(
            6,
            lambda: kernels.copy_next_input_ids_inplace(
                TOKENS, ids, zeros, lengths, zeros, next_ids, next_rows
            ),
            3.0,
        ),
        "LoRAX's prepare_position_slot_ids": Case(
            5,
            lambda: kernels.prepare_position_slot_ids(
                AVERAGE, zeros, cu_seqlen, rows, positions, slots
            ),
            3.0,
        ),
        "LoRAX's slots_filtering": Case(
            4, lambda: kernels.slots_filtering(AVERAGE, slots, filtered, rows, first), 3.0
        ),
    }


def lorax_lora_calls() -> dict[str, Case]:
    """LoRAX's single LoRA operations, ids and segments int64, h f32."""
    width, slots = WIDTH_OF_LAYER, 4
    a, b = (
        filled(slots, RANK, width, dtype=torch.bfloat16),
        filled(slots, width, RANK, dtype=torch.bfloat16),
    )
    x, y = (filled(ROWS, width, dtype=torch.bfloat16) for _ in range(2))
    h, ids = filled(ROWS, RANK, dtype=torch.float32), torch.arange(ROWS, device="cuda") % slots
    lengths = filled(slots, value=ROWS // slots, dtype=torch.int64)
    segments = (torch.arange(slots, device="cuda") * (ROWS // slots), lengths, ids[:slots].clone())
    sizes = (slots, ROWS // slots)
    return {
        "LoRAX's bgmv_shrink": Case(4, lambda: lorax_ops.bgmv_shrink(x, a, h, ids, 1.0), 3.0),
        "LoRAX's bgmv_expand_slice": Case(
            4, lambda: lorax_ops.bgmv_expand_slice(h, b, y, ids, 0, width), 3.0
        ),
        "LoRAX's sgmv_shrink": Case(
            6, lambda: lorax_ops.sgmv_shrink(x, a, h, *segments, *sizes, 1.0), 3.0
        ),
        "LoRAX's sgmv_expand_slice": Case(
            6,
            lambda: lorax_ops.sgmv_expand_slice(h, b, y, *segments, *sizes, 0, width, True),
            3.0,
        ),
    }


def lora_calls() -> dict[str, Case]:
    """A linear layer of a decode step, the rows of the batch grouped before; and its halves."""
    width, slots = WIDTH_OF_LAYER, 4
    shape = {"dtype": "bf16", "device": "cuda:0", "aligned": True}
    table_a = heddle.AdapterTable(slots, [width], RANK, **shape)
    table_b = heddle.AdapterTable(slots, [width], RANK, layout="rank_minor", **shape)
    a, b = (
        filled(slots, RANK, width, dtype=torch.bfloat16),
        filled(slots, width, RANK, dtype=torch.bfloat16),
    )
    for slot in range(slots):
        table_a.set(slot, 0, a[slot])
        table_b.set(slot, 0, b[slot])
    x, y = filled(ROWS, width, dtype=torch.bfloat16), filled(ROWS, width, dtype=torch.bfloat16)
    h = filled(ROWS, RANK, dtype=torch.float32)
    ids = torch.arange(ROWS, dtype=torch.int32, device="cuda") % slots
    plan = filled(heddle.lora_plan_bytes(ROWS, RANK), dtype=torch.uint8)
    batch = heddle.LoraBatch(slot_ids=ids, plan=plan)
    ops.lora_plan(plan, batch, ROWS, slots, RANK)
    outputs = [y]
    return {
        "lora_plan": Case(2, lambda: ops.lora_plan(plan, batch, ROWS, slots, RANK)),
        "lora_apply": Case(4, lambda: ops.lora_apply(outputs, x, table_a, table_b, batch), 3.0),
        "lora_shrink": Case(5, lambda: ops.lora_shrink(h, x, a, batch)),
        "lora_expand": Case(5, lambda: ops.lora_expand(y, h, b, batch)),
    }


def attention_calls() -> dict[str, Case]:
    """One layer of a decode step, sequences of 100 tokens."""
    pages_each = 7
    pool = filled(2, ROWS * pages_each, KV_HEADS, PAGE_SIZE, HEAD_DIM, dtype=torch.bfloat16)
    cache = heddle.PagedKv.from_pool(pool[0], pool[1])
    starts = torch.arange(ROWS + 1, dtype=torch.int32, device="cuda")
    pages = torch.arange(ROWS * pages_each, dtype=torch.int32, device="cuda")
    table = heddle.PageTable(starts * pages_each, pages, filled(ROWS, value=4))
    q, o = (filled(ROWS, HEADS, HEAD_DIM, dtype=torch.bfloat16) for _ in range(2))
    k, v = (filled(ROWS, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16) for _ in range(2))
    x, weight = q.view(ROWS, -1), filled(HEADS * HEAD_DIM, value=1, dtype=torch.bfloat16)
    return {
        "batch_decode": Case(7, lambda: ops.batch_decode(o, None, q, cache, table), 3.0),
        "batch_prefill": Case(8, lambda: ops.batch_prefill(o, None, q, starts, cache, table)),
        "kv_append": Case(7, lambda: ops.kv_append(cache, table, k, v)),
        "rope_kv_append": Case(8, lambda: ops.rope_kv_append(q, cache, table, k, v)),
        "rms_norm": Case(3, lambda: ops.rms_norm(x, x, weight)),
    }


def microseconds(call: Callable[[], Any]) -> tuple[float, list[float]]:
    """The median of a call, and those of its rounds."""
    samples = [round(us, 3) for us in samples_of(call, ROUNDS, CALLS, torch.cuda.synchronize)]
    return statistics.median(samples), samples


def measure() -> dict[str, Any]:
    """All calls, each of which is printed."""
    other = filled(REQUESTS)
    empty, samples = microseconds(lambda: torch.cuda._sleep(0))
    print(f"{empty:7.2f} us  empty launch")
    records: list[dict[str, Any]] = [{"op": "empty launch", "us": empty, "samples": samples}]
    for name, case in {
        **lora_calls(),
        **attention_calls(),
        **metadata_calls(),
        **speculation_calls(),
        **megatron_calls(torch.int32),
        **megatron_calls(torch.int64),
        **lorax_calls(),
        **lorax_lora_calls(),
    }.items():
        us, samples = microseconds(case.call)
        above, target = us - empty, case.target_us()
        records.append({"op": name, "us": us, "target_us": round(target, 2), "samples": samples})
        verdict = "" if above <= target else "  TOO SLOW"
        print(f"{us:7.2f} us  {name}: {above:.2f} above, at most {target:.2f}{verdict}")
    us, samples = microseconds(lambda: other.add_(0))
    print(f"{us:7.2f} us  torch add_")
    records.append({"op": "torch add_", "us": us, "samples": samples})
    return {
        "what": "microseconds per call from Python; target_us: the most above the empty launch",
        "device": torch.cuda.get_device_name(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "records": records,
    }


if __name__ == "__main__":
    run(__doc__ or "", measure)
