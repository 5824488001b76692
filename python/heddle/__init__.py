"""One base model with many LoRA adapters in a batch: `heddle.LLM`, and `heddle.AsyncLLM`.

`heddle.ops` holds its operations, on NumPy, torch, CuPy or JAX arrays; `import heddle` imports
neither NumPy nor torch. `heddle.vllm_compat` has the names of vLLM.
"""

import sys as _sys
import typing as _typing

from heddle import ops
from heddle._answers import Answer, Answers, Stream
from heddle._arguments import AttentionOptions, LoraBatch, PagedKv, PageTable
from heddle._async_llm import AsyncLLM
from heddle._context import Context
from heddle._core import VERSION as __version__
from heddle._core import (
    AdapterTable,
    PackedWeight,
    has_cuda,
    lora_plan_bytes,
    num_threads,
    set_num_threads,
)
from heddle._format import Format, Grammar, StructuralTag
from heddle._hints import missing_name as _missing_name
from heddle._llm import LLM
from heddle._params import SamplingParams
from heddle._sampling import Sampling
from heddle._values import Classes
from heddle._wheels import warn_of_two as _warn_of_two_wheels

_warn_of_two_wheels(__file__)
if hasattr(_sys.modules.get("torch"), "library"):  # not while torch is still being imported
    import heddle.torch

__all__ = [
    "LLM",
    "AdapterTable",
    "Answer",
    "Answers",
    "AsyncLLM",
    "AttentionOptions",
    "Classes",
    "Context",
    "Format",
    "Grammar",
    "LoraBatch",
    "PackedWeight",
    "PageTable",
    "PagedKv",
    "Sampling",
    "SamplingParams",
    "Stream",
    "StructuralTag",
    "__version__",
    "has_cuda",
    "lora_plan_bytes",
    "num_threads",
    "ops",
    "set_num_threads",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not _typing.TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise _missing_name(__name__, name, __all__)
