"""In place of `vllm.inputs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypedDict, Union

__all__ = ["PromptType", "TextPrompt", "TokensPrompt"]


class _TextPrompt(TypedDict):
    prompt: str


class TextPrompt(_TextPrompt, total=False):
    """A text as a prompt."""

    cache_salt: str


class _TokensPrompt(TypedDict):
    prompt_token_ids: list[int]


class TokensPrompt(_TokensPrompt, total=False):
    """Token ids as a prompt, and perhaps the text that they stand for."""

    prompt: str
    cache_salt: str


PromptType: TypeAlias = Union[str, "list[int]", TextPrompt, TokensPrompt]


class ParsedPrompt(NamedTuple):
    """A prompt in one of its forms."""

    text: str | None
    token_ids: list[int] | None
    """None: those of the text."""
    cache_salt: str


def is_one(prompts: Any) -> bool:
    """Whether it is a prompt, not a list of them."""
    return isinstance(prompts, (str, Mapping)) or (
        len(prompts) > 0 and hasattr(prompts[0], "__index__")
    )


def parsed(prompt: Any) -> ParsedPrompt:
    """A prompt, whatever its form.

    Raises:
        TypeError: It is no prompt.
        NotImplementedError: It has images, sounds or embeddings.
    """
    if isinstance(prompt, str):
        return ParsedPrompt(prompt, None, "")
    if isinstance(prompt, Mapping):
        for key, value in prompt.items():
            if key not in ("prompt", "prompt_token_ids", "cache_salt") and value is not None:
                raise NotImplementedError(f"a prompt has {key!r}, heddle takes text and token ids")
        ids = prompt.get("prompt_token_ids")
        text = prompt.get("prompt")
        if ids is None and text is None:
            raise TypeError("a prompt has neither 'prompt' nor 'prompt_token_ids'")
        return ParsedPrompt(
            text, None if ids is None else list(ids), prompt.get("cache_salt") or ""
        )
    if isinstance(prompt, Sequence):
        return ParsedPrompt(None, list(prompt), "")
    raise TypeError(f"a prompt is {type(prompt).__name__}, expected a text or token ids")
