"""The context of a (device, stream), as far as a program sees it: the record of wrong indices."""

from __future__ import annotations

import sys
from typing import Any

from heddle import _core


class Context:
    """What the calls on one stream of a GPU share, named by device and stream.

    On a GPU page tables and starts lie on the device and are read by kernels. With a word that is
    out of range, or a null page where a real one is needed, attention and the operations of its
    cache read and write nothing outside their arrays: outputs of the rows that use it are NaN, the
    cache stays as it was, and no other row changes. The context keeps operation, array, row and
    value of the first. LoRA's calls with a plan that is not theirs, all of whose rows are NaN, and
    slots past the end of mamba_state_selective_copy are reported, too. On the CPU the call itself raises before it writes anything, and there is
    nothing to keep.

    Args:
        device: "cuda", which is "cuda:0", "cuda:1" and so on, a torch.device, or "cpu".
        stream: The stream's address, as torch's `cuda_stream` is. None: torch's current stream of
            the device where torch is imported and has one, else the default stream.
    """

    def __init__(self, device: object = "cuda", stream: int | None = None) -> None:
        self.device = "cuda:0" if str(device) == "cuda" else str(device)
        self.stream = _current_stream(self.device) if stream is None else stream

    @classmethod
    def of(cls, *arrays: Any) -> Context:
        """The context of a call with these arrays."""
        return cls(*_core.place_of_call(*arrays))

    def check(self) -> None:
        """Waits for the stream, but not while it is captured.

        Raises:
            ValueError: A call on the stream, or a replay of a graph that was captured there, met a
                wrong index since one was last reported. Of a graph that replays on another stream,
                wait for that one first.
        """
        _core.check_faults(self.device, self.stream)

    def poll(self) -> str | None:
        """The text of `check` without waiting for anything; None where there is none yet."""
        return _core.poll_faults(self.device, self.stream)


def _current_stream(device: str) -> int:
    torch = sys.modules.get("torch")
    if torch is None or device == "cpu" or not torch.cuda.is_available():
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)
