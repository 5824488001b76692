"""Several answers to one prompt: samples, and the answers of several adapters."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heddle import _core
from heddle._adapters import Choice, Entry, choice_of, core_list
from heddle._answers import Answer, Answers, answer_of, raise_error
from heddle._progress import Progress
from heddle._run import OnEnd, run, run_async

_MOST_SAMPLES = 128


@dataclass
class Work:
    """A request, and what its answers are to be."""

    request: _core.Request
    choices: list[Choice]
    """The adapters of each answer."""
    each: list[tuple[list[tuple[str, float]], int]] | None
    """Adapters in place of the request's, and seed offsets; None: one answer."""
    prompt: str = ""
    """What `Answer.prompt` is."""
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


def work_of(
    request: _core.Request, choice: Choice, options: Mapping[str, Any], prompt: str
) -> Work:
    """What `n` and `each_adapter` make of a request.

    Raises:
        TypeError: `n` is no number.
        ValueError: `n` is out of its range, or given with `each_adapter`, or that is empty or
            given with adapters.
    """
    n, each = options.get("n"), options.get("each_adapter")
    if n is None and each is None:
        return Work(request, [choice], None, prompt)
    if each is None:
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"n is {type(n).__name__}, expected a number of answers")
        if not 1 <= n <= _MOST_SAMPLES:
            raise ValueError(f"n is {n}, expected 1 to {_MOST_SAMPLES}")
        return Work(request, [choice] * n, [([], i) for i in range(n)], prompt)
    if n is not None:
        raise ValueError("n and each_adapter are given, expected only one of them")
    if choice is not None:
        raise ValueError("each_adapter is given together with adapter or adapters")
    if isinstance(each, str) or not each:
        raise ValueError("each_adapter is not a list of at least one adapter")
    choices = [choice_of_entry(entry) for entry in each]
    return Work(request, choices, [(core_list(choice), 0) for choice in choices], prompt)


@dataclass
class Prompts:
    """The prompts of one call as requests, and what becomes of their answers."""

    works: list[Work]
    is_one: bool
    keep_going: bool
    shows_progress: bool

    def _result(self) -> Answer | Answers:
        answers = Answers(work.answer() for work in self.works)
        return answers[0] if self.is_one else answers

    def _end(self, progress: Progress) -> OnEnd:
        """Takes the ends of requests; raises what one of them ends with, unless `keep_going`."""
        num_ended = itertools.count(1)

        def end(i: int, part: int, completion: _core.Completion) -> None:
            work = self.works[i]
            answer = work.answers[part] = answer_of(completion, work.choices[part], work.prompt)
            if not self.keep_going:
                raise_error(answer, "" if self.is_one else f"prompt {i}: ")
            progress.update(next(num_ended))

        return end

    def _progress(self) -> Progress:
        total = sum(len(work.choices) for work in self.works)
        return Progress("answers", total, self.shows_progress)

    def run(self, engine: _core.Engine) -> Answer | Answers:
        """Runs all requests to their ends."""
        with self._progress() as progress:
            run(engine, [work.submit for work in self.works], self._end(progress))
        return self._result()

    async def run_async(self, engine: _core.Engine) -> Answer | Answers:
        """The same in an event loop; a task that is cancelled cancels them."""
        with self._progress() as progress:
            await run_async(engine, [work.submit for work in self.works], self._end(progress))
        return self._result()
