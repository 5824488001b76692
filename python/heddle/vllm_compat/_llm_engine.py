"""In place of `vllm.LLMEngine`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heddle import _core
from heddle._answers import answer_of, raise_error
from heddle._several import Work
from heddle.vllm_compat._backend import Backend, Prompt, check_not_given
from heddle.vllm_compat._engine_args import EngineArgs
from heddle.vllm_compat._tokenizer import Tokenizer
from heddle.vllm_compat.inputs import PromptType
from heddle.vllm_compat.lora.request import LoRARequest
from heddle.vllm_compat.outputs import RequestOutput
from heddle.vllm_compat.sampling_params import SamplingParams


class LLMEngine:
    """Requests in, outputs out, step by step. heddle works in a thread of its own: `step` waits for
    its next news, and returns the outputs that are complete; parts of answers are not told."""

    def __init__(self, backend: Backend) -> None:
        """Use `from_engine_args`."""
        self._backend = backend
        self._queue = _core.EventQueue()
        self._works: dict[str, tuple[Prompt, Work]] = {}
        self._rows: dict[int, tuple[str, int]] = {}

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> LLMEngine:
        """Loads the model."""
        return cls(Backend(engine_args.model, engine_args.options))

    def add_request(
        self,
        request_id: str,
        prompt: PromptType,
        params: SamplingParams,
        arrival_time: float | None = None,
        lora_request: LoRARequest | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
    ) -> None:
        """Queues a prompt, which begins to run at once.

        Args:
            request_id: What its output has.
            prompt: A text, token ids, a `TextPrompt` or a `TokensPrompt`.
            params: How it is answered.
            arrival_time: Without effect: requests of one priority start in the order in which they
                came.
            lora_request: Its adapter; None: the base model.
            tokenization_kwargs: Must be left out.
            trace_headers: Must be left out.
            priority: Of the requests that wait, those of the lowest start first.

        Raises:
            ValueError: The id is in use; or as heddle.LLM.add_adapter.
        """
        check_not_given(
            "add_request",
            tokenization_kwargs=tokenization_kwargs,
            trace_headers=trace_headers,
        )
        if request_id in self._works:
            raise ValueError(f"request_id {request_id!r} is that of a request that is not finished")
        ready = self._backend.prompt(request_id, prompt, params, lora_request, priority)
        llm = self._backend.llm
        (work,) = llm._requests.prompts(
            ready.token_ids, ready.own_params, {"adapter": ready.adapter}
        ).works
        for row, id in enumerate(work.submit(llm._engine, self._queue)):
            self._rows[id] = (request_id, row)
        self._works[request_id] = (ready, work)

    def step(self) -> list[RequestOutput]:
        """Waits for news; the outputs that have become complete, maybe none.

        Raises:
            ValueError, NotImplementedError, MemoryError, RuntimeError: A request could not run or
                go on; the others are unaffected.
        """
        outputs = []
        event = self._queue.take() if self._rows else None
        while event is not None:
            if event[2] is not None and (output := self._end(event[0], event[2])):
                outputs.append(output)
            event = self._queue.take(0.0)
        return outputs

    def _end(self, id: int, completion: _core.Completion) -> RequestOutput | None:
        request_id, row = self._rows.pop(id)
        prompt, work = self._works[request_id]
        work.answers[row] = answer_of(completion, prompt.adapter)
        if len(work.answers) < len(work.choices):
            return None
        del self._works[request_id]
        answer = work.answer()
        for each in answer.each:
            raise_error(each, f"request {request_id!r}: ")
        return self._backend.output(prompt, answer)

    def abort_request(self, request_id: str | Sequence[str]) -> None:
        """Ends requests; their outputs have finish_reason "abort"."""
        aborted = [request_id] if isinstance(request_id, str) else request_id
        for id, (name, _) in self._rows.items():
            if name in aborted:
                self._backend.llm._engine.cancel(id)

    def has_unfinished_requests(self) -> bool:
        """Whether outputs are to come."""
        return bool(self._works)

    def get_num_unfinished_requests(self) -> int:
        """How many."""
        return len(self._works)

    def add_lora(self, lora_request: LoRARequest) -> bool:
        """Loads an adapter before a prompt names it."""
        self._backend.adapter_of(lora_request)
        return True

    def remove_lora(self, lora_id: int) -> bool:
        """Removes the adapter of this number; whether there was one."""
        return self._backend.remove(lora_id)

    def list_loras(self) -> set[int]:
        """The numbers of the adapters that are loaded."""
        return {request.lora_int_id for request in self._backend.lora_requests}

    def get_tokenizer(self, lora_request: LoRARequest | None = None) -> Tokenizer:
        """The tokenizer of the model, or of an adapter that has its own."""
        return Tokenizer(self._backend.llm, self._backend.adapter_of(lora_request))
