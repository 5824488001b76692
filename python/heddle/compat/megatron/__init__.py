"""Drop-in module for Megatron-LM's `text_generation_controllers.mtp_utils_*`."""

from heddle.compat.megatron import mtp_utils

__all__ = ["mtp_utils"]
