"""The keywords of `LLM.generate`, `chat`, `stream` and `stream_chat`, declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from heddle._adapters import AdapterList, AdapterLists, Adapters, Merge
from heddle._fields import Message
from heddle._sampling import Sampling

DEFAULTS: dict[str, Any] = {
    "adapters": None, "merge": None, "adapter": None, "max_tokens": None, "temperature": None,
    "top_k": None, "top_p": None, "min_p": None, "seed": 0, "stop": (), "ignore_end": False, "keep_going": False,
    "progress": None, "system": None, "tools": None, "documents": None,
    "chat_template_kwargs": None, "add_generation_prompt": True,
}
"""In the order of signatures."""
DRAWN = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "ignore_end")
"""Those that a request has as they are."""


class _Draws(Sampling, total=False):
    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int
    stop: str | Sequence[str]
    ignore_end: bool


class StreamOptions(_Draws, total=False):
    """Of one prompt."""

    adapters: AdapterList | None
    merge: Merge | None
    adapter: str | None


class GenerateOptions(_Draws, total=False):
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


Method = TypeVar("Method", bound=Callable[..., Any])


def takes(options: Any) -> Callable[[Method], Method]:
    """Shows the keywords of a method one by one in its signature and in `help`."""

    def show(method: Method) -> Method:
        types = {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()}
        signature = inspect.signature(method)
        *parameters, _ = signature.parameters.values()
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
            for name, default in DEFAULTS.items()
            if name in types
        ]
        rest = inspect.Parameter("sampling", inspect.Parameter.VAR_KEYWORD, annotation="Unpack[Sampling]")
        method.__signature__ = signature.replace(parameters=[*parameters, rest])  # type: ignore[attr-defined]
        return method

    return show


def split(kind: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keywords of a call, with defaults for those left out, and apart from them the Sampling.

    Raises:
        TypeError: `kind` has none of a name.
    """
    for name in options:
        if name not in kind.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}")
    given = {name: options.get(name, default) for name, default in DEFAULTS.items()}
    return given, {name: value for name, value in options.items() if name not in DEFAULTS}
