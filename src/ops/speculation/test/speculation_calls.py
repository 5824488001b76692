"""Calls of speculation, for python/tests/operations/operator_cases.py.

Request 0 decodes with two drafts, of which the first is right, request 1 prefills; the last token
is padding.
"""

from typing import Any

import numpy as np
from case_arrays import RNG, Call, i32, i64, nines

from heddle import ops


def _tokens() -> dict[str, Any]:
    return {"input_tokens": i64(1, 7, 3, 9, 0), "output_tokens": i32(7, 5, 6, 2, 0)}


COUNTS = {"num_decode_requests": 1, "num_prefill_requests": 1, "num_speculative_tokens": 2}
RAGGED = {"draft_indptr": i32(0, 2)}
VERIFIED = {"last_one_indices": [1, 3], "accepted_tokens_mask": [1, 1, 0, 1, 0]}
PREPARED = {"sampled_tokens": [5, 2], "last_accepted_seq": [11, 13]}
DECODED = {"accepted_tokens": [[7, -1], [9, 9]], "accepted_counts": [1, 9]}
STARTED = {"accepted_tokens": [[7, -1], [-1, -1]], "accepted_counts": [1, 0]}
"""With the rows of prefill requests written."""


def _outputs(want: dict[str, Any]) -> dict[str, Any]:
    """Arrays of the shapes of what is wanted, masks of bool."""
    shapes = {name: np.shape(values) for name, values in want.items()}
    return {name: nines(*s, dtype=bool if "mask" in name else int) for name, s in shapes.items()}


def verify_speculative_tokens() -> Call:
    return _outputs(VERIFIED) | _tokens() | COUNTS | {"num_prefill_requests": i64(1)}, VERIFIED


def _placeholders(want: int, **options: Any) -> Call:
    """Two drafts that the model did not propose, and an output that equals them."""
    tokens = i64(-1, -1, -1)
    given = _outputs({"last_one_indices": [0], "accepted_tokens_mask": [0] * 3}) | options
    given |= {"input_tokens": tokens, "output_tokens": tokens, "num_speculative_tokens": 2}
    return given | {"num_decode_requests": 1, "num_prefill_requests": 0}, {"last_one_indices": [want]}


def verify_speculative_tokens__compares_placeholders() -> Call:
    return _placeholders(2)


def verify_speculative_tokens__rejects_placeholders() -> Call:
    return _placeholders(0, reject_placeholders=True)


def verify_speculative_tokens__rejects_ragged_placeholders() -> Call:
    return _placeholders(0, **RAGGED)


def verify_speculative_tokens__compares_ragged_placeholders() -> Call:
    return _placeholders(2, reject_placeholders=False, **RAGGED)


def _verified() -> dict[str, Any]:
    given = {"required_logit_indices": i32(10, 11, 12, 13, 14), "last_one_indices": i64(1, 3)}
    given |= {"accepted_tokens_mask": np.array(VERIFIED["accepted_tokens_mask"], bool)}
    return given | _tokens() | {"num_speculative_tokens": 2}


def prepare_next_forward_pass() -> Call:
    want = PREPARED | DECODED
    return _outputs(want) | _verified() | RAGGED | {"num_decode_requests": 1}, want


def prepare_next_forward_pass__writes_prefill_rows() -> Call:
    want, options = PREPARED | STARTED, {"num_decode_requests": i32(1), "write_prefill_rows": True}
    return _outputs(want) | _verified() | options, want


def _state(want: dict[str, Any]) -> dict[str, Any]:
    """Two requests with 5 and 3 tokens in blocks of two; the first loses one token, a block's only.

    Fills `want` with the state afterwards.
    """
    ids = np.append(RNG.integers(0, 99, (2, 3)), [[-1], [-1]], 1)
    ids[1, 2] = -1
    kept = ids.copy()
    kept[0, 2] = -1
    want["last_kv_block_offset"], want["kv_length_offsets"] = [1, 0], [4, 3]
    want["kv_block_counts"], want["last_kv_block_id"] = [2, 2], kept[:, 1]
    want |= {"kv_block_ids": kept, "blocks_to_release": [ids[0, 2], ids[1, 1]]}
    want |= {"remove_mask": [1, 0], "released_ids": [ids[0, 2], 9], "num_released": [1]}
    given = {"last_kv_block_offset": i64(0, 0), "kv_length_offsets": i64(5, 3)}
    given |= {"kv_block_counts": i32(3, 2), "last_kv_block_id": i64(ids[0, 2], ids[1, 1])}
    released = ("blocks_to_release", "remove_mask", "released_ids", "num_released")
    given |= {"kv_block_ids": ids, "block_size_tokens": 2}
    return given | _outputs({name: want[name] for name in released})


def rewind_kv_cache() -> Call:
    want: dict[str, Any] = {}
    given = _state(want) | RAGGED | {"accepted_counts": i64(1, 0), "prefill_status": i32(0, 1)}
    return given | {"num_speculative_tokens": 2, "num_active": i32(2)}, want


def rewind_kv_cache__leaves_padding_alone() -> Call:
    """The second request is padding; what leaves the cache is not listed."""
    given = _state({}) | {"accepted_counts": i64(1, 0), "prefill_status": i32(0, 0)}
    given |= {"blocks_to_release": None, "remove_mask": None, "num_speculative_tokens": 2}
    given |= {"num_active": 1, "released_ids": None, "num_released": None}
    return given, {"kv_length_offsets": [4, 3]}


def speculative_step() -> Call:
    """Three tokens of each request follow, the last ones in blocks that it does not have."""
    want: dict[str, Any] = dict(VERIFIED) | PREPARED | STARTED
    given = _outputs(want) | _state(want) | _tokens() | COUNTS | RAGGED
    given |= {"required_logit_indices": i32(10, 11, 12, 13, 14), "reject_placeholders": True}
    last = given["kv_block_ids"][1, 1]
    following = {
        "next_positions": [[4, 5, 6], [3, 4, 5]],
        "next_slots": [[-1, -1, -1], [2 * last + 1, -1, -1]],
        "next_kv_lens": [7, 6],
        "next_last_page_len": [1, 2],
    }
    options = {"write_prefill_rows": True, "num_next_tokens": 3}
    return given | _outputs(following) | options, want | following


def speculative_step__counted_on_the_device() -> Call:
    want: dict[str, Any] = {}
    given = _state(want) | _tokens() | COUNTS | {"num_decode_requests": i32(1)}
    return given | {"num_prefill_requests": i64(1)}, want


def _ngrams(match: str, found: list[int], **options: Any) -> Call:
    """The last token, 7, has been there before 8 and before 1; the second row is padding."""
    tokens = i64([7, 8, 5, 7, 1, 2, 7], [1] * 7)
    given = {"draft_tokens": nines(2, 2), "num_drafts": nines(2), "tokens": tokens, "match": match}
    given |= {"lengths": i32(7, 7), "num_speculative_tokens": 2, "num_active": i64(1)}
    drafts = [found + [-1] * (2 - len(found)), [-1, -1]]
    return given | options, {"draft_tokens": drafts, "num_drafts": [len(found), 0]}


def propose_ngram_drafts() -> Call:
    return _ngrams("first", [8, 5])


def propose_ngram_drafts__of_the_last_place() -> Call:
    return _ngrams("last", [1], max_length=8)


def propose_ngram_drafts__of_longer_ngrams() -> Call:
    return _ngrams("first", [], min_ngram=2, max_ngram=4)


CALLS = [value for name, value in globals().items() if name.partition("__")[0] in ops.__all__]
