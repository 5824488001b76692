"""Calls of the metadata operations, for python/tests/operations/operator_cases.py."""

import numpy as np
from case_arrays import RNG, Call, i32, i64, nines

from heddle import ops


def block_tables_to_ragged() -> Call:
    tables = RNG.integers(0, 1000, (2, 4))
    given = {"ragged": nines(7, dtype=np.int32), "block_tables": tables, "input_lengths": i64(1, 2)}
    given |= {"cache_lengths": i32(2, 0), "fill_value": -1, "total": 5}
    return given, {"ragged": [*tables[0, :3], *tables[1, :2], -1, -1]}


def block_tables_to_ragged__without_fill() -> Call:
    given = {"ragged": nines(3), "block_tables": i32([1, 2], [3, 4]), "input_lengths": i32(1, 0)}
    return given | {"cache_lengths": i32(0, 1)}, {"ragged": [1, 3, 9]}


def block_tables_to_padded() -> Call:
    ragged = RNG.integers(0, 1000, 4)
    given = {"block_tables": nines(2, 3), "ragged": ragged, "cu_seqlens": i32(0, 1, 4)}
    return given | {"fill_value": -1}, {"block_tables": [[ragged[0], -1, -1], ragged[1:]]}


def block_tables_to_padded__into_a_narrow_table() -> Call:
    """Long rows are cut."""
    given = {"block_tables": nines(3, 4)[:, :2], "ragged": i64(1, 2, 3, 4, 5)}
    return given | {"cu_seqlens": i64(0, 3, 4, 5)}, {"block_tables": [[1, 2], [4, 9], [5, 9]]}


def copy_next_input_ids_inplace() -> Call:
    """Positions 3 and 4, of which the prompt has the first, and 5 of a row of six."""
    new = RNG.integers(0, 1000, 4)
    given = {
        "all_input_ids": nines(2, 6),
        "next_input_ids": new,
        "cu_accepted_ids": i32(0, 2, 4),
        "cache_lengths": i64(2, 3),
        "input_lengths": i32(1, 2),
        "prompt_lengths": i64(4, 0),
    }
    return given, {"all_input_ids": [[9, 9, 9, 9, new[1], 9], [9, 9, 9, 9, 9, new[2]]]}


def prepare_position_slot_ids() -> Call:
    cache = RNG.integers(0, 100, 2)
    positions = np.repeat(cache, [1, 2]) + [0, 0, 1]
    given = {"position_ids": nines(3), "slot_indices": nines(3, dtype=np.int32)}
    given |= {"cache_lengths": cache, "cu_seqlens": i32(0, 1, 3), "cu_slots": i64(5, 800, 999)}
    return given, {"position_ids": positions, "slot_indices": positions + [5, 800, 800]}


def prepare_position_slot_ids__without_slots() -> Call:
    given = {"position_ids": nines(2), "slot_indices": None, "cache_lengths": i32(4)}
    return given | {"cu_seqlens": i32(0, 2), "cu_slots": None}, {"position_ids": [4, 5]}


def slots_filtering() -> Call:
    slots = np.repeat(RNG.integers(0, 1000, 5), 2)[::2]
    given = {"filtered_slots": nines(5), "slots": slots, "cu_slots": i32(0, 1, 3)}
    given |= {"slots_start": i64(0, 3), "fill_value": -3}
    return given, {"filtered_slots": [slots[0], slots[3], slots[4], -3, -3]}


def prepare_batch() -> Call:
    """Three requests, of which the second prefills without adapter, and one of padding."""
    want = {
        "q_indptr": [0, 1, 4, 6, 6],
        "start_lengths": [5, 0, 7, 0],
        "kv_lengths": [6, 3, 9, 0],
        "page_indptr": [0, 2, 3, 6, 6],
        "last_page_len": [2, 3, 1, 0],
        "pages": [10, 11, 20, 30, 31, 32, 77, 77, 77],
        "page_table": [[10, 11, 77], [20, 77, 77], [30, 31, 32], [77, 77, 77]],
        "positions": [5, 0, 1, 2, 7, 8, 0, 0],
        "kv_slots": [45, 80, 81, 82, 127, 128, -1, -1],
        "token_to_seq": [0, 1, 1, 1, 2, 2, -1, -1],
        "input_ids": [101, 7, 7, 7, 7, 302, 5, 5],
        "slot_ids": [2, -1, -1, -1, 2, 2, -1, -1],
        "seg_starts": [0, 4, 0, 0],
        "seg_ends": [1, 6, 0, 0],
        "seg_slots": [2, 2, -1, -1],
        "adapter_rows": [0, 4, 5, -1, -1, -1, -1, -1],
        "adapter_indptr": [0, 0, 0, 3],
        "overflow": [0],
    }
    given = {name: np.full_like(np.array(values), 4242) for name, values in want.items()}
    given["positions"] = nines(8, dtype=np.int32)
    ids = np.full((4, 10), 7)
    want["all_input_ids"] = ids.copy()
    want["all_input_ids"][0, 5], want["all_input_ids"][2, 8] = 101, 302
    given |= {
        "all_input_ids": ids,
        "cache_lengths": i64(4, 0, 6, 9),
        "accepted_lengths": i32(0, -1, 0, 5),
        "accepted_extra": 1,
        "input_lengths": i64(1, 3, 2, 1),
        "num_active": i64(3),
        "seq_page_table": i32([10, 11, 99], [20, 21, 99], [30, 31, 32], [40, 41, 42]),
        "page_size": 4,
        "adapter_slots": i64(2, -1, 2, 0),
        "next_input_ids": i32(101, 301, 302, 401),
        "next_indptr": i64(0, 1, 1, 3, 4),
        "prompt_lengths": i32(0, 3, 8, 0),
        "pad_page": 77,
        "pad_token": 5,
    }
    return given, want


def prepare_batch__of_ragged_tables_that_are_cut() -> Call:
    given = {
        "q_indptr": nines(3),
        "kv_slots": nines(3),
        "overflow": nines(1),
        "cache_lengths": i64(2, 0),
        "tokens_per_seq": 2,
        "seq_pages": i64(5),
        "seq_page_indptr": i64(0, 0, 1),
        "page_size": 2,
    }
    overflow = [ops.TOKEN_OVERFLOW | ops.MISSING_PAGES]
    return given, {"q_indptr": [0, 2, 3], "kv_slots": [-1, -1, 10], "overflow": overflow}


CALLS = [
    block_tables_to_ragged,
    block_tables_to_ragged__without_fill,
    block_tables_to_padded,
    block_tables_to_padded__into_a_narrow_table,
    copy_next_input_ids_inplace,
    prepare_position_slot_ids,
    prepare_position_slot_ids__without_slots,
    slots_filtering,
    prepare_batch,
    prepare_batch__of_ragged_tables_that_are_cut,
]
