"""The options of `heddle.LLM` that few prompts need: penalties, biases, what ends an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from heddle import _core
from heddle._adapters import Entry
from heddle._format import Format, parts_of_format


class Sampling(TypedDict, total=False):
    """Further keywords of `generate`, `chat`, `stream` and `stream_chat`.

    In this order they act on the logits before tokens are picked; log-probabilities are those of
    before.
    """

    logit_bias: Mapping[int, float]
    """Added to the logits of these tokens, -100 to 100, as in vLLM and OpenAI's API."""
    min_tokens: int
    """Tokens of an answer before the end token, `stop_token_ids` and `stop` can end it, as in
    vLLM."""
    bad_words: Sequence[str]
    """Words that answers do not have, as in vLLM: the last token of each is not drawn after its
    others."""
    repetition_penalty: float | None
    """Logits above 0 of tokens in prompt or answer are divided by it, others multiplied, as in
    transformers; 1: off. None: as the model's files have it, else 1."""
    frequency_penalty: float
    """Subtracted for each time that a token is in the answer, -2 to 2, as in vLLM; 0: off."""
    presence_penalty: float
    """Subtracted where a token is in the answer, -2 to 2, as in vLLM; 0: off."""
    stop_token_ids: Sequence[int]
    """End an answer as the end token does."""
    allowed_token_ids: Sequence[int]
    """No tokens but these are drawn, as in vLLM; none given: all."""
    include_stop: bool
    """Whether the text ends after the string of `stop` that was met, not before it; False. vLLM's
    `include_stop_str_in_output`."""
    skip_special_tokens: bool
    """Whether tokens such as the end of a turn have no text in the answer; False. `token_ids` has
    them still."""
    add_special_tokens: bool | None
    """Whether the tokens with which the tokenizer begins and ends a text are added to the prompt;
    None: to texts, not to conversations, whose template writes them."""
    truncate_prompt_tokens: int
    """Of a longer prompt the last so many tokens stay, as in vLLM; 0: all."""
    continue_final_message: bool
    """Whether answers go on with the last message of the conversation, as in transformers; needs
    `add_generation_prompt=False`. For `chat` and `stream_chat`."""
    top_logprobs: int
    """How many of the most likely tokens `Answer.top_logprobs` has at each place, up to 100."""
    prompt_logprobs: bool
    """Whether the prompt's tokens get log-probabilities, too: `Answer.prompt_logprobs`. They do
    with `max_tokens=0`, which makes no answer."""
    format: Format | None
    """What the text of answers must be: a JSON schema as a dict, a pydantic class, a compiled
    pattern, a list of texts, a `heddle.Grammar` (docs/structured_output.md). An answer that ends
    with "stop" is that as a whole, one that ends with "length" the beginning of it."""
    cache_salt: str
    """Prompts take keys and values from the prefix cache of those with the same salt alone, as in
    vLLM: one for each tenant keeps any of them from measuring what others have asked."""
    tenant: str
    """Whose prompts these are, for `LLM(fairness="tenant")`."""
    tenant_weight: float
    """The share of the tenant, or with `LLM(fairness="adapter")` of the adapter, relative to those
    of others, 0.001 to 1000; 1."""
    priority: int
    """Of the prompts that wait, those of the lowest start first, as in vLLM, and where memory for
    keys and values runs out those of the largest are parked first; any number, 0. Larger ones wait
    as long as lower ones come."""
    speculation: bool | str | None
    """How tokens of the answers are drafted (docs/speculation.md): True or None, as the model has it;
    False or "off"; "ngram" or "suffix", where `LLM(speculate=...)` has that. No bit of an answer
    depends on it."""
    prediction: str
    """What the answer probably is, or has much of, such as a file of which it changes some lines:
    its tokens are drafts, as in OpenAI's API. For a model that speculates."""
    n: int
    """So many answers to each prompt, 1 to 128: `Answer.each`. Answer i draws with the prompt's
    seed + i, as in vLLM. The prompt's whole pages are computed once. Not for streams."""
    each_adapter: Sequence[Entry]
    """Each prompt runs with each of these, `Answer.each`: a name, None for the base model, or a
    list as in `adapters`. What is the same for several of them is computed once. Not for
    streams."""


SEVERAL = ("n", "each_adapter")
"""Options that make several answers to a prompt."""


_KINDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}


def set_field(request: _core.Request, name: str, value: object) -> None:
    """Gives a field of a request its value.

    Raises:
        TypeError: The value has another type, which is said with the field's name.
    """
    try:
        setattr(request, name, value)
    except TypeError:
        kind = type(getattr(request, name))
        says = f"{name} is {type(value).__name__}, expected {_KINDS.get(kind, 'another type')}"
        if kind is int and isinstance(value, int):
            says = f"{name} has too many digits"
        elif kind not in _KINDS and isinstance(value, (list, tuple)):
            says = f"{name} has an entry of another type"
        raise TypeError(says) from None


def _method_of(speculation: object) -> object:
    """What a request has of `speculation`; another type is for the request to refuse."""
    if speculation is None or speculation is True:
        return ""
    return "off" if speculation is False else speculation


def set_options(request: _core.Request, options: Mapping[str, Any]) -> None:
    """Gives a request its further options.

    Raises:
        TypeError: There is none of a name, or a value has another type.
    """
    for name, value in options.items():
        if name not in Sampling.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}")
        if name in SEVERAL:
            raise TypeError(f"{name} is given to a stream, which has one answer")
        if name == "repetition_penalty" and value is None:
            continue
        if name == "speculation":
            set_field(request, name, _method_of(value))
        elif name == "format":
            request.format = parts_of_format(value)
        elif name == "logit_bias":
            request.logit_bias = list(value.items())
        elif name in ("bad_words", "stop_token_ids", "allowed_token_ids"):
            if isinstance(value, (str, bytes)):
                raise TypeError(f"{name} is one text, expected a list")
            set_field(request, name, list(value))
        else:
            set_field(request, name, value)
