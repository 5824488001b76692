"""The calls in the published pages of the originals, as they stand there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import oracle
import pytest
from frameworks import Framework
from layouts import pointer_table, rounded

from heddle import compat


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    compat.install("lorax")
    compat.install("megatron")
    yield
    compat.uninstall("lorax")
    compat.uninstall("megatron")


def test_metadata_kernels(framework: Framework) -> None:
    from lorax_server.models.metadata_kernels import (
        block_tables_to_padded,
        block_tables_to_ragged,
        copy_next_input_ids_inplace,
        has_triton,
        prepare_position_slot_ids,
        slots_filtering,
    )

    input_lengths, cache_lengths, max_len, max_input_len = [2, 1], [1, 3], 4, 2
    block_tables = framework.array([[5, 6, 7, 0], [8, 9, 10, 11]], "i32")
    input_lengths_tensor, cache_lengths_tensor = (
        framework.array([2, 1], "i32"),
        framework.array([1, 3], "i32"),
    )
    ragged_tables = block_tables_to_ragged(
        block_tables=block_tables,
        input_lengths=input_lengths,
        cache_lengths=cache_lengths,
        input_lengths_tensor=input_lengths_tensor,
        cache_lengths_tensor=cache_lengths_tensor,
        max_current_length=max_len,
    )
    assert framework.numpy(ragged_tables).tolist() == [5, 6, 7, 8, 9, 10, 11]

    cu_seqlen, cu_slots = framework.array([0, 2, 3], "i32"), framework.array([0, 10, 20], "i64")
    position_ids, slot_indices = framework.array([0] * 3, "i32"), framework.array([0] * 3, "i64")
    prepare_position_slot_ids(
        max_input_length=max_input_len,
        cache_lengths=cache_lengths_tensor,
        cu_seqlen=cu_seqlen,
        cu_slots=cu_slots,
        position_ids=position_ids,
        slot_indices=slot_indices,
    )
    assert framework.numpy(position_ids).tolist() == [1, 2, 3]
    assert framework.numpy(slot_indices).tolist() == [1, 2, 13]

    padded = framework.array(np.zeros((2, 4)), "i32")
    block_tables_to_padded(4, framework.array([0, 3, 7], "i64"), padded, ragged_tables)
    assert framework.numpy(padded).tolist() == [[5, 6, 7, 0], [8, 9, 10, 11]]

    # The first request gets two ids after its three tokens; the second is in its prompt yet.
    all_input_ids = framework.array([[1, 2, 3, 0, 0], [4, 5, 6, 7, 7]], "i64")
    prompt_lengths = framework.array([3, 5], "i32")
    next_input_ids = framework.array([9, 8, 6], "i64")
    copy_next_input_ids_inplace(
        2,
        all_input_ids,
        cache_lengths_tensor,
        input_lengths_tensor,
        prompt_lengths,
        next_input_ids,
        framework.array([0, 2, 3], "i64"),
    )
    assert framework.numpy(all_input_ids).tolist() == [[1, 2, 3, 9, 8], [4, 5, 6, 7, 7]]

    filtered_slots = framework.array([0, 0, 0], "i64")
    slots_filtering(2, slot_indices, filtered_slots, cu_seqlen, framework.array([1, 0], "i64"))
    assert framework.numpy(filtered_slots).tolist() == [2, 13, 1]
    assert isinstance(has_triton(), bool)


def test_punica_kernels(framework: Framework, rng: np.random.Generator) -> None:
    import punica_kernels

    batch, heads, num_kv_heads, head_dim, page_size, num_layers, layer_idx = 2, 8, 2, 128, 16, 3, 1
    pages = [
        framework.array(
            rng.standard_normal((num_layers, 2, num_kv_heads, page_size, head_dim)), "f16"
        )
        for _ in range(3)
    ]
    kv_ptrs, kv_indptr = pointer_table(framework, pages), framework.array([0, 2, 3], "i32")
    last_page_offset, tmpbuf = framework.array([4, 16], "i32"), framework.array(np.zeros(64), "u8")
    o, q = (framework.array(rng.standard_normal((batch, heads, head_dim)), "f16") for _ in range(2))
    punica_kernels.batch_decode(o, q, kv_ptrs, kv_indptr, last_page_offset,
                                tmpbuf, num_layers, layer_idx, num_kv_heads, page_size)  # fmt: skip
    cache = np.stack([framework.numpy(page) for page in pages])
    want, _ = oracle.attention(
        framework.numpy(o),
        framework.numpy(q),
        [0, 1, 2],
        cache,
        [0, 2, 3],
        [4, 16],
        layer_idx,
        page_size,
    )
    np.testing.assert_allclose(framework.numpy(o), want, rtol=1e-3, atol=5e-4)

    num_adapters, h_in, h_out = 2, 64, 16
    w = [
        framework.array(rng.standard_normal((num_layers, h_out, h_in)), "f16")
        for _ in range(num_adapters)
    ]
    w_ptr, indices = pointer_table(framework, w), framework.array([1, -1], "i64")
    x, y = (
        framework.array(rng.standard_normal((2, h_in)), "f16"),
        framework.array(np.ones((2, h_out)), "f16"),
    )
    punica_kernels.dispatch_bgmv(y, x, w_ptr, indices, layer_idx, scale=1.0)
    of_row = [framework.numpy(w[1])[layer_idx], None]
    oracle.product_of_rows(np.ones((2, h_out)), framework.numpy(x), of_row).check(
        framework.numpy(y), "f16"
    )

    tmp_size = punica_kernels.sgmv_cutlass_tmp_size(num_adapters)
    tmp = framework.array(np.full(tmp_size, 255), "u8")
    w = [
        framework.array(rng.standard_normal((num_layers, h_in, h_out)), "f16")
        for _ in range(num_adapters)
    ]
    w_ptr = pointer_table(framework, w)
    s_start, s_end = framework.array([0, 1], "i32"), framework.array([1, 2], "i32")
    y = framework.array(np.ones((2, h_out)), "f16")
    punica_kernels.sgmv_cutlass(y, x, w_ptr, s_start, s_end, tmp, layer_idx)
    of_row = [framework.numpy(a)[layer_idx].T for a in w]
    oracle.product_of_rows(np.ones((2, h_out)), framework.numpy(x), of_row).check(
        framework.numpy(y), "f16"
    )

    input, weight = x, framework.array(rng.standard_normal(h_in), "f16")
    output = framework.array(np.zeros((2, h_in)), "f16")
    punica_kernels.rms_norm(output, input, weight, epsilon=1e-6)
    want = oracle.rms_norm(framework.numpy(input), framework.numpy(weight), 1e-6)
    oracle.Sum(want, np.abs(want), h_in).check(framework.numpy(output), "f16")


def test_bgmv_expand_slice(framework: Framework, rng: np.random.Generator) -> None:
    from lorax_server.utils.ops.bgmv_expand_slice import bgmv_expand_slice

    batch_size, num_loras, head_dim, rank = 5, 3, 32, 8
    values = rng.standard_normal((num_loras, head_dim, rank))
    lora_b_q = framework.array(values, "f16")
    lora_a_output = framework.array(rng.standard_normal((batch_size, rank)), "f32")
    before = rng.standard_normal((batch_size, 3 * head_dim))
    qkv_output, ids = framework.array(before, "f16"), [2, -1, 0, 1, 2]
    indices = framework.array(ids, "i64")
    bgmv_expand_slice(
        inputs=lora_a_output,
        lora_b_weights=lora_b_q,
        output_tensor=qkv_output,
        lora_indices_tensor=indices,
        slice_offset=0,
        slice_size=head_dim,
        add_inputs=True,
    )
    of_row = oracle.weights_by_id(batch_size, ids, rounded(framework, values, "f16"))
    want = oracle.product_of_rows(
        rounded(framework, before, "f16")[:, :head_dim], framework.numpy(lora_a_output), of_row
    )
    got = framework.numpy(qkv_output)
    want.check(got[:, :head_dim], "f16")
    np.testing.assert_array_equal(
        got[:, head_dim:], rounded(framework, before, "f16")[:, head_dim:]
    )


def test_sgmv_shrink(framework: Framework, rng: np.random.Generator) -> None:
    from lorax_server.utils.ops.sgmv_shrink import sgmv_shrink

    hidden_size, rank, num_loras, alpha = 96, 16, 2, 32
    x, a = (
        rng.standard_normal((10, hidden_size)),
        rng.standard_normal((num_loras, rank, hidden_size)),
    )
    hidden_states, lora_a_weights = framework.array(x, "bf16"), framework.array(a, "bf16")
    lora_a_output = framework.array(np.zeros((10, rank)), "f32")
    seq_starts, seq_lens = framework.array([0, 4], "i64"), framework.array([4, 6], "i64")
    indices, batch_size, max_seq_len = framework.array([1, -1], "i64"), 2, 6
    sgmv_shrink(
        inputs=hidden_states,
        lora_a_weights=lora_a_weights,
        output_tensor=lora_a_output,
        b_seq_start_loc=seq_starts,
        seq_len_tensor=seq_lens,
        lora_indices_tensor=indices,
        batches=batch_size,
        max_seq_length=max_seq_len,
        scaling=alpha / rank,
    )
    of_row = [rounded(framework, a, "bf16")[1]] * 4 + [None] * 6
    want = oracle.product_of_rows(
        np.zeros((10, rank)), rounded(framework, x, "bf16"), of_row, alpha / rank
    )
    want.check(framework.numpy(lora_a_output), "f32")


@pytest.mark.parametrize("module", ["mtp_utils_triton", "mtp_utils_pytorch"])
def test_mtp_utils(framework: Framework, module: str) -> None:
    import importlib

    mtp: Any = importlib.import_module(
        f"megatron.core.inference.text_generation_controllers.{module}"
    )
    num_speculative_tokens = 2
    # Two decode requests, the first with both drafts accepted, the second with none; one prefill
    # request.
    input_tokens = framework.array([[10, 11, 12, 20, 99, 22, 30]], "i64")
    output_tokens = framework.array([[11, 12, 13, 21, 22, 23, 31]], "i64")
    last_one_indices, accepted_tokens_mask, input_tokens = mtp.verify_speculative_tokens(
        input_tokens, output_tokens, 2, 1, num_speculative_tokens
    )
    assert framework.numpy(last_one_indices).tolist() == [2, 3, 6]
    assert framework.numpy(accepted_tokens_mask).tolist() == [1, 1, 1, 1, 0, 0, 1]

    sampled, last_seq, counts = (framework.array([0] * 3, "i64") for _ in range(3))
    accepted = framework.array(np.full((3, 2), -1), "i64")
    required_logit_indices = framework.array([0, 1, 2, 3, 4, 5, 9], "i64")
    mtp.prepare_next_forward_pass(
        2, output_tokens[0], required_logit_indices, last_one_indices, accepted_tokens_mask,
        input_tokens, sampled, last_seq, accepted, counts, num_speculative_tokens,
    )  # fmt: skip
    assert framework.numpy(sampled).tolist() == [13, 21, 31]
    assert framework.numpy(last_seq).tolist() == [2, 3, 9]
    assert framework.numpy(accepted).tolist() == [[11, 12], [-1, -1], [-1, -1]]
    assert framework.numpy(counts).tolist() == [2, 0, 0]

    state = [
        framework.array(values, "i32") for values in ([1, 1, 3], [5, 9, 7], [2, 3, 2], [41, 52, 61])
    ]
    kv_block_ids = framework.array([[40, 41, -1], [50, 51, 52], [60, 61, -1]], "i32")
    blocks_to_release, remove_mask = mtp.rewind_kv_cache(
        counts,
        framework.array([0, 0, 1], "i32"),
        *state,
        kv_block_ids,
        num_speculative_tokens,
        4,
        num_active_requests=3,
    )
    assert framework.numpy(blocks_to_release[remove_mask]).tolist() == [52]
    assert [framework.numpy(s).tolist() for s in state] == [
        [1, 3, 3],
        [5, 7, 7],
        [2, 2, 2],
        [41, 51, 61],
    ]

    intermediate_states = framework.array(np.arange(2 * 3 * 3 * 4).reshape(2, 3, 3, 4), "f32")
    current_states = framework.array(np.zeros((2, 3, 4)), "f32")
    mtp.mamba_state_selective_copy(
        intermediate_states,
        current_states,
        prefill_status=framework.array([0, 0, 1], "i32"),
        state_idx=framework.array([2, 0, 1], "i32"),
        accepted_counts=counts,
        num_layers=2,
    )
    copied, source = framework.numpy(current_states), framework.numpy(intermediate_states)
    np.testing.assert_array_equal(copied[:, 2], source[:, 2, 2])
    np.testing.assert_array_equal(copied[:, 0], source[:, 0, 0])
    assert not copied[:, 1].any()
