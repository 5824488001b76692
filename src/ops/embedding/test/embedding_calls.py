"""A call of embedding, for python/tests/operations/operator_cases.py."""

from case_arrays import Call, i64, nan, randn


def embedding() -> Call:
    table = randn(7, 8)
    return {"y": nan(3, 8), "token_ids": i64(1, 0, 6), "table": table}, {"y": table[[1, 0, 6]]}


CALLS = [embedding]
