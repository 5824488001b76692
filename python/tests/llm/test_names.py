"""Names: what `dir` lists, and what is said of keywords and names that heddle does not have."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from typing import Any

import pytest

import heddle
from heddle import _hints
from heddle._options import ChatOptions

NO_MODEL: Any = object.__new__(heddle.LLM)  # of these calls none gets as far as the model
KEYWORDS = {*inspect.signature(heddle.LLM).parameters, *ChatOptions.__annotations__}


@pytest.mark.parametrize("name", ["heddle", "heddle.ops", "heddle.compat", "heddle.vllm_compat"])
def test_dir_lists_what_is_to_be_used(name: str) -> None:
    """In a process of its own: what others have imported is not there."""
    code = f"import {name} as it, types; print(*dir(it)); print(*(n for n in dir(it) if isinstance(getattr(it, n), types.ModuleType)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names, modules = done.stdout.split("\n")[:2]
    assert names.split() == sorted(importlib.import_module(name).__all__)
    own = {"heddle": ["ops"], "heddle.compat": ["lorax", "megatron", "punica_kernels"]}
    assert modules.split() == own.get(name, [])


def test_names_of_others_are_pointed_from() -> None:
    for name in _hints.ELSEWHERE:
        with pytest.raises(ImportError, match=f"heddle has no {name}: .*heddle"):
            getattr(heddle, name)
    with pytest.raises(ImportError, match="heddle.vllm_compat takes vLLM's LoRARequest"):
        from heddle import LoRARequest  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(AttributeError, match="module 'heddle' has no attribute 'LLm'; did you mean LLM?"):
        heddle.LLm  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(heddle, "sys") and not hasattr(heddle, "warp")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_batsh": 4}, "LLM has no keyword 'max_batsh'; did you mean max_batch?"),
        ({"max_model_len": 4}, "it is max_context here"), ({"n_ctx": 4}, "it is max_context here"),
        ({"enable_lora": True}, "adapters are always on, of ranks 1 to 512; leave it out"),
        ({"tensor_parallel_size": 2}, "a model runs on one device"), ({"temperature": 1}, "temperature is a keyword of "),
        ({"adapter": "a"}, "did you mean adapters?; adapter is a keyword of "), ({"warp": 1}, "LLM has no keyword 'warp'"),
    ],
)
def test_keywords_of_the_model(options: dict[str, Any], says: str) -> None:
    for make in (heddle.LLM, heddle.AsyncLLM):
        with pytest.raises(TypeError, match=re.escape(says)):
            make("/nonexistent.gguf", **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temprature": 1}, "has no keyword 'temprature'; did you mean temperature?"), ({"max_new_tokens": 1}, "it is max_tokens here"),
        ({"adapter_id": "a"}, "it is adapter here"), ({"lora_request": 1}, "prompts give adapter=name; heddle.vllm_compat takes"),
        ({"ignore_eos": True}, "it is ignore_end here"), ({"n_ctx": 4}, "max_context is a keyword of LLM"), ({"best_of": 2}, "n draws several"),
    ],
)
def test_keywords_of_prompts(options: dict[str, Any], says: str) -> None:
    for call in (heddle.LLM.generate, heddle.LLM.chat, heddle.LLM.stream, heddle.LLM.stream_chat, heddle.AsyncLLM.stream):
        with pytest.raises(TypeError, match=re.escape(says)):
            call(NO_MODEL, "a", **options)
    if "adapter_id" not in options and "lora_request" not in options:
        with pytest.raises(TypeError, match=re.escape(says)):
            heddle.SamplingParams(**options)


def test_keywords_of_other_calls() -> None:
    for call, options, says in (
        (heddle.LLM.add_adapter, {"folder": "a", "replase": True}, "LLM.add_adapter has no keyword 'replase'|replase.*did you mean replace"),
        (heddle.LLM.embed, {"normalise": True}, "did you mean normalize?"), (heddle.LLM.tokenize, {"special": 1}, "tokenize has no keyword 'special'"),
        (heddle.LLM.apply_chat_template, {"chat_template": "a"}, "the model's files say it"),
    ):
        with pytest.raises(TypeError, match=says):
            call(NO_MODEL, "a", **options)  # type: ignore[operator]


def test_hints_lead_to_keywords_that_there_are() -> None:
    assert set(_hints.RENAMED.values()) <= KEYWORDS
    assert not KEYWORDS & {*_hints.RENAMED, *_hints.POINTERS}
    said = " ".join(_hints.POINTERS.values())
    for keyword in re.findall(r"\b([a-z_]+)=", said):
        assert keyword in KEYWORDS, keyword
    for name in re.findall(r"\b([a-z]+_[a-z_]+)\b", said):
        assert name in KEYWORDS or hasattr(heddle.LLM, name) or name == "vllm_compat", name


def test_every_keyword_is_in_the_help() -> None:
    for call in (heddle.LLM.generate, heddle.LLM.chat, heddle.AsyncLLM.chat):
        shown = inspect.signature(call).parameters
        assert {"sampling_params", "adapter", "max_tokens", "seed"} <= set(shown)
    assert inspect.signature(heddle.AsyncLLM) == inspect.signature(heddle.LLM)
    text = heddle.LLM.__doc__ or ""
    assert [name for name in inspect.signature(heddle.LLM).parameters if f"        {name}: " not in text] == []
