"""The fields of a request that say what its prompt is."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Message: TypeAlias = Mapping[str, Any]
"""`{"role": "user", "content": "Hi"}`, and the further fields that docs/command_line.md lists."""


def _json_of(value: object) -> str:
    """JSON text of what is given, "" for None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False)


def wrapped_seed(seed: int) -> int:
    """The seed within 64 bits, around their end as in the program."""
    return (seed + 2**63) % 2**64 - 2**63


def fields_of_prompt(prompt: Any) -> dict[str, Any]:
    """The fields of a request for a text or token ids."""
    if isinstance(prompt, str):
        return {"text": prompt}
    return {"token_ids": [operator.index(token) for token in prompt]}


def _fields_of_conversation(conversation: Any, system: str | None) -> dict[str, Any]:
    """The fields of a request for a user's message or a list of messages."""
    if isinstance(conversation, str):
        first = [] if system is None else [("system", system)]
        return {"messages": [*first, ("user", conversation)]}
    messages = list(conversation)
    if system is not None and (not messages or messages[0].get("role") != "system"):
        messages.insert(0, {"role": "system", "content": system})
    return {"messages_json": _json_of(messages)}


def fields_of_conversations(
    conversations: Sequence[Any], given: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The fields of a request for each conversation; `given` has what the template takes."""
    template = {
        "tools_json": _json_of(given["tools"]),
        "documents_json": _json_of(given["documents"]),
        "template_kwargs_json": _json_of(given["chat_template_kwargs"]),
        "add_generation_prompt": given["add_generation_prompt"],
    }
    return [_fields_of_conversation(c, given["system"]) | template for c in conversations]
