"""Drop-in modules for LoRAX's `models.metadata_kernels` and `utils.ops`."""

from heddle.compat.lorax import metadata_kernels, ops

__all__ = ["metadata_kernels", "ops"]
