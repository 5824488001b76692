"""Keywords that a call does not have: what is meant, also by names of other packages."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

RENAMED = {
    # of vLLM
    "max_model_len": "max_context",
    "max_num_seqs": "max_batch",
    "max_loras": "max_batch_adapters",
    "max_num_batched_tokens": "prefill_chunk",
    "block_size": "page_size",
    "enable_prefix_caching": "prefix_cache",
    "kv_cache_memory_bytes": "kv_memory",
    "kv_cache_dtype": "kv_type",
    "ignore_eos": "ignore_end",
    "include_stop_str_in_output": "include_stop",
    "logprobs": "top_logprobs",
    "structured_outputs": "format",
    "guided_decoding": "format",
    "use_tqdm": "progress",
    # of llama-cpp-python
    "model_path": "model",
    "n_ctx": "max_context",
    "n_threads": "num_threads",
    "n_batch": "prefill_chunk",
    "n_seq_max": "max_batch",
    "repeat_penalty": "repetition_penalty",
    "grammar": "format",
    # of transformers and PEFT
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "eos_token_id": "stop_token_ids",
    "stop_strings": "stop",
    "num_return_sequences": "n",
    "bad_words_ids": "bad_words",
    "device_map": "device",
    "adapter_name": "adapter",
    # of LoRAX
    "adapter_id": "adapter",
    "merged_adapters": "adapters",
    "stop_sequences": "stop",
    "truncate": "truncate_prompt_tokens",
    "top_n_tokens": "top_logprobs",
    "response_format": "format",
}
"""What heddle calls what others call so."""

_FILES_SAY = "the model's files say it"
_ONE_DEVICE = 'a model runs on one device, which device="cuda:1" names'
_NAMED = (
    "adapters are named in LLM(adapters={name: path}) or add_adapter, and prompts give adapter=name;"
    " heddle.vllm_compat takes vLLM's LoRARequest"
)
_IN_MEMORY = "kv_memory is the KV cache in bytes; the model is always loaded whole"
_ANY_ADAPTER = "adapters are always on, of ranks 1 to 512; leave it out"

POINTERS = {
    "enable_lora": _ANY_ADAPTER,
    "max_lora_rank": _ANY_ADAPTER,
    "lora_extra_vocab_size": _ANY_ADAPTER,
    "max_cpu_loras": "adapter_host_memory bounds copies of adapters in host memory, in bytes",
    "lora_request": _NAMED,
    "lora_path": _NAMED,
    "lora_modules": _NAMED,
    "adapter_source": _NAMED,
    "tensor_parallel_size": _ONE_DEVICE,
    "pipeline_parallel_size": _ONE_DEVICE,
    "data_parallel_size": _ONE_DEVICE,
    "tensor_split": _ONE_DEVICE,
    "gpu_memory_utilization": _IN_MEMORY,
    "cpu_offload_gb": _IN_MEMORY,
    "n_gpu_layers": 'device="cuda" takes all layers, device="cpu" none',
    "swap_space": "kv_host_memory is the host memory for pages, in bytes",
    "dtype": "model.activations has the type, which the device decides",
    "torch_dtype": "model.activations has the type, which the device decides",
    "quantization": 'the model\'s files say it; weights="q8_0" packs others when they are loaded',
    "load_in_8bit": 'weights="q8_0" packs the model when it is loaded',
    "load_in_4bit": 'weights="q4_0" packs the model when it is loaded',
    "tokenizer": _FILES_SAY,
    "tokenizer_mode": _FILES_SAY,
    "load_format": _FILES_SAY,
    "chat_format": _FILES_SAY,
    "chat_template": _FILES_SAY,
    "trust_remote_code": "no code of a model is ever run; leave it out",
    "speculative_config": 'speculate="ngram" with draft_tokens and draft_ngram is it; '
    "heddle.vllm_compat takes vLLM's",
    "revision": "`heddle pull` fetches a revision, and model names its folder",
    "download_dir": "`heddle pull` fetches models, and model names the folder",
    "enforce_eager": "bits do not depend on CUDA graphs; leave it out",
    "do_sample": "temperature=0 takes the most likely token, others draw",
    "num_beams": "there is no search for beams; n draws several answers",
    "best_of": "n draws several answers, whose logprobs tell which is best",
    "echo": "prompt_logprobs scores the prompt",
    "stream": "stream and stream_chat give the text as it comes",
    "messages": "conversations come first, without a name",
    "prompt": "prompts come first, without a name",
    "prompt_token_ids": "lists of token ids are prompts, too",
}
"""What to do in heddle in place of what has no counterpart of one name."""

ELSEWHERE = {
    "LoRARequest": _NAMED,
    "EngineArgs": "heddle.LLM has the options; heddle.vllm_compat has vLLM's EngineArgs",
    "LLMEngine": "heddle.LLM is the engine; heddle.vllm_compat has vLLM's LLMEngine",
    "AsyncLLMEngine": "heddle.AsyncLLM has the calls of heddle.LLM for an event loop",
    "RequestOutput": "heddle.Answer is what comes back; heddle.vllm_compat has vLLM's RequestOutput",
    "CompletionOutput": "heddle.Answer is what comes back; heddle.vllm_compat has vLLM's outputs",
    "Llama": "heddle.LLM is the model; its first argument takes a GGUF file",
}
"""Names of other packages that somebody may look for in heddle."""

_CALLS: dict[str, tuple[str, ...]] = {}
"""The keywords of each call that was declared."""


def declare(call: str, names: Iterable[str]) -> None:
    """Makes a call known to the hints of others."""
    _CALLS[call] = tuple(names)


def hint_of(name: str, names: Collection[str]) -> str:
    """What to write in place of a keyword, as the end of a sentence; empty: nothing is near."""
    if name in POINTERS:
        return f": {POINTERS[name]}"
    meant = RENAMED.get(name, name)
    if meant in names:
        return f"; it is {meant} here"
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    others = [call for call, known in _CALLS.items() if meant in known]
    return hint + (f"; {meant} is a keyword of {others[0]}" if others else "")


def unknown_keyword(call: str, name: str, names: Collection[str]) -> TypeError:
    """The error of a call that was given a keyword that it does not have."""
    return TypeError(f"{call} has no keyword {name!r}{hint_of(name, names)}")


def check_keywords(call: str, given: Iterable[str], names: Collection[str]) -> None:
    """Raises TypeError with a hint where a keyword is given that the call does not have."""
    for name in given:
        if name not in names:
            raise unknown_keyword(call, name, names)


def missing_name(module: str, name: str, names: Collection[str]) -> Exception:
    """The error of a name that a module does not have."""
    if name in ELSEWHERE:  # `from heddle import` shows the sentence of this error alone
        return ImportError(f"{module} has no {name}: {ELSEWHERE[name]}", name=name)
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def hinted(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose unknown keywords raise TypeError with a hint."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = list(inspect.signature(function).parameters.values())
    names = [p.name for p in parameters if p.kind in kinds and p.name != "self"]
    call = function.__qualname__.removesuffix(".__init__")
    declare(call, names)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check_keywords(call, kwargs, names)
        return function(*args, **kwargs)

    return checked
