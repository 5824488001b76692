"""One call of every operation that is a torch operator: its arguments, as torch tensors on the CPU.

The calls are small, valid and change at least one output; test_torch_operators.py runs each
eagerly, compiled, and through torch.library.opcheck. Those of a family are the CALLS of its
src/ops/<family>/test/<family>_calls.py.
"""

from __future__ import annotations

import pathlib
import runpy
from collections.abc import Callable
from typing import Any

Call = tuple[list[Any], dict[str, Any]]
CUDA_ALONE = {"lora_plan"}
"""Operations of arrays on a GPU alone; test_lora_cuda.py has their calls."""
ROOT = pathlib.Path(__file__).parents[2]
CASES: dict[str, Callable[[], Call]] = {}
for calls in sorted(ROOT.glob("src/ops/*/test/*_calls.py")):
    CASES.update(runpy.run_path(str(calls))["CALLS"])
assert CASES, f"no calls in {ROOT}/src/ops"
