"""The options of vLLM's engine, and what they are in heddle."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import heddle
from heddle._hints import POINTERS, unknown_keyword

RENAMED = {
    "max_model_len": "max_context",
    "max_num_seqs": "max_batch",
    "max_num_batched_tokens": "prefill_chunk",
    "max_loras": "max_batch_adapters",
    "block_size": "page_size",
    "enable_prefix_caching": "prefix_cache",
    "kv_cache_memory_bytes": "kv_memory",
}
"""The same in heddle under another name; None is heddle's default."""

WITHOUT_EFFECT = {
    "trust_remote_code": "no code of a model is run: a model that needs its own is refused",
    "max_lora_rank": "ranks may be 1 to 512",
    "max_cpu_loras": "adapters stay in memory until they are removed",
    "lora_extra_vocab_size": "adapters bring as many tokens as they have",
    "fully_sharded_loras": "there is one device",
    "enforce_eager": "bits do not depend on CUDA graphs",
    "max_seq_len_to_capture": "bits do not depend on CUDA graphs",
    "enable_chunked_prefill": "prompts are always prefilled in chunks, on which no bit depends",
    "async_scheduling": "steps overlap on a GPU, on which no bit depends",
    "disable_custom_all_reduce": "there is one device",
    "disable_log_stats": "nothing is logged; stats() of heddle.LLM has the numbers",
    "use_tqdm_on_load": "progress is shown on terminals and in notebooks",
    "served_model_name": "nothing is served",
    "hf_token": "nothing is fetched",
    "distributed_executor_backend": "there is one device",
    "max_parallel_loading_workers": "there is one device",
    "disable_cascade_attn": "no bit depends on how prefixes are attended to",
    "max_logprobs": "logprobs may be up to 100",
    "calculate_kv_scales": "in a KV cache of fp8 each token has scales of its own",
    "scheduling_policy": "prompts of one priority start in the order in which they came",
}
"""Accepted whatever the value: no answer depends on it."""

_NONE = (None,)
_TEXT_ALONE = "heddle takes text and token ids"
_ONE_DEVICE = POINTERS["tensor_parallel_size"]
ONLY: dict[str, tuple[tuple[Any, ...], str]] = {
    "tensor_parallel_size": ((None, 1), _ONE_DEVICE),
    "pipeline_parallel_size": ((None, 1), _ONE_DEVICE),
    "data_parallel_size": ((None, 1), _ONE_DEVICE),
    "gpu_memory_utilization": (
        (None, 0.9, 0.92),
        "give kv_memory, the bytes of the KV cache, instead",
    ),
    "swap_space": (
        (None, 0, 4),
        "give kv_host_memory, the host memory for pages in bytes, instead",
    ),
    "cpu_offload_gb": ((None, 0), "the model is always loaded whole"),
    "tokenizer_mode": (("auto", "hf"), "the tokenizer is the model's own"),
    "skip_tokenizer_init": ((False,), "the tokenizer is always there"),
    "tokenizer_revision": (_NONE, "the tokenizer is the model's own"),
    "revision": (_NONE, POINTERS["revision"]),
    "code_revision": (_NONE, "no code of a model is run"),
    "download_dir": (_NONE, POINTERS["download_dir"]),
    "load_format": (("auto", "safetensors", "gguf"), "heddle reads safetensors and GGUF"),
    "quantization": (_NONE, 'leave it out: the model\'s files say it; weights="q8_0" packs others'),
    "hf_overrides": ((None, {}), "edit the model's config.json"),
    "override_generation_config": ((None, {}), "give generation_config, a file or folder"),
    "compilation_config": (_NONE, "nothing is compiled; leave it out"),
    "lora_dtype": (("auto",), "the device decides: as stored on the CPU, as activations on a GPU"),
    "chat_template": (_NONE, POINTERS["chat_template"]),
    "pooler_config": (_NONE, "embed of heddle.LLM has pooling, normalize and dimensions"),
    "structured_outputs_config": (_NONE, "structured_outputs of SamplingParams is what there is"),
    "logits_processors": (_NONE, "no Python runs between tokens"),
    "quantization_config": (_NONE, "the model's files say it"),
    "attention_config": (_NONE, "there is one attention; leave it out"),
    "attention_backend": (_NONE, "there is one attention; leave it out"),
    "num_gpu_blocks_override": (_NONE, "give kv_memory, the bytes of the KV cache, instead"),
    "kv_offloading_size": (_NONE, "give kv_host_memory, in bytes, instead"),
    "kv_transfer_config": (_NONE, "prefill and decode run in one process"),
    "disable_sliding_window": ((False,), "the window is that of the model"),
    "enable_expert_parallel": ((False,), _ONE_DEVICE),
    "enable_sleep_mode": ((False,), "close the model, and load it again"),
    "enable_return_routed_experts": ((False,), "routes of experts are not reported"),
    "model_impl": (("auto",), "heddle has models of its own"),
    "allowed_media_domains": (_NONE, _TEXT_ALONE),
    "default_mm_loras": (_NONE, _TEXT_ALONE),
    "limit_mm_per_prompt": ((None, {}), _TEXT_ALONE),
    "mm_processor_kwargs": (_NONE, _TEXT_ALONE),
    "allowed_local_media_path": (("", None), _TEXT_ALONE),
    "runner": (("auto", "generate"), "heddle.LLM has embed and classify"),
    "convert": (("auto", "none"), "heddle.LLM has embed and classify"),
    "task": (("auto", "generate"), "heddle.LLM has embed and classify"),
    "logprobs_mode": (("raw_logprobs",), "log-probabilities are the model's own"),
}
"""Accepted at these values, which ask for nothing; others are refused with the sentence."""

_KV_TYPES = {
    "auto": "", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "fp8": "fp8", "fp8_e4m3": "fp8",
}  # fmt: skip
_ACTIVATIONS = {
    "float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32",
}  # fmt: skip


_SPECULATION = (
    "method",
    "num_speculative_tokens",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "model",
)
_METHODS = {
    "ngram": "ngram", "suffix": "suffix", "draft_model": "model", "medusa": "heads", "eagle3": "eagle3",
}  # fmt: skip
_WITHOUT_MODEL = ("ngram", "suffix")


def _speculation(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options of heddle.LLM; where one of prompt_lookup_min and prompt_lookup_max is given, it is the other
    one too, as in vLLM.

    Raises:
        NotImplementedError: A key or a method that heddle does not have.
    """
    for key in config:
        if key not in _SPECULATION:
            says = f"expected {', '.join(_SPECULATION)}"
            if key.startswith("suffix_decoding_"):
                says += "; draft_memory bounds what \"suffix\" keeps of recent answers"
            raise NotImplementedError(f"speculative_config has {key!r}, {says}")
    method = config.get("method")
    if not isinstance(method, str) or method not in _METHODS:
        raise NotImplementedError(
            f"speculative_config has method {method!r}, expected {', '.join(_METHODS)}"
        )
    options: dict[str, Any] = {"speculate": _METHODS[method]}
    has_model = method not in _WITHOUT_MODEL
    others = ("prompt_lookup_min", "prompt_lookup_max") if has_model else ("model",)
    for key in others:
        if config.get(key) is not None:
            raise NotImplementedError(f"speculative_config: method {method!r} takes no {key}")
    if has_model:
        if config.get("model") is None:
            raise NotImplementedError(f"speculative_config: method {method!r} needs a model")
        options["draft_model"] = config["model"]
    if (most := config.get("num_speculative_tokens")) is not None:
        options["draft_tokens"] = most
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    if low is not None or high is not None:
        options["draft_ngram"] = (high if low is None else low, low if high is None else high)
    return options


@dataclass(frozen=True)
class Translated:
    """Options of vLLM as heddle has them."""

    options: dict[str, Any]
    """Of heddle.LLM."""
    enable_lora: bool
    seed: int
    activations: str | None
    """That the model must have; None: any."""


def _own_names() -> list[str]:
    return list(inspect.signature(heddle.LLM).parameters)


def _generation_config(value: str) -> str:
    return "none" if value == "vllm" else value


def translated(model: str, given: Mapping[str, Any]) -> Translated:
    """What the options are in heddle; options of heddle.LLM that vLLM has no name for go through.

    Raises:
        NotImplementedError: heddle does not do it; the sentence says what to use.
        TypeError: There is no such option.
    """
    options: dict[str, Any] = {"model": model}
    rest = {name: value for name, value in given.items() if name not in WITHOUT_EFFECT}
    enable_lora = bool(rest.pop("enable_lora", False))
    seed = rest.pop("seed", None) or 0
    dtype = rest.pop("dtype", "auto")
    if dtype not in ("auto", *_ACTIVATIONS):
        raise NotImplementedError(f"dtype={dtype!r}: leave it out, {POINTERS['dtype']}")
    own_names = _own_names()
    for name, value in rest.items():
        if name in RENAMED:
            if value is not None:
                options[RENAMED[name]] = value
        elif name == "tokenizer":
            if value not in (None, model):
                raise NotImplementedError(f"tokenizer={value!r}: the tokenizer is the model's own")
        elif name == "kv_cache_dtype":
            if value not in _KV_TYPES:
                raise NotImplementedError(
                    f"kv_cache_dtype={value!r}, expected {', '.join(_KV_TYPES)}"
                )
            options["kv_type"] = _KV_TYPES[value]
        elif name == "speculative_config":
            options.update(_speculation(value) if value is not None else {})
        elif name == "generation_config":
            options[name] = _generation_config(value)
        elif name == "device":
            options[name] = None if value == "auto" else value
        elif name in ONLY:
            values, instead = ONLY[name]
            if value not in values:
                raise NotImplementedError(f"{name}={value!r}: {instead}")
        elif name in own_names:
            options[name] = value
        else:
            known = [*own_names, *RENAMED, *ONLY, *WITHOUT_EFFECT, "speculative_config", "enable_lora", "seed", "dtype"]
            raise unknown_keyword("LLM", name, known)
    return Translated(options, enable_lora, seed, _ACTIVATIONS.get(dtype))


class EngineArgs:
    """The options of `LLM` and `LLMEngine` as a value.

    Raises: As `LLM`, but for what is found when the model is loaded.
    """

    def __init__(self, model: str, **options: Any) -> None:
        translated(model, options)
        self.model = model
        self.options = options

    def __repr__(self) -> str:
        shown = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"EngineArgs({self.model!r}{shown})"
