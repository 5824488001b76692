"""A call of dequantize, for python/tests/operations/operator_cases.py."""

from case_arrays import Call, nan, randn
from frameworks import q8_0


def dequantize() -> Call:
    stored, plain = q8_0(randn(64))
    return {"out": nan(64), "type": "Q8_0", "stored": stored}, {"out": plain}


CALLS = [dequantize]
