"""Speculation on torch's CUDA tensors: the tests of test_speculation.py, drop-ins and CUDA graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from test_speculation import (
    Arrays,
    Batch,
    batch,
    test_ngram_drafts,
    test_placeholders_are_compared_or_rejected,
    test_prefill_rows_are_written_where_asked,
    test_rewind_leaves_padding_alone,
    test_speculative_step,
    test_verify_prepare_and_rewind,
)
from torch_on_gpu import TorchOnGpu, framework, torch

from heddle import ops
from heddle.compat.megatron import mtp_utils

__all__ = [
    "batch",
    "framework",
    "test_ngram_drafts",
    "test_placeholders_are_compared_or_rejected",
    "test_prefill_rows_are_written_where_asked",
    "test_rewind_leaves_padding_alone",
    "test_speculative_step",
    "test_verify_prepare_and_rewind",
]


def test_drop_ins(framework: TorchOnGpu, rng: np.random.Generator) -> None:
    batch = Batch(rng, decode=300, prefill=5, most=3, ragged=False)
    a = Arrays(framework, batch, "i64")
    last_ones, mask, tokens = mtp_utils.verify_speculative_tokens(
        a.input.reshape(1, -1), a.output, batch.decode, batch.prefill, batch.most
    )
    mtp_utils.prepare_next_forward_pass(
        batch.decode, a.output, a.required, last_ones, mask, tokens,
        a.sampled, a.last_seq, a.tokens, a.counts, batch.most,
    )  # fmt: skip
    status = framework.array([0] * batch.decode + [1] * batch.prefill, "i32")
    a.blocks, a.remove = mtp_utils.rewind_kv_cache(
        a.counts, status, *a.state, batch.most, batch.block_size
    )
    a.last_ones, a.mask = last_ones, mask
    assert {t.device.type for t in (last_ones, mask, a.blocks, a.remove)} == {"cuda"}
    listed = Arrays(framework, batch, "i64")  # the drop-in gives no list: that of the op
    ops.rewind_kv_cache(
        None, None, *listed.state, a.counts, status, batch.most, batch.block_size,
        released_ids=a.released, num_released=a.num_released,
    )  # fmt: skip
    a.check(batch)


def test_drop_in_into_rows_of_decode_requests_alone(
    framework: TorchOnGpu, rng: np.random.Generator
) -> None:
    """As Megatron passes accepted tokens and counts, also within a captured graph."""
    for step in (1, 2):  # without gaps by lane groups, with gaps by a thread a row
        batches = [Batch(rng, decode=70, prefill=9, most=3, ragged=False) for _ in range(2)]
        a, b = (Arrays(framework, batch, "i64") for batch in batches)
        a.mask = framework.array(np.zeros(2 * len(batches[0].input)), "bool")[::step]
        a.mask = a.mask[: len(batches[0].input)]
        guarded = framework.array(np.full((79, 3), 7), "i64"), framework.array([7] * 79, "i64")
        tokens, counts = guarded[0][:70], guarded[1][:70]

        def prepare(a: Arrays = a, tokens: Any = tokens, counts: Any = counts) -> None:
            ops.verify_speculative_tokens(a.last_ones, a.mask, a.input, a.output, 70, 9, 3)
            mtp_utils.prepare_next_forward_pass(
                70, a.output, a.required, a.last_ones, a.mask, a.input,
                a.sampled, a.last_seq, tokens, counts, 3,
            )  # fmt: skip

        def check(batch: Batch, a: Arrays = a, guarded: Any = guarded) -> None:
            accepted, bases = batch.accepted(), batch.bases()
            last = [base + n for base, n in zip(bases, accepted, strict=True)]
            assert a.sampled.tolist() == [batch.output[t] for t in last]
            assert a.last_seq.tolist() == [batch.required[t] for t in last]
            drafts = [
                batch.input[base + 1 : base + 1 + n] + [-1] * (3 - n)
                for base, n in zip(bases[:70], accepted, strict=False)
            ]
            assert guarded[0].tolist() == drafts + [[7] * 3] * 9
            assert guarded[1].tolist() == accepted[:70] + [7] * 9

        prepare()
        check(batches[0])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            prepare()
        for name in ("input", "output", "required"):
            getattr(a, name).copy_(getattr(b, name))
        graph.replay()
        torch.cuda.synchronize()
        check(batches[1])


def test_a_captured_step_takes_other_tokens_and_counts(
    framework: TorchOnGpu, rng: np.random.Generator
) -> None:
    first, second = (Batch(rng, decode=7, prefill=2, most=4, ragged=False) for _ in range(2))
    second.block_size = first.block_size
    longest = second.block_size * second.max_blocks
    second.length = [min(n, longest) for n in second.length]
    second.ids = [
        rng.integers(0, 99, -(-n // second.block_size)).tolist()
        + [-1] * (second.max_blocks - -(-n // second.block_size))
        for n in second.length
    ]
    a, b = (Arrays(framework, batch, "i32") for batch in (first, second))
    decode, prefill = framework.array([0], "i32"), framework.array([0], "i32")

    def step() -> None:
        ops.speculative_step(
            *a.state, a.input, a.output, decode, prefill, first.most, first.block_size,
            required_logit_indices=a.required, last_one_indices=a.last_ones,
            accepted_tokens_mask=a.mask, sampled_tokens=a.sampled, last_accepted_seq=a.last_seq,
            accepted_tokens=a.tokens, accepted_counts=a.counts, blocks_to_release=a.blocks,
            remove_mask=a.remove, released_ids=a.released, num_released=a.num_released,
        )  # fmt: skip

    step()  # of no requests; makes the stream's context
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for name, array in vars(b).items():
        mine = getattr(a, name)
        for to, source in zip(mine, array) if name == "state" else [(mine, array)]:
            if isinstance(to, torch.Tensor):
                to.copy_(source)
    decode.fill_(second.decode)
    prefill.fill_(second.prefill)
    graph.replay()
    torch.cuda.synchronize()
    a.check(second)
