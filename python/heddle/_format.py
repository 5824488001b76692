"""What the text of an answer must be: `format` of `LLM.generate`, `chat`, `stream` and `stream_chat`."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, Union

_Parts: TypeAlias = tuple[str, str, list[str]]
"""Kind, source and choices, as `_core.Request.format` takes them."""


@dataclass(frozen=True)
class Grammar:
    """A grammar that answers follow."""

    source: str
    """Its rules."""
    syntax: str = "gbnf"
    """"gbnf", llama.cpp's form, whose first rule is `root ::= ...`; or "lark", with
    `start: ...`."""


@dataclass(frozen=True)
class StructuralTag:
    """A structural tag of xgrammar: text in which parts between tags have formats of their own."""

    tag: Mapping[str, Any]
    """`{"format": {"type": "triggered_tags", ...}}`."""


class HasSchema(Protocol):
    """What a pydantic `TypeAdapter` is here."""

    def json_schema(self) -> dict[str, Any]:
        """Its JSON schema."""


Format: TypeAlias = Union[
    str, Mapping[str, Any], type, HasSchema, "re.Pattern[str]", Grammar, StructuralTag, Sequence[str]
]
"""One of:

- a JSON schema as a dict, or a pydantic class, or a pydantic `TypeAdapter`;
- `"json"`: any JSON object;
- a compiled pattern, `re.compile("[a-z]+")`, without flags, which the whole answer matches;
- a list of texts, or an `Enum` of texts: the answer is one of them;
- a `Grammar`, a `StructuralTag`.
"""


_EXPECTED = "a schema, a pydantic class, a compiled pattern, a list of texts or a heddle.Grammar"


def _schema(schema: Any) -> _Parts:
    return "json_schema", json.dumps(schema, ensure_ascii=False, allow_nan=False), []


def _choices(texts: Sequence[Any]) -> _Parts:
    if not texts or not all(isinstance(text, str) for text in texts):
        raise TypeError("format is a list of something else than texts, or of none")
    return "choice", "", list(texts)


def _parts_of(format: Any) -> _Parts:
    """Raises TypeError where it is no format, ValueError where it is one that heddle cannot do."""
    if isinstance(format, Mapping):
        return _schema(format)
    if isinstance(format, str):
        if format != "json":
            raise ValueError(f'format is {format!r}, expected "json" or {_EXPECTED}')
        return "json", "", []
    if isinstance(format, re.Pattern):
        if not isinstance(format.pattern, str) or format.flags & ~re.UNICODE:
            raise ValueError("format is a pattern of bytes or with flags, expected one of text without flags")
        return "regex", format.pattern, []
    if isinstance(format, Grammar):
        if format.syntax not in ("gbnf", "lark"):
            raise ValueError(f'syntax is {format.syntax!r}, expected "gbnf" or "lark"')
        return "grammar" if format.syntax == "gbnf" else "lark", format.source, []
    if isinstance(format, StructuralTag):
        tag = {"type": "structural_tag", **format.tag}
        return "structural_tag", json.dumps(tag, ensure_ascii=False, allow_nan=False), []
    if isinstance(format, type) and issubclass(format, enum.Enum):
        return _choices([member.value for member in format])
    for name in ("model_json_schema", "json_schema"):  # of a pydantic class, of its TypeAdapter
        make = getattr(format, name, None)
        if callable(make):
            return _schema(make())
    if isinstance(format, Sequence) and not isinstance(format, (bytes, bytearray)):
        return _choices(format)
    raise TypeError(f"format is {type(format).__name__}, expected {_EXPECTED}")


def parts_of_format(format: Any) -> _Parts:
    """What a request takes of a format; None: any text."""
    return ("text", "", []) if format is None else _parts_of(format)
