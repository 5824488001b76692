"""Several answers to one prompt: samples, and the answers of several adapters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heddle import _core
from heddle._adapters import Choice, Entry, choice_of, core_list
from heddle._answers import Answer, answer_of, raise_error
from heddle._progress import Progress

_MOST_SAMPLES = 128


@dataclass
class Work:
    """A request, and what its answers are to be."""

    request: _core.Request
    choices: list[Choice]
    """The adapters of each answer."""
    each: list[tuple[list[tuple[str, float]], int]] | None
    """Adapters in place of the request's, and seed offsets; None: one answer."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """By place; complete with as many as `choices`."""

    def submit(self, engine: _core.Engine, queue: _core.EventQueue) -> list[int]:
        """The ids of its answers, in order."""
        if self.each is None:
            return [engine.submit(queue, self.request)]
        return engine.submit_each(queue, self.request, self.each)

    def answer(self) -> Answer:
        """The first one, with all."""
        answers = [self.answers[i] for i in range(len(self.choices))]
        if self.each is None:
            return answers[0]
        return dataclasses.replace(answers[0], each=answers)


def choice_of_entry(entry: Entry) -> Choice:
    """An entry of `each_adapter`: a name, None, or a list of adapters that act together."""
    return entry if entry is None or isinstance(entry, str) else choice_of(entry)


def work_of(request: _core.Request, choice: Choice, options: Mapping[str, Any]) -> Work:
    """What `n` and `each_adapter` make of a request.

    Raises:
        TypeError: `n` is no number.
        ValueError: `n` is out of its range, or given with `each_adapter`, or that is empty or
            given with adapters.
    """
    n, each = options.get("n"), options.get("each_adapter")
    if n is None and each is None:
        return Work(request, [choice], None)
    if each is None:
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"n is {type(n).__name__}, expected a number of answers")
        if not 1 <= n <= _MOST_SAMPLES:
            raise ValueError(f"n is {n}, expected 1 to {_MOST_SAMPLES}")
        return Work(request, [choice] * n, [([], i) for i in range(n)])
    if n is not None:
        raise ValueError("n and each_adapter are given, expected only one of them")
    if choice is not None:
        raise ValueError("each_adapter is given together with adapter or adapters")
    if isinstance(each, str) or not each:
        raise ValueError("each_adapter is not a list of at least one adapter")
    choices = [choice_of_entry(entry) for entry in each]
    return Work(request, choices, [(core_list(choice), 0) for choice in choices])


def run_all(
    engine: _core.Engine, works: list[Work], is_one: bool, keep_going: bool, shown: bool
) -> Answer | list[Answer]:
    """Runs all requests to their ends."""
    queue = _core.EventQueue(ends_only=True)
    places: dict[int, tuple[int, int]] = {}  # of what is unfinished: prompt and answer
    num_ended = 0
    try:
        for i, work in enumerate(works):
            places |= {id: (i, part) for part, id in enumerate(work.submit(engine, queue))}
        with Progress("answers", len(places), shown) as bar:
            while places:
                news = queue.take()
                if news is None or news[2] is None:
                    continue
                i, part = places.pop(news[0])
                answer = answer_of(news[2], works[i].choices[part])
                works[i].answers[part] = answer
                if not keep_going:
                    raise_error(answer, "" if is_one else f"prompt {i}: ")
                num_ended += 1
                bar.update(num_ended)
    except BaseException:
        for left in places:
            engine.cancel(left)
        raise
    return works[0].answer() if is_one else [work.answer() for work in works]
