"""Requests that run together to their ends: in a thread that waits, or in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from heddle import _core

Submit: TypeAlias = "Callable[[_core.Engine, _core.EventQueue], list[int]]"
"""Submits the rows of one prompt; their ids in order."""
OnEnd: TypeAlias = "Callable[[int, int, _core.Completion], None]"
"""Prompt, row of it, and what it has become."""
_Event: TypeAlias = "tuple[int, str, _core.Completion | None]"


async def readable(queue: _core.EventQueue) -> None:
    """Waits in the event loop, in no thread, until the queue may have an event."""
    import asyncio  # takes longer to import than all of heddle

    loop = asyncio.get_running_loop()
    descriptor = queue.fileno()
    arrived = asyncio.Event()
    loop.add_reader(descriptor, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(descriptor)


class _Rows:
    """Leaving the `with` block cancels the rows that have not ended."""

    def __init__(self, engine: _core.Engine, on_end: OnEnd) -> None:
        self.queue = _core.EventQueue(ends_only=True)
        self.unfinished: dict[int, tuple[int, int]] = {}  # prompt and row by id
        self._engine, self._on_end = engine, on_end

    def submit(self, prompts: Sequence[Submit]) -> None:
        for i, submit in enumerate(prompts):
            ids = submit(self._engine, self.queue)
            self.unfinished |= {id: (i, row) for row, id in enumerate(ids)}

    def take(self, event: _Event | None) -> None:
        if event is not None and event[2] is not None:
            i, row = self.unfinished.pop(event[0])
            self._on_end(i, row, event[2])

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, *exception: object) -> None:
        for id in self.unfinished:
            self._engine.cancel(id)


def run(engine: _core.Engine, prompts: Sequence[Submit], on_end: OnEnd) -> None:
    """Submits the rows of all prompts and waits for their ends; what `on_end` raises cancels those
    that are left, and so does ctrl-C."""
    with _Rows(engine, on_end) as rows:
        rows.submit(prompts)
        while rows.unfinished:
            rows.take(rows.queue.take())


async def run_async(engine: _core.Engine, prompts: Sequence[Submit], on_end: OnEnd) -> None:
    """The same in an event loop, which goes on meanwhile; a task that is cancelled cancels them."""
    with _Rows(engine, on_end) as rows:
        rows.submit(prompts)
        while rows.unfinished:
            event = rows.queue.take(0.0)
            if event is None:
                await readable(rows.queue)
            else:
                rows.take(event)
