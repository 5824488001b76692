"""One base model with many LoRA adapters in a batch: `heddle.LLM`.

`heddle.ops` holds its operations, on NumPy, torch, CuPy or JAX arrays; `import heddle` imports
neither NumPy nor torch.
"""

import sys

from heddle import ops
from heddle._answers import Answer, Stream
from heddle._arguments import AttentionOptions, LoraBatch, PagedKv, PageTable
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
from heddle._llm import LLM
from heddle._sampling import Sampling
from heddle._values import Classes

if hasattr(sys.modules.get("torch"), "library"):  # not while torch is still being imported
    import heddle.torch

__all__ = [
    "LLM",
    "AdapterTable",
    "Answer",
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
    "Stream",
    "StructuralTag",
    "__version__",
    "has_cuda",
    "lora_plan_bytes",
    "num_threads",
    "ops",
    "set_num_threads",
]
