"""Calls of sampling, for python/tests/operations/operator_cases.py."""

from typing import Any

import numpy as np
from case_arrays import RNG, Call, drawn, f32, i32, i64, nan, nines, randn


def _log_softmax(logits: Any) -> Any:
    x = logits.astype(np.float64)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _greatest(logits: Any) -> dict[str, Any]:
    """The token of the largest logit, and its log probability."""
    return {"token_ids": logits.argmax(-1), "logprobs": _log_softmax(logits).max(-1)}


def greedy() -> Call:
    logits = randn(3, 20)
    return {"token_ids": nines(3), "logprobs": nan(3), "logits": logits}, _greatest(logits)


def sample() -> Call:
    """Five rows that one parameter each leaves the largest logit alone."""
    logits = randn(5, 50)
    given = {
        "token_ids": nines(5),
        "logprobs": nan(5),
        "logits": logits,
        "temperature": f32(0, 9, 9, 9, 1e-6),
        "top_k": i32(0, 1, 0, 0, 0),
        "top_p": f32(1, 1, 1e-6, 1, 1),
        "min_p": f32(0, 0, 0, 1, 0),
        "seed": RNG.integers(0, 2**62, 5),
        "step": RNG.integers(0, 1000, 5),
    }
    return given, _greatest(logits)


def sample__draws() -> Call:
    rows = [np.full(4, value, dtype) for value, dtype in ((1, "f4"), (0, "i4"), (1, "f4"), (0, "f4"))]
    given = dict(zip(("temperature", "top_k", "top_p", "min_p"), rows))
    given |= {"token_ids": nines(4), "logprobs": None, "logits": np.zeros((4, 1024), np.float32)}
    seed, step = RNG.integers(-(2**62), 2**62, 4), RNG.integers(0, 1000, 4)
    return given | {"seed": seed, "step": step}, {"token_ids": drawn(seed, step)}


def token_logprobs() -> Call:
    logits = randn(3, 20)
    logs, order = _log_softmax(logits), np.argsort(-logits, -1)[:, :2]
    given = {"logprobs": nan(3), "top_ids": nines(3, 2, dtype=np.int32), "top_logprobs": nan(3, 2)}
    want = {"logprobs": logs[[0, 1, 2], [1, 19, 0]], "top_ids": order}
    want["top_logprobs"] = np.take_along_axis(logs, order, -1)
    return given | {"logits": logits, "token_ids": i64(1, 19, 0)}, want


ENTRIES = {"indptr": i32(0, 2, 2, 3), "token_ids": i32(1, 5, 19)}
PLACES = ([0, 0, 2], [1, 5, 19])


def adjust_logits() -> Call:
    """The formula of vLLM's apply_penalties (vllm/model_executor/layers/utils.py)."""
    logits, prompt, output = randn(3, 20), i32(0, 1, 2), i32(3, 0, 1)
    bias, columns = f32(0.5, -1.0, 2.0), {
        "repetition": f32(1.5, 1.0, 0.8),
        "presence": f32(0.5, 0.25, -1.0),
        "frequency": f32(0.25, 1.0, 0.75),
    }
    rows = {name: column[PLACES[0]] for name, column in columns.items()}
    x = logits[PLACES].astype(np.float64) + bias
    x = np.where(x > 0, x / rows["repetition"], x * rows["repetition"])
    want = logits.copy()
    want[PLACES] = x - rows["frequency"] * output - rows["presence"] * (output > 0)
    given = {"logits": logits, "saved": nan(3), "prompt_counts": prompt, "output_counts": output}
    return given | ENTRIES | {"bias": bias} | columns, {"logits": want, "saved": logits[PLACES]}


def restore_logits() -> Call:
    logits, saved = randn(3, 20), randn(3)
    want = logits.copy()
    want[PLACES] = saved
    return {"logits": logits, "saved": saved} | ENTRIES, {"logits": want}


CALLS = [greedy, sample, sample__draws, token_logprobs, adjust_logits, restore_logits]
