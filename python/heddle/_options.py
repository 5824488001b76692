"""The keywords of the calls of `LLM` and `AsyncLLM`, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from heddle._adapters import AdapterList, AdapterLists, Adapters, Merge
from heddle._fields import Message
from heddle._hints import check_keywords, declare
from heddle._sampling import Sampling

DEFAULTS: dict[str, Any] = {
    "adapters": None, "merge": None, "adapter": None, "max_tokens": None, "temperature": None,
    "top_k": None, "top_p": None, "min_p": None, "seed": 0, "stop": (), "ignore_end": False, "keep_going": False,
    "progress": None, "system": None, "tools": None, "documents": None,
    "chat_template_kwargs": None, "add_generation_prompt": True,
}
"""In the order of signatures."""
TEMPLATE_DEFAULTS: dict[str, Any] = {
    "adapter": None, "system": None, "tools": None, "documents": None, "chat_template_kwargs": None,
    "add_generation_prompt": True, "continue_final_message": False,
}
"""Of `apply_chat_template`."""
EMBED_DEFAULTS: dict[str, Any] = {
    "adapter": None, "adapters": None, "pooling": None, "normalize": None, "dimensions": 0, "cache_salt": "", "priority": 0,
}
CLASSIFY_DEFAULTS: dict[str, Any] = {"adapter": None, "adapters": None, "activates": True, "cache_salt": "", "priority": 0}
DRAWN = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "ignore_end")
"""Those that a request has as they are."""


class Draws(Sampling, total=False):
    """What is drawn of a prompt, and where it ends."""

    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int
    stop: str | Sequence[str]
    ignore_end: bool


class StreamOptions(Draws, total=False):
    """Of one prompt."""

    adapters: AdapterList | None
    merge: Merge | None
    adapter: str | None


class GenerateOptions(Draws, total=False):
    """Of one prompt or several."""

    adapters: AdapterLists
    merge: Merge | None
    adapter: Adapters
    keep_going: bool
    progress: bool | None


class _Conversation(TypedDict, total=False):
    system: str | None
    tools: Sequence[Message] | None
    documents: Sequence[Message] | None
    chat_template_kwargs: Mapping[str, Any] | None
    add_generation_prompt: bool


class StreamChatOptions(StreamOptions, _Conversation, total=False):
    """Of one conversation."""


class ChatOptions(GenerateOptions, _Conversation, total=False):
    """Of one conversation or several."""


class TemplateOptions(_Conversation, total=False):
    """Of `apply_chat_template`, but for `tokenize`, which its result depends on."""

    adapter: str | None
    continue_final_message: bool


class _ValueOptions(TypedDict, total=False):
    adapter: Adapters
    adapters: AdapterLists
    cache_salt: str
    priority: int


class EmbedOptions(_ValueOptions, total=False):
    """Of `embed`."""

    pooling: str | None
    normalize: bool | None
    dimensions: int


class ClassifyOptions(_ValueOptions, total=False):
    """Of `classify`."""

    activates: bool


Method = TypeVar("Method", bound=Callable[..., Any])


def takes(options: Any, defaults: Mapping[str, Any] = DEFAULTS) -> Callable[[Method], Method]:
    """Shows the keywords of a method one by one in its signature and in `help`, and refuses others
    with a hint. Those without a default are a `Sampling`."""

    def show(method: Method) -> Method:
        types = {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()}
        signature = inspect.signature(method)
        *positional, _ = signature.parameters.values()
        parameters = positional + [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
            for name, default in defaults.items()
            if name in types
        ]
        if not types.keys() <= defaults.keys():
            rest = inspect.Parameter.VAR_KEYWORD
            parameters.append(inspect.Parameter("sampling", rest, annotation="Unpack[Sampling]"))
        names = [p.name for p in positional if p.name != "self"] + list(types)
        call = method.__qualname__
        declare(call, names)

        @functools.wraps(method)
        def checked(*args: Any, **kwargs: Any) -> Any:
            check_keywords(call, kwargs, names)
            return method(*args, **kwargs)

        checked.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return show


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keywords of a prompt, with defaults for those left out, and apart from them the Sampling."""
    given = {name: options.get(name, default) for name, default in DEFAULTS.items()}
    return given, {name: value for name, value in options.items() if name not in DEFAULTS}
