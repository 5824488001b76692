"""In place of `vllm.LLM`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from heddle._hints import hinted
from heddle.vllm_compat._backend import Backend, Prompt, check_not_given
from heddle.vllm_compat._llm_engine import LLMEngine
from heddle.vllm_compat._tokenizer import Tokenizer
from heddle.vllm_compat.inputs import PromptType, is_one
from heddle.vllm_compat.lora.request import LoRARequest
from heddle.vllm_compat.outputs import RequestOutput
from heddle.vllm_compat.sampling_params import SamplingParams


def _each(name: str, given: Any, count: int) -> list[Any]:
    """One for each prompt of what is given for all, or for each."""
    if not isinstance(given, Sequence):
        return [given] * count
    if len(given) != count:
        raise ValueError(f"{name} has {len(given)} entries, expected one or {count}")
    return list(given)


class LLM:
    """A model with the calls of vLLM's class, run by heddle.

    Args:
        model: As that of heddle.LLM: a folder, a GGUF file or a name in the local Hugging Face cache.
        **options: Those of vLLM's engine, and of heddle.LLM (docs/compat/vllm_python.md).

    Raises:
        NotImplementedError: An option that heddle does not have; the sentence says what to use.
        TypeError: There is no such option.
        ValueError, MemoryError: As heddle.LLM.
    """

    def __init__(self, model: str, **options: Any) -> None:
        self._backend = Backend(model, options)
        self._ids = itertools.count()
        self.llm_engine = LLMEngine(self._backend)

    def __repr__(self) -> str:
        return f"vllm_compat.{self._backend.llm!r}"

    @hinted
    def generate(
        self,
        prompts: PromptType | Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
        priority: Sequence[int] | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Goes on where the prompts end; an output for each, in the same order, for one prompt, too.

        Args:
            prompts: A text, token ids, a `TextPrompt` or `TokensPrompt`, or a list of these.
            sampling_params: Of all prompts, or one for each; None: as the model's files say.
            use_tqdm: Whether a line of progress may be shown.
            lora_request: The adapter of all prompts, or one for each; None: the base model.
            priority: One for each prompt: of those that wait, the lowest start first.
            tokenization_kwargs: Must be left out.

        Raises:
            ValueError, NotImplementedError, MemoryError, RuntimeError: As heddle.LLM.generate.
        """
        check_not_given("generate", tokenization_kwargs=tokenization_kwargs)
        each: list[Any] = [prompts] if is_one(prompts) else list(prompts)
        priorities = _each("priority", 0 if priority is None else priority, len(each))
        params = _each("sampling_params", sampling_params, len(each))
        loras = _each("lora_request", lora_request, len(each))
        ready = [
            self._backend.prompt(str(next(self._ids)), prompt, params[i], loras[i], priorities[i])
            for i, prompt in enumerate(each)
        ]
        return self._run(ready, use_tqdm)

    @hinted
    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answers a conversation or a list of them through the model's chat template.

        Args:
            messages: A list of messages, or a list of such lists.
            sampling_params: As in `generate`.
            use_tqdm: As in `generate`.
            lora_request: As in `generate`.
            chat_template: Must be left out: the template is the model's or the adapter's.
            chat_template_content_format: Must be left out: the template shows which it reads.
            add_generation_prompt: The prompt ends where the answer begins.
            continue_final_message: The answer goes on with the last message.
            tools: Functions that the template describes to the model.
            chat_template_kwargs: Further variables of the template.
            tokenization_kwargs: Must be left out.
            mm_processor_kwargs: Must be left out.

        Raises:
            ValueError, NotImplementedError, MemoryError, RuntimeError: As heddle.LLM.chat.
        """
        check_not_given(
            "chat",
            chat_template=chat_template,
            chat_template_content_format=chat_template_content_format != "auto",
            tokenization_kwargs=tokenization_kwargs,
            mm_processor_kwargs=mm_processor_kwargs,
        )
        is_single = len(messages) > 0 and isinstance(messages[0], Mapping)
        each: list[Any] = [messages] if is_single else list(messages)
        params = _each("sampling_params", sampling_params, len(each))
        loras = _each("lora_request", lora_request, len(each))
        template = {
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "tools": tools,
            "chat_template_kwargs": chat_template_kwargs,
        }
        ready = [
            self._backend.conversation(str(next(self._ids)), own, params[i], loras[i], template)
            for i, own in enumerate(each)
        ]
        return self._run(ready, use_tqdm)

    def _run(self, prompts: Sequence[Prompt], use_tqdm: bool) -> list[RequestOutput]:
        answers = self._backend.llm.generate(
            [prompt.token_ids for prompt in prompts],
            [prompt.own_params for prompt in prompts],
            adapter=[prompt.adapter for prompt in prompts],
            progress=None if use_tqdm else False,
        )
        return [self._backend.output(*pair) for pair in zip(prompts, answers)]

    def get_tokenizer(self, lora_request: LoRARequest | None = None) -> Tokenizer:
        """The tokenizer of the model, or of an adapter that has its own."""
        return Tokenizer(self._backend.llm, self._backend.adapter_of(lora_request))

    def get_default_sampling_params(self) -> SamplingParams:
        """What prompts have without `sampling_params`."""
        return self._backend.default_params()

    def reset_prefix_cache(self) -> bool:
        """Forgets what the prefix cache has."""
        self._backend.llm.reset_prefix_cache()
        return True
