"""What `LLM` and `LLMEngine` share: a heddle.LLM, its adapters, prompts and draws."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import heddle
from heddle.vllm_compat._engine_args import WITHOUT_EFFECT, translated
from heddle.vllm_compat.inputs import parsed
from heddle.vllm_compat.lora.request import LoRARequest
from heddle.vllm_compat.outputs import RequestOutput, output_of
from heddle.vllm_compat.sampling_params import SamplingParams, own_params

_LOG = logging.getLogger("heddle")


def check_not_given(call: str, **given: object) -> None:
    """Refuses arguments of vLLM's calls that heddle does not have."""
    for name, value in given.items():
        if value:
            raise NotImplementedError(f"{call}({name}=...): heddle does not have it; leave it out")


class Prompt(NamedTuple):
    """A prompt that is ready to run."""

    request_id: str
    text: str | None
    token_ids: list[int]
    params: SamplingParams
    own_params: heddle.SamplingParams
    lora_request: LoRARequest | None
    adapter: str | None


class Backend:
    """One loaded model."""

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        wanted = translated(model, options)
        for name in options:
            if name in WITHOUT_EFFECT:
                _LOG.info("%s has no effect: %s", name, WITHOUT_EFFECT[name])
        self.llm = heddle.LLM(**wanted.options)
        has, device = self.llm.model.activations, self.llm.device
        if wanted.activations not in (None, has):
            self.llm.close()
            raise NotImplementedError(
                f"dtype={options['dtype']!r}: the model computes in {has} on {device}; leave it out"
            )
        self._enable_lora = wanted.enable_lora
        self._draws = random.Random(wanted.seed)
        self._loras: dict[str, LoRARequest] = {}
        self._lock = threading.Lock()

    @property
    def lora_requests(self) -> list[LoRARequest]:
        """The adapters that are loaded."""
        return list(self._loras.values())

    def adapter_of(self, request: LoRARequest | None) -> str | None:
        """The name of an adapter, which is loaded if need be.

        Raises:
            ValueError: LoRA is not enabled, or name, number and path are not those of before.
        """
        if request is None:
            return None
        if not self._enable_lora:
            raise ValueError(f"lora_request {request.lora_name!r} needs LLM(enable_lora=True)")
        with self._lock:
            self._load(request)
        return request.lora_name

    def _load(self, request: LoRARequest) -> None:
        name = request.lora_name
        known = self._loras.get(name)
        for other in self._loras.values():
            if other.lora_int_id == request.lora_int_id and other.lora_name != name:
                raise ValueError(
                    f"lora_int_id {request.lora_int_id} is that of {other.lora_name!r} and of {name!r};"
                    " give each adapter its own"
                )
        if known is None or request.load_inplace:
            self.llm.add_adapter(name, request.lora_path, replace=known is not None)
            self._loras[name] = request
        elif (known.lora_int_id, known.lora_path) != (request.lora_int_id, request.lora_path):
            raise ValueError(
                f"lora_request {name!r} was {known.lora_path} with number {known.lora_int_id}, now it is"
                f" {request.lora_path} with {request.lora_int_id}; give load_inplace=True or another name"
            )

    def remove(self, lora_int_id: int) -> bool:
        """Removes the adapter of a number; whether there was one."""
        with self._lock:
            for name, request in self._loras.items():
                if request.lora_int_id == lora_int_id:
                    del self._loras[name]
                    self.llm.remove_adapter(name)
                    return True
        return False

    def default_params(self) -> SamplingParams:
        """What the model's files say, and vLLM's defaults for the rest."""
        generation = self.llm.model.generation
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_tokens")
        given = {name: getattr(generation, name) for name in names}
        return SamplingParams(**{name: value for name, value in given.items() if value is not None})

    def prompt(
        self,
        request_id: str,
        prompt: Any,
        params: SamplingParams | None,
        lora_request: LoRARequest | None,
        priority: int = 0,
    ) -> Prompt:
        """Makes a prompt ready: its adapter is loaded, its text is tokenized."""
        adapter = self.adapter_of(lora_request)
        text, ids, cache_salt = parsed(prompt)
        if ids is None:
            ids = self.llm.tokenize(text or "", adapter=adapter)
        more = {"cache_salt": cache_salt, "priority": priority}
        return self._ready(request_id, text, ids, params, lora_request, adapter, more)

    def conversation(
        self,
        request_id: str,
        messages: Sequence[Mapping[str, Any]],
        params: SamplingParams | None,
        lora_request: LoRARequest | None,
        template: Mapping[str, Any],
    ) -> Prompt:
        """The same for a conversation; `template` has the keywords of apply_chat_template."""
        adapter = self.adapter_of(lora_request)
        apply: Any = self.llm.apply_chat_template
        text, ids = (
            apply(messages, tokenize=tokenize, adapter=adapter, **template)
            for tokenize in (False, True)
        )
        return self._ready(request_id, text, ids, params, lora_request, adapter, {})

    def _ready(
        self,
        request_id: str,
        text: str | None,
        ids: list[int],
        params: SamplingParams | None,
        lora_request: LoRARequest | None,
        adapter: str | None,
        more: Mapping[str, Any],
    ) -> Prompt:
        if params is None:
            params = self.default_params()
        if not isinstance(params, SamplingParams):
            kind = f"{type(params).__module__}.{type(params).__qualname__}"
            raise TypeError(
                f"sampling_params is {kind}, expected heddle.vllm_compat.SamplingParams"
            )
        count = params.truncate_prompt_tokens
        kept = ids if count is None or count < 0 else ids[-count:]
        with self._lock:
            seed = self._draws.getrandbits(62)
        own = own_params(params, self.llm.max_context, seed).replace(**more)
        return Prompt(request_id, text, kept, params, own, lora_request, adapter)

    def output(self, prompt: Prompt, answer: heddle.Answer) -> RequestOutput:
        """What has become of a prompt."""
        texts: dict[int, str] = {}

        def text(token: int) -> str:
            if token not in texts:
                texts[token] = self.llm.detokenize([token], adapter=prompt.adapter)
            return texts[token]

        return output_of(
            prompt.request_id,
            prompt.text,
            prompt.token_ids,
            answer.each,
            prompt.params,
            prompt.lora_request,
            text,
        )
