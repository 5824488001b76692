"""Drop-in modules: other packages' kernels, with their names, arguments, defaults and results.

    heddle.compat.punica_kernels            for  punica_kernels
    heddle.compat.lorax.metadata_kernels    for  lorax_server.models.metadata_kernels
    heddle.compat.lorax.ops                 for  lorax_server.utils.ops and its modules
    heddle.compat.megatron.mtp_utils        for  megatron...mtp_utils_triton and mtp_utils_pytorch

`install(name)` makes the original import paths resolve to them, `uninstall(name)` undoes it.
Everything takes torch tensors and NumPy arrays alike, on the device where they lie; importing this
package imports neither torch nor NumPy.
"""

from heddle.compat import lorax, megatron, punica_kernels
from heddle.compat._imports import install, uninstall

__all__ = ["install", "lorax", "megatron", "punica_kernels", "uninstall"]


def __dir__() -> list[str]:
    return sorted(__all__)
