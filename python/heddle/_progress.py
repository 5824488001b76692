"""A line of progress on standard error, where a user can see it."""

from __future__ import annotations

import sys
import time

_WIDTH = 30
_SECONDS_BETWEEN = 0.1


def is_watched() -> bool:
    """Whether standard error is a terminal or the output of a notebook's cell."""
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


class Progress:
    """`label [####    ] done of total`, written over and over; gone at the end of the `with`."""

    def __init__(self, label: str, total: int, shown: bool) -> None:
        self._label, self._total, self._shown = label, total, shown
        self._next = 0.0
        self._length = 0

    def update(self, done: int, unit: str = "") -> None:
        """Tells how many of all are done."""
        now = time.monotonic()
        if not self._shown or (now < self._next and done < self._total):
            return
        self._next = now + _SECONDS_BETWEEN
        bar = "#" * (_WIDTH * done // max(self._total, 1))
        self._write(f"{self._label} [{bar:{_WIDTH}}] {done} of {self._total}{unit}")

    def _write(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(self._length))
        sys.stderr.flush()
        self._length = len(line)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._length:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()
