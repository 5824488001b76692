"""The order of work on a GPU, for what integrations make once and use in many calls.

What is made is ready before the call that makes it goes on, and is let go only when its device is
idle. Both are rare, and so calls may come on any stream without events between them.
"""

from __future__ import annotations

import torch


def is_gpu(device: torch.device | None) -> bool:
    """Whether work on the device has streams."""
    return device is not None and device.type == "cuda"


def is_capturing() -> bool:
    """Whether a CUDA graph is captured by the calls that come now."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def refuse_while_capturing(what: str) -> None:
    """Raises RuntimeError where something has to be made while a CUDA graph is captured."""
    if is_capturing():
        raise RuntimeError(
            f"heddle has not seen {what} before the capture: call the model once, with the same "
            "adapter_names and shapes, and then capture it"
        )


def wait_for_stream(device: torch.device | None) -> None:
    """Waits for what was made on the current stream, so that calls on any stream may use it."""
    if is_gpu(device):
        torch.cuda.current_stream(device).synchronize()


def wait_for_all(device: torch.device | None) -> None:
    """Waits for the calls of all streams, before what they may use is let go."""
    if is_gpu(device):
        torch.cuda.synchronize(device)
