"""The operations, one function each.

Arguments: outputs first, then what is updated in place, inputs, and options as keywords. Arrays are
taken without a copy from NumPy, torch, CuPy, JAX or anybody else who offers the buffer protocol or
DLPack, and results are written to the arrays given for them. All arrays of a call must be on one
device; a call runs on the stream that their framework works on. Index arrays are int32 or int64,
mixed freely.

Errors: ValueError for arguments that disagree (the message names the array, the axis and both
values), NotImplementedError for a dtype or device that an operation does not know, MemoryError, and
RuntimeError from CUDA.
"""

from heddle.ops.activation import silu_and_mul
from heddle.ops.attention import batch_decode, batch_prefill, merge_states
from heddle.ops.embedding import embedding
from heddle.ops.kv_cache import kv_append, kv_init, rope_kv_append
from heddle.ops.linear import dequantize, linear
from heddle.ops.lora import lora_apply, lora_expand, lora_plan, lora_shrink
from heddle.ops.mamba import mamba_state_selective_copy
from heddle.ops.metadata import (
    MISSING_PAGES,
    PAGE_OVERFLOW,
    SEGMENT_OVERFLOW,
    TOKEN_OVERFLOW,
    block_tables_to_padded,
    block_tables_to_ragged,
    copy_next_input_ids_inplace,
    prepare_batch,
    prepare_position_slot_ids,
    slots_filtering,
)
from heddle.ops.norm import fused_add_rms_norm, rms_norm
from heddle.ops.rope import rope, rope_table
from heddle.ops.sampling import greedy, sample
from heddle.ops.speculation import (
    prepare_next_forward_pass,
    propose_ngram_drafts,
    rewind_kv_cache,
    speculative_step,
    verify_speculative_tokens,
)
from heddle.ops.verify import (
    tree_kv_moves,
    verify_greedy,
    verify_stochastic,
    verify_tree_greedy,
    verify_tree_stochastic,
)

__all__ = [
    "MISSING_PAGES",
    "PAGE_OVERFLOW",
    "SEGMENT_OVERFLOW",
    "TOKEN_OVERFLOW",
    "batch_decode",
    "batch_prefill",
    "block_tables_to_padded",
    "block_tables_to_ragged",
    "copy_next_input_ids_inplace",
    "dequantize",
    "embedding",
    "fused_add_rms_norm",
    "greedy",
    "kv_append",
    "kv_init",
    "linear",
    "lora_apply",
    "lora_expand",
    "lora_plan",
    "lora_shrink",
    "mamba_state_selective_copy",
    "merge_states",
    "prepare_batch",
    "prepare_next_forward_pass",
    "prepare_position_slot_ids",
    "propose_ngram_drafts",
    "rewind_kv_cache",
    "rms_norm",
    "rope",
    "rope_kv_append",
    "rope_table",
    "sample",
    "silu_and_mul",
    "slots_filtering",
    "speculative_step",
    "tree_kv_moves",
    "verify_greedy",
    "verify_speculative_tokens",
    "verify_stochastic",
    "verify_tree_greedy",
    "verify_tree_stochastic",
]
