"""What `heddle.LLM` takes where nothing is given: the model, and the values of prompts."""

from __future__ import annotations

import logging
import os
import pathlib
import warnings
from typing import Any

from heddle import _core

_LOG = logging.getLogger("heddle")
_VALUES: dict[str, Any] = {
    "max_tokens": 256, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
    "repetition_penalty": 1.0,
}
"""Of prompts that do not give them, where the model's files do not either."""
_MODEL = "heddle/models/SmolLM2-135M-Instruct.Q4_1.gguf"


def default_model() -> str:
    """As the program has it: $HEDDLE_MODEL, else the default model in the cache.

    Raises:
        ValueError: Neither exists.
    """
    if named := os.environ.get("HEDDLE_MODEL"):
        return named
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    path = pathlib.Path(cache) / _MODEL
    if not path.exists():
        raise ValueError(
            f"no model: {path} is missing; name one, or fetch the default with tools/fetch_model"
        )
    return str(path)


def default_values(generation: _core.GenerationDefaults) -> dict[str, Any]:
    """The values of prompts that do not give them, by name; those of the model's files come first.

    Logs what the files gave, and warns the caller's caller of what heddle does not do.
    """
    for what in generation.not_done:
        warnings.warn(f"{generation.path}: {what}, which heddle does not support", stacklevel=4)
    if described := generation.describe():
        _LOG.info("from %s, where prompts do not set it: %s", generation.path, described)
    given = {name: getattr(generation, name) for name in _VALUES}
    return _VALUES | {name: value for name, value in given.items() if value is not None}
