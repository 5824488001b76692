"""Numbers in place of answers: embeddings and classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from heddle import _core
from heddle._adapters import Choice, choices_of, name_of, set_adapters
from heddle._answers import answer_of, raise_error
from heddle._fields import fields_of_prompt
from heddle._options import (
    CLASSIFY_DEFAULTS,
    EMBED_DEFAULTS,
    ClassifyOptions,
    EmbedOptions,
    takes,
)
from heddle._run import OnEnd, Submit, run, run_async
from heddle._sampling import set_field

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Classes:
    """What a score head makes of one text; `str(classes)` is the likeliest label."""

    labels: list[str]
    """As the model's config.json calls them, else LABEL_0, LABEL_1 and so on."""
    values: list[float]
    """A probability for each label, or its logit."""
    prompt_tokens: int = 0
    """Tokens of the text."""
    cached_tokens: int = field(default=0, compare=False)
    """Of these: those whose keys and values the prefix cache had."""

    @property
    def label(self) -> str:
        """The label of the largest value."""
        return self.labels[self.values.index(max(self.values))]

    def __str__(self) -> str:
        return self.label


@dataclass
class ValuePrompts:
    """The prompts of one call, and the adapters of each."""

    fields: list[dict[str, Any]]
    choices: list[Choice]
    is_one: bool
    cache_salt: str
    priority: int
    kind: str
    wanted: Mapping[str, Any]
    """The arguments of `_core.Request.want`."""


def _values_of(prompts: Any, call: dict[str, Any], kind: str) -> ValuePrompts:
    """The prompts of a call, which may be one; what it has besides adapters, salt and priority is `wanted`."""
    is_one = isinstance(prompts, str) or (len(prompts) > 0 and hasattr(prompts[0], "__index__"))
    fields = [fields_of_prompt(p) for p in ([prompts] if is_one else prompts)]
    choices = choices_of(call.pop("adapter"), call.pop("adapters"), len(fields))
    salt, priority = call.pop("cache_salt"), call.pop("priority")
    return ValuePrompts(fields, choices, is_one, salt, priority, kind, call)


def texts_to_embed(prompts: Any, options: EmbedOptions) -> ValuePrompts:
    """The prompts of `embed`."""
    call = {**EMBED_DEFAULTS, **options}
    return _values_of(prompts, {**call, "pooling": call["pooling"] or ""}, "embedding")


def texts_to_classify(prompts: Any, options: ClassifyOptions) -> ValuePrompts:
    """The prompts of `classify`."""
    return _values_of(prompts, {**CLASSIFY_DEFAULTS, **options}, "classes")


def _request_of(prompts: ValuePrompts, i: int) -> _core.Request:
    request = _core.Request()
    for key, value in prompts.fields[i].items():
        set_field(request, key, value)
    request.adapter = name_of(prompts.choices[i]) or ""
    set_field(request, "cache_salt", prompts.cache_salt)
    set_field(request, "priority", prompts.priority)
    set_adapters(request, prompts.choices[i])
    request.want(prompts.kind, **prompts.wanted)
    return request


def _submit_of(request: _core.Request) -> Submit:
    return lambda engine, queue: [engine.submit(queue, request)]


def _submits(prompts: ValuePrompts) -> list[Submit]:
    return [_submit_of(_request_of(prompts, i)) for i in range(len(prompts.fields))]


def _collector(prompts: ValuePrompts, completions: dict[int, _core.Completion]) -> OnEnd:
    """Takes what requests end with; raises errors."""

    def end(i: int, _: int, completion: _core.Completion) -> None:
        completions[i] = completion
        where = "" if prompts.is_one else f"prompt {i}: "
        raise_error(answer_of(completion, prompts.choices[i]), where)

    return end


def run_values(engine: _core.Engine, prompts: ValuePrompts) -> list[_core.Completion]:
    """Runs a request for each prompt to its end; raises what one of them ends with."""
    completions: dict[int, _core.Completion] = {}
    run(engine, _submits(prompts), _collector(prompts, completions))
    return [completions[i] for i in range(len(completions))]


async def run_values_async(engine: _core.Engine, prompts: ValuePrompts) -> list[_core.Completion]:
    """The same in an event loop."""
    completions: dict[int, _core.Completion] = {}
    await run_async(engine, _submits(prompts), _collector(prompts, completions))
    return [completions[i] for i in range(len(completions))]


def embeddings_of(
    completions: Sequence[_core.Completion], is_one: bool
) -> list[float] | list[list[float]]:
    """The vectors, or the one."""
    vectors = [completion.values for completion in completions]
    return vectors[0] if is_one else vectors


def classes_of(completions: Sequence[_core.Completion], is_one: bool) -> Classes | list[Classes]:
    """The classes of each prompt, or of the one."""
    classes = [
        Classes(
            labels=completion.labels,
            values=completion.values,
            prompt_tokens=completion.prompt_tokens,
            cached_tokens=completion.cached_tokens,
        )
        for completion in completions
    ]
    return classes[0] if is_one else classes


class ValueCalls:
    """The calls of `heddle.LLM` that give numbers."""

    _engine: _core.Engine

    def _warn_of_adapters(self, level: int) -> None:
        raise NotImplementedError

    @overload
    def embed(self, prompts: str | Sequence[int], **options: Unpack[EmbedOptions]) -> list[float]: ...
    @overload
    def embed(
        self, prompts: list[str] | Sequence[Sequence[int]], **options: Unpack[EmbedOptions]
    ) -> list[list[float]]: ...
    @takes(EmbedOptions, EMBED_DEFAULTS)
    def embed(
        self,
        prompts: str | Sequence[int] | list[str] | Sequence[Sequence[int]],
        **options: Unpack[EmbedOptions],
    ) -> list[float] | list[list[float]]:
        """The embeddings of texts, as sentence-transformers computes them (docs/embeddings.md).

        Args:
            prompts: A text or a list of token ids, which has one embedding; or a list of these,
                which has a list of embeddings in the same order.
            adapter: As in `generate`.
            adapters: As in `generate`.
            pooling: How the states of the tokens become one vector: "last", "mean" or "cls"; None:
                as the model's folder says, else "last".
            normalize: Whether the vector is divided by its length; None: as the model's folder
                says, else True.
            dimensions: Of the vector the first so many, before that division; 0: all.
            cache_salt: As in `Sampling`.
            priority: As in `Sampling`.

        Raises:
            ValueError, NotImplementedError, MemoryError, RuntimeError: As `generate`.
        """
        given = texts_to_embed(prompts, options)
        return embeddings_of(self._values(given), given.is_one)

    @overload
    def classify(self, prompts: str | Sequence[int], **options: Unpack[ClassifyOptions]) -> Classes: ...
    @overload
    def classify(
        self, prompts: list[str] | Sequence[Sequence[int]], **options: Unpack[ClassifyOptions]
    ) -> list[Classes]: ...
    @takes(ClassifyOptions, CLASSIFY_DEFAULTS)
    def classify(
        self,
        prompts: str | Sequence[int] | list[str] | Sequence[Sequence[int]],
        **options: Unpack[ClassifyOptions],
    ) -> Classes | list[Classes]:
        """The classes of texts, by the score head of the adapter or else of the model.

        Args:
            prompts: As in `embed`.
            adapter: As in `generate`.
            adapters: As in `generate`.
            activates: Whether values are probabilities; False: the head's logits.
            cache_salt: As in `Sampling`.
            priority: As in `Sampling`.

        Raises:
            NotImplementedError: Neither the adapter nor the model has a score head.
            ValueError, MemoryError, RuntimeError: As `generate`.
        """
        given = texts_to_classify(prompts, options)
        return classes_of(self._values(given), given.is_one)

    def _values(self, prompts: ValuePrompts) -> list[_core.Completion]:
        try:
            return run_values(self._engine, prompts)
        finally:
            self._warn_of_adapters(5)
