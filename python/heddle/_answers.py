"""What comes back from `heddle.LLM`: answers, and streams of their text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from heddle import _core
from heddle._adapters import BASE, Choice, list_of, name_of
from heddle._run import readable
from heddle._tables import Cell, table


@dataclass(frozen=True, repr=False)
class Answer:
    """What the model has said to one prompt; `str(answer)` is its text."""

    text: str
    """Without the end token and without what follows a stop string."""
    token_ids: list[int]
    """The tokens of the text, without the end token."""
    logprobs: list[float]
    """The natural logarithm of each token's probability, as many as `token_ids`."""
    prompt_tokens: int
    """Tokens of the prompt."""
    finish_reason: str
    """"stop" (end token or stop string), "length" (max_tokens, or the context's end), "error" or
    "cancelled"."""
    adapter: str | None
    """The adapter's name; None: the base model, or the list of `adapters`."""
    error: str | None = None
    """With "error": one sentence."""
    adapters: dict[str, float] | None = None
    """The scales of a list of adapters by name; None: no list was given."""

    top_logprobs: list[dict[int, float]] = field(default_factory=list)
    """With `top_logprobs`: the most likely tokens at each place of the answer, the most likely
    first, with their log-probabilities."""
    prompt_logprobs: list[float | None] = field(default_factory=list)
    """With `prompt_logprobs`: of each token of the prompt given those before it, None for the
    first."""
    prompt_top_logprobs: list[dict[int, float]] = field(default_factory=list)
    """With both: the most likely tokens at each place of the prompt, none at the first."""
    each: list[Answer] = field(default_factory=list)
    """With `n` or `each_adapter`: all answers in order. This one is the first of them."""
    stop: str | int | None = None
    """What ended the answer: the string of `stop`, or the token of `stop_token_ids`; None: neither
    did."""
    error_code: str | None = None
    """With "error": "invalid_argument", "unsupported", "unknown_adapter", "out_of_memory",
    "not_finite": the model or the adapter is damaged, so that its logits are no numbers, or
    "engine_ended": the GPU has failed, and all later prompts end so, too."""
    cached_tokens: int = field(default=0, compare=False)
    """Of `prompt_tokens`: those whose keys and values the prefix cache had. Answers that differ in
    it alone are equal."""
    adapter_digest: str | None = None
    """The digest of the adapter's weights that wrote it (`LLM.adapter_receipt`), of a list those of
    all joined by "+"; None: the base model's alone."""
    adapter_switches: list[tuple[int, int]] = field(default_factory=list)
    """Where the prompt went on with other weights of its adapter, as `add_adapter(..., running=
    "switch")` has it: of prompt and answer the first token that was computed with them, and of the
    answer the first that was drawn with them."""
    earlier_digests: list[str] = field(default_factory=list)
    """Of each of `adapter_switches`: the digest until then; `adapter_digest` is that of the last."""
    drafted_tokens: int = field(default=0, compare=False)
    """Tokens that were drafted for it and verified, where the model speculates."""
    accepted_tokens: int = field(default=0, compare=False)
    """Of these: those that are tokens of the answer."""
    accepted_prediction_tokens: int = field(default=0, compare=False)
    """Of these: those that came from `prediction`, as in OpenAI's API."""
    rejected_prediction_tokens: int = field(default=0, compare=False)
    """Tokens of `prediction` that were drafted and not accepted."""
    prompt: str = field(default="", compare=False)
    """The text of the prompt, of a conversation that of its last message; of token ids empty."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        which = f"adapter={self.adapter!r}"
        if self.adapters is not None:
            which = f"adapters={self.adapters!r}"
        parts = [repr(self.text), which, f"finish_reason={self.finish_reason!r}"]
        if self.error is not None:
            parts.append(f"error={self.error!r}")
        if len(self.each) > 1:
            parts.append(f"each=[{len(self.each)} answers]")
        return f"Answer({', '.join(parts)}, {len(self.token_ids)} tokens)"

    def _repr_html_(self) -> str:
        return _table([self])


class Answers(list[Answer]):
    """The answers to the prompts of one call, in the same order: a list, which a notebook shows as
    a table. Answers of `n` and `each_adapter` stand side by side in it."""

    def _repr_html_(self) -> str:
        return _table(self)


def _label(answer: Answer) -> str:
    if answer.adapters is not None:
        return " + ".join(f"{scale:g} {name}" for name, scale in answer.adapters.items())
    return answer.adapter or BASE


def _cell(answer: Answer) -> Cell:
    if answer.finish_reason == "error":
        return Cell(answer.error or "", "error")
    return Cell(answer.text, f"{answer.finish_reason}, {len(answer.token_ids)} tokens")


def _table(answers: Sequence[Answer]) -> str:
    """A row for each prompt; a column for each answer to it."""
    widest = max((answer.each for answer in answers), key=len, default=[])
    if not widest:
        rows = [[Cell(a.prompt), Cell(_label(a)), _cell(a)] for a in answers]
        return table(["prompt", "adapter", "answer"], rows)
    labels = [_label(answer) for answer in widest]
    if len(set(labels)) < len(labels):  # samples of one adapter
        labels = [f"{label}, {i}" for i, label in enumerate(labels)]
    return table(["prompt", *labels], [[Cell(a.prompt), *map(_cell, a.each)] for a in answers])


def _tops(ids: list[int], logprobs: list[float], places: int) -> list[dict[int, float]]:
    """The most likely tokens of each place; -1 means none."""
    count = len(ids) // max(places, 1)
    pairs = [(token, logprob) for token, logprob in zip(ids, logprobs)]
    return [
        {token: logprob for token, logprob in pairs[i : i + count] if token >= 0}
        for i in range(0, len(pairs), max(count, 1))
    ]


def answer_of(completion: _core.Completion, choice: Choice, prompt: str = "") -> Answer:
    """The completion as a value of Python's own."""
    drafted, accepted = completion.drafts
    predicted, accepted_prediction = completion.prediction
    return Answer(
        completion.text,
        completion.token_ids,
        completion.logprobs,
        completion.prompt_tokens,
        completion.finish_reason,
        name_of(choice),
        completion.error or None,
        list_of(choice),
        _tops(completion.top_token_ids, completion.top_logprobs, len(completion.token_ids)),
        [None if i == 0 else x for i, x in enumerate(completion.prompt_logprobs)],
        _tops(
            completion.prompt_top_token_ids,
            completion.prompt_top_logprobs,
            completion.prompt_tokens,
        ),
        stop=completion.stop or (completion.stop_token if completion.stop_token >= 0 else None),
        error_code=completion.error_code,
        cached_tokens=completion.cached_tokens,
        adapter_digest=completion.adapter_digest or None,
        adapter_switches=completion.adapter_switches,
        earlier_digests=completion.earlier_digests.split(),
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        accepted_prediction_tokens=accepted_prediction,
        rejected_prediction_tokens=predicted - accepted_prediction,
        prompt=prompt,
    )


# What the module's functions raise with these codes; ValueError with all others.
_EXCEPTIONS: dict[str | None, type[Exception]] = {
    "unsupported": NotImplementedError,
    "out_of_memory": MemoryError,
    "engine_ended": RuntimeError,
    "not_finite": RuntimeError,
}


def raise_error(answer: Answer, where: str = "") -> None:
    """Raises what a request ended with, if that was an error."""
    if answer.finish_reason == "error":
        raise _EXCEPTIONS.get(answer.error_code, ValueError)(where + (answer.error or ""))


class Stream(Iterator[str], AsyncIterator[str]):
    """The text of one answer, piece by piece: for `for` and for `async for`.

    Pieces are whole characters, and nothing of them is taken back. Leaving a `with` block,
    `cancel`, ctrl-C, and a task that is cancelled while it waits end the request; so does throwing
    the stream away. One thread or task reads it.
    """

    def __init__(
        self,
        engine: _core.Engine,
        request: _core.Request,
        choice: Choice,
        prompt: str,
        owner: object,
    ) -> None:
        """`owner` closes the engine when nothing refers to it any more."""
        self._engine, self._choice, self._prompt, self._owner = engine, choice, prompt, owner
        self._queue = _core.EventQueue()
        self._answer: Answer | None = None
        self._id = engine.submit(self._queue, request)

    @property
    def answer(self) -> Answer | None:
        """The whole answer once the text has ended, None before."""
        return self._answer

    def cancel(self) -> None:
        """Ends the request; the iteration ends with what the answer was so far."""
        if self._answer is None:
            self._engine.cancel(self._id)

    def _take(self, timeout: float | None) -> str | None:
        """The next piece; None when the time is over."""
        while True:
            if self._answer is not None:
                raise_error(self._answer)
                raise StopIteration
            news = self._queue.take(timeout)
            if news is None:
                return None
            _, text, completion = news
            if completion is not None:
                self._answer = answer_of(completion, self._choice, self._prompt)
            if text:
                return text

    def __next__(self) -> str:
        try:
            piece = self._take(None)
        except KeyboardInterrupt:
            self.cancel()
            raise
        if piece is None:  # never: the time has no end
            raise StopIteration
        return piece

    def __iter__(self) -> Stream:
        return self

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> str:
        while True:
            try:
                piece = self._take(0.0)
            except StopIteration:
                raise StopAsyncIteration from None
            if piece is not None:
                return piece
            try:
                await readable(self._queue)
            except BaseException:  # the task is cancelled
                self.cancel()
                raise

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.cancel()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        if hasattr(self, "_id"):
            self.cancel()
