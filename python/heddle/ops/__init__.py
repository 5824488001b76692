"""The operations, one function each.

Arguments: outputs first, then what is updated in place, inputs, and options as keywords. Arrays are
taken without a copy from NumPy, torch, CuPy, JAX or anybody else who offers the buffer protocol or
DLPack, and results are written to the arrays given for them. All arrays of a call must be on one
device; a call runs on the stream that their framework works on. Index arrays are int32 or int64,
mixed freely.

Errors: ValueError for arguments that disagree (the message names the array, the axis and both
values), NotImplementedError for a dtype or device that an operation does not know, MemoryError, and
RuntimeError from CUDA.
"""

from heddle import _operation
from heddle.ops.activation import *
from heddle.ops.attention import *
from heddle.ops.embedding import *
from heddle.ops.kv_cache import *
from heddle.ops.linear import *
from heddle.ops.linear_site import *
from heddle.ops.lora import *
from heddle.ops.mamba import *
from heddle.ops.metadata import *
from heddle.ops.norm import *
from heddle.ops.rope import *
from heddle.ops.sampling import *
from heddle.ops.speculation import *
from heddle.ops.verify import *

__all__ = [name for name in globals() if name in _operation.OPERATIONS or name.isupper()]


def __dir__() -> list[str]:
    return sorted(__all__)
