"""Calls of the verification of drafts, for python/tests/operations/operator_cases.py.

Two requests, with the drafts 5, 6 and 7. The model confirms 5 and goes on with 1; of the second
request it takes 3 in place of the draft.
"""

from typing import Any

import numpy as np
from case_arrays import Call, drawn, i32, i64, nines

CHAIN = {"output_tokens": [[5, 1, -1], [3, -1, -1]], "num_accepted": [1, 0]}
TREE = {"output_tokens": [[5, 2, -1], [3, -1, -1]], "num_accepted": [1, 0]}
"""Of the first request the drafts are 6 and its sibling 5."""
NODES = {"accepted_nodes": [[1, -1], [-1, -1]]}
DRAWN = {"seed": i64(11, -5), "step": i32(0, 4)}


def _outputs(want: dict[str, Any]) -> dict[str, Any]:
    return {name: nines(*np.shape(values)) for name, values in want.items()}


def _one_hot(*tokens: int) -> Any:
    """Probabilities of 1: what they leave to the draws is nothing."""
    return np.eye(1000, dtype=np.float32)[list(tokens)]


def verify_greedy() -> Call:
    given = {"draft_tokens": i64(5, 6, 7), "target_tokens": i32(5, 1, 2, 3, 4)}
    return _outputs(CHAIN) | given | {"draft_indptr": i32(0, 2, 3)}, CHAIN


def verify_stochastic() -> Call:
    given = {"draft_tokens": i64(5, 6, 7), "draft_probs": _one_hot(5, 6, 7)} | DRAWN
    given |= {"target_probs": _one_hot(5, 1, 2, 3, 4), "draft_indptr": i32(0, 2, 3)}
    return _outputs(CHAIN) | given, CHAIN


def verify_stochastic__draws() -> Call:
    """Without drafts."""
    given = {"output_tokens": nines(2, 1), "num_accepted": nines(2), "draft_tokens": i64()}
    given |= {"draft_probs": None, "target_probs": np.full((2, 1024), 2**-10, np.float32)}
    tokens = drawn(DRAWN["seed"], DRAWN["step"], purpose=2)
    want = {"output_tokens": tokens[:, None], "num_accepted": [0, 0]}
    return given | DRAWN | {"draft_indptr": i32(0, 0, 0)}, want


def verify_tree_greedy() -> Call:
    given = {"draft_tokens": i64(6, 5, 7), "target_tokens": i32(5, 1, 2, 3, 4)}
    given |= {"tree_mask": i64([1], [2], [1]), "node_indptr": i32(0, 2, 3)}
    return _outputs(TREE | NODES) | given, TREE | NODES


def verify_tree_stochastic() -> Call:
    given = {"draft_tokens": i64(6, 5, 7), "draft_probs": _one_hot(6, 5, 7)} | DRAWN
    given |= {"target_probs": _one_hot(5, 1, 2, 3, 4), "node_indptr": i32(0, 2, 3)}
    given |= {"tree_mask": i64([1], [2], [1])}
    return _outputs(TREE | NODES) | given, TREE | NODES


def verify_tree_stochastic__draws() -> Call:
    given, want = verify_stochastic__draws()
    given["node_indptr"] = given.pop("draft_indptr")
    return given | {"accepted_nodes": nines(2, 0), "tree_mask": np.zeros((0, 1), np.int64)}, want


def tree_kv_moves() -> Call:
    want = {"from_positions": [[9, 11], [4, -1]], "to_positions": [[8, 9], [4, -1]]}
    given = {"accepted_nodes": i64([1, 3], [0, -1]), "num_accepted": i64(2, 1)}
    return _outputs(want) | given | {"root_positions": i32(7, 3)}, want


CALLS = [
    verify_greedy,
    verify_stochastic,
    verify_stochastic__draws,
    verify_tree_greedy,
    verify_tree_stochastic,
    verify_tree_stochastic__draws,
    tree_kv_moves,
]
