"""In place of `vllm.sampling_params`."""

from __future__ import annotations

import enum
import json as json_module
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import heddle

__all__ = ["RequestOutputKind", "SamplingParams", "StructuredOutputsParams"]


class RequestOutputKind(enum.Enum):
    """What is reported of answers: here those that are complete, so DELTA is refused."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass(kw_only=True)
class StructuredOutputsParams:
    """What an answer must be; exactly one of these.

    Raises:
        ValueError: None or several are given.
        NotImplementedError: One of the switches that change the JSON's form is on.
    """

    json: str | Mapping[str, Any] | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None

    def __post_init__(self) -> None:
        kinds = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
        given = [name for name in kinds if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            told = ", ".join(given) or "none"
            raise ValueError(f"structured_outputs has {told}, expected one of {', '.join(kinds)}")
        for name in (
            "disable_any_whitespace",
            "disable_additional_properties",
            "whitespace_pattern",
        ):
            if getattr(self, name):
                raise NotImplementedError(f"{name}: heddle does not have it; say it in the schema")

    def format(self) -> Any:
        """The same as `format` of heddle.LLM."""
        if self.json is not None:
            return json_module.loads(self.json) if isinstance(self.json, str) else dict(self.json)
        if self.regex is not None:
            return re.compile(self.regex)
        if self.choice is not None:
            return list(self.choice)
        if self.grammar is not None:
            return heddle.Grammar(self.grammar, "gbnf" if "::=" in self.grammar else "lark")
        if self.structural_tag is not None:
            return heddle.StructuralTag(json_module.loads(self.structural_tag))
        return "json"


# What heddle does not do, at the values at which it asks for nothing.
_NOT_DONE: dict[str, tuple[Any, str]] = {
    "best_of": (1, "n draws several answers, whose cumulative_logprob tells which is best"),
    "detokenize": (True, "answers always have their text"),
    "flat_logprobs": (False, "logprobs are lists of dictionaries"),
    "stream_interval": (None, "heddle.LLM.stream gives the text as it comes"),
    "extra_args": (None, "there is nothing that reads them"),
    "skip_reading_prefix_cache": (False, "a cache_salt of its own keeps a prompt apart"),
    "thinking_token_budget": (None, "the server bounds thoughts"),
    "repetition_detection": (None, "repetition_penalty and stop are what there is"),
    "prompt_logprob_token_ids": (None, "prompt_logprobs=k has the most likely tokens"),
    "prompt_logprob_start": (None, "prompt_logprobs has all of the prompt"),
    "logprob_token_ids": (None, "logprobs=k has the most likely tokens"),
    "trace_decode_token_ids": (None, "prompt_logprobs scores given tokens"),
    "routed_experts_prompt_start": (0, "routes of experts are not reported"),
    "guided_decoding": (
        None,
        "structured_outputs=StructuredOutputsParams(...) has taken its place",
    ),
}
_MOST_LOGPROBS = 100


@dataclass(kw_only=True)
class SamplingParams:
    """The keywords of vLLM's, with its defaults, of which two matter most: `temperature` is 1 and
    `max_tokens` 16.

    Raises:
        NotImplementedError: heddle does not do it; the sentence says what to use.
        ValueError: A value out of its range; the others are looked at when the prompt runs.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1: all."""
    min_p: float = 0.0
    seed: int | None = None
    """None: the prompt's place in the draws of `LLM(seed=...)`, so that calls differ."""
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    """None: to the end of the context."""
    min_tokens: int = 0
    logprobs: int | None = None
    """So many of the most likely tokens, and the drawn one, up to 100."""
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    """Without effect: heddle puts no spaces there, as fast tokenizers do."""
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    skip_clone: bool = False
    """Without effect: nothing is written to it."""
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    truncate_prompt_tokens: int | None = None
    """Of a longer prompt the last so many tokens stay; None or -1: all."""

    best_of: int | None = None
    detokenize: bool = True
    flat_logprobs: bool = False
    stream_interval: int | None = None
    extra_args: Mapping[str, Any] | None = None
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: int | None = None
    repetition_detection: Any = None
    prompt_logprob_token_ids: Sequence[int] | None = None
    prompt_logprob_start: int | None = None
    logprob_token_ids: Sequence[int] | None = None
    trace_decode_token_ids: Sequence[int] | None = None
    routed_experts_prompt_start: int = 0
    guided_decoding: Any = None

    def __post_init__(self) -> None:
        for name, (harmless, instead) in _NOT_DONE.items():
            value = getattr(self, name)
            if value is not None and value != harmless:
                raise NotImplementedError(f"SamplingParams({name}={value!r}): {instead}")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= _MOST_LOGPROBS:
                raise ValueError(f"{name} is {value}, expected 0 to {_MOST_LOGPROBS}")
        if self.output_kind is RequestOutputKind.DELTA:
            raise NotImplementedError(
                "output_kind DELTA: heddle.LLM.stream gives the text as it comes"
            )
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}, expected 1 or more")
        if self.truncate_prompt_tokens is not None and (
            self.truncate_prompt_tokens < -1 or self.truncate_prompt_tokens == 0
        ):
            raise ValueError(
                f"truncate_prompt_tokens is {self.truncate_prompt_tokens}, expected 1 or more, or -1"
            )

    def clone(self) -> SamplingParams:
        """A copy."""
        return SamplingParams(**{field.name: getattr(self, field.name) for field in fields(self)})


def own_params(params: SamplingParams, max_context: int, seed: int) -> heddle.SamplingParams:
    """The same for heddle.LLM; `seed` where the params have none."""
    own = heddle.SamplingParams(
        n=params.n,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=0 if params.top_k == -1 else params.top_k,
        min_p=params.min_p,
        seed=seed if params.seed is None else params.seed,
        stop=params.stop or (),
        stop_token_ids=params.stop_token_ids or (),
        ignore_end=params.ignore_eos,
        max_tokens=max_context if params.max_tokens is None else params.max_tokens,
        min_tokens=params.min_tokens,
        top_logprobs=max(params.logprobs or 0, params.prompt_logprobs or 0),
        prompt_logprobs=params.prompt_logprobs is not None,
        skip_special_tokens=params.skip_special_tokens,
        include_stop=params.include_stop_str_in_output,
        logit_bias={int(token): bias for token, bias in (params.logit_bias or {}).items()},
        allowed_token_ids=params.allowed_token_ids or (),
        bad_words=params.bad_words or (),
    )
    if params.structured_outputs is None:
        return own
    return own.replace(format=params.structured_outputs.format())
