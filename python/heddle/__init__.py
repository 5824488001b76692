"""Serve one base model with many LoRA adapters: the operations of the heddle library on NumPy, torch, CuPy or JAX arrays.

`heddle.ops` holds the operations. `import heddle` imports neither NumPy nor torch.
"""

from heddle import ops
from heddle._core import VERSION as __version__
from heddle._core import has_cuda, num_threads, set_num_threads

__all__ = ["__version__", "has_cuda", "num_threads", "ops", "set_num_threads"]
