"""In place of `vllm.outputs` and `vllm.logprobs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heddle._answers import Answer
from heddle.vllm_compat.lora.request import LoRARequest
from heddle.vllm_compat.sampling_params import SamplingParams

__all__ = ["CompletionOutput", "Logprob", "RequestOutput"]


@dataclass
class Logprob:
    """Of one token at one place."""

    logprob: float
    rank: int | None = None
    """1: the most likely token; None: not among those that were asked for."""
    decoded_token: str | None = None


Place = dict[int, Logprob]
"""The token itself, then the most likely ones, by token id."""


@dataclass
class CompletionOutput:
    """One answer to a prompt."""

    index: int
    text: str
    token_ids: list[int]
    """Without the token that ended the answer."""
    cumulative_logprob: float | None
    """The sum of the log-probabilities of `token_ids`; None without `logprobs`."""
    logprobs: list[Place] | None
    finish_reason: str | None = None
    """"stop", "length" or "abort"."""
    stop_reason: int | str | None = None
    """The string of `stop` or the token of `stop_token_ids` that ended it."""
    lora_request: LoRARequest | None = None

    def finished(self) -> bool:
        """Always: answers come when they are complete."""
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """What has become of a prompt."""

    request_id: str
    prompt: str | None
    """None where token ids were given."""
    prompt_token_ids: list[int]
    prompt_logprobs: list[Place | None] | None
    outputs: list[CompletionOutput]
    finished: bool = True
    metrics: None = None
    lora_request: LoRARequest | None = None
    num_cached_tokens: int | None = None


def _place(
    token: int, logprob: float, tops: dict[int, float], count: int, text: Callable[[int], str]
) -> Place:
    ranks = {top: rank for rank, top in enumerate(tops, 1)}
    place = {token: Logprob(logprob, ranks.get(token), text(token))}
    for top, value in list(tops.items())[:count]:
        place.setdefault(top, Logprob(value, ranks[top], text(top)))
    return place


def _places(
    tokens: Sequence[int],
    logprobs: Sequence[float],
    tops: Sequence[dict[int, float]],
    count: int,
    text: Callable[[int], str],
) -> list[Place]:
    shown = tops or [{}] * len(tokens)
    return [_place(t, x, top, count, text) for t, x, top in zip(tokens, logprobs, shown)]


def output_of(
    request_id: str,
    prompt: str | None,
    prompt_token_ids: list[int],
    answers: Sequence[Answer],
    params: SamplingParams,
    lora_request: LoRARequest | None,
    text: Callable[[int], str],
) -> RequestOutput:
    """The answers to a prompt; `text` gives that of a token."""
    outputs = []
    for i, answer in enumerate(answers):
        logprobs = None
        if params.logprobs is not None:
            logprobs = _places(
                answer.token_ids, answer.logprobs, answer.top_logprobs, params.logprobs, text
            )
        reason = "abort" if answer.finish_reason == "cancelled" else answer.finish_reason
        total = None if logprobs is None else sum(answer.logprobs)
        outputs.append(
            CompletionOutput(
                i, answer.text, answer.token_ids, total, logprobs, reason, answer.stop, lora_request
            )
        )
    first = answers[0]
    prompt_logprobs: list[Place | None] | None = None
    if params.prompt_logprobs is not None:
        # The first token has no log-probability.
        values = [0.0 if x is None else x for x in first.prompt_logprobs]
        tops, count = first.prompt_top_logprobs, params.prompt_logprobs
        places = _places(prompt_token_ids, values, tops, count, text)
        prompt_logprobs = [None, *places[1:]]
    return RequestOutput(
        request_id,
        prompt,
        prompt_token_ids,
        prompt_logprobs,
        outputs,
        lora_request=lora_request,
        num_cached_tokens=first.cached_tokens,
    )
