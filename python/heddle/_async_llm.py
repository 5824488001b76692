"""`heddle.AsyncLLM`: the calls of `heddle.LLM` for an event loop."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from heddle import _core
from heddle._answers import Answer, Answers, Stream
from heddle._fields import Message
from heddle._hints import check_keywords
from heddle._llm import LLM
from heddle._options import (
    CLASSIFY_DEFAULTS,
    EMBED_DEFAULTS,
    TEMPLATE_DEFAULTS,
    ChatOptions,
    ClassifyOptions,
    EmbedOptions,
    GenerateOptions,
    StreamChatOptions,
    StreamOptions,
    TemplateOptions,
    takes,
)
from heddle._params import Params, SamplingParams
from heddle._progress import Progress
from heddle._several import Prompts
from heddle._values import (
    Classes,
    ValuePrompts,
    classes_of,
    embeddings_of,
    run_values_async,
    texts_to_classify,
    texts_to_embed,
)

if TYPE_CHECKING:
    from asyncio import Future

    from typing_extensions import Unpack

P = ParamSpec("P")
R = TypeVar("R")


async def _in_thread(call: Callable[[], R]) -> R:
    """What waits for a step or reads files must not do so in the event loop."""
    import asyncio  # takes longer to import than all of heddle

    return await asyncio.get_running_loop().run_in_executor(None, call)


def _awaited(
    method: Callable[Concatenate[LLM, P], R],
) -> Callable[Concatenate[AsyncLLM, P], Coroutine[Any, Any, R]]:
    """A method of LLM as one of AsyncLLM."""

    async def call(self: AsyncLLM, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await _in_thread(functools.partial(method, self._llm, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def _takes_those_of(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """The arguments of another method, for one that passes them on."""
    signature = inspect.signature(method)
    names = list(signature.parameters)[1:]

    def show(own: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        def checked(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
            check_keywords("AsyncLLM", kwargs, names)
            own(self, *args, **kwargs)

        functools.update_wrapper(checked, own)
        checked.__signature__ = signature  # type: ignore[attr-defined]
        return checked

    return show


class _Loading(LLM):
    """An LLM whose load ends where it is no longer wanted."""

    def __init__(self, is_wanted: Callable[[], bool], *args: Any, **kwargs: Any) -> None:
        self._is_wanted = is_wanted
        super().__init__(*args, **kwargs)

    def _on_load(self, bar: Progress, done: int, total: int) -> None:
        if not self._is_wanted():
            raise InterruptedError("the load was cancelled")
        super()._on_load(bar, done, total)


class AsyncLLM:
    """One model with many LoRA adapters, for programs with an event loop.

        async with heddle.AsyncLLM(adapters=["adapters/sql"]) as llm:
            answer = await llm.chat("SQL: all cars", adapter="sql")
            async for piece in llm.stream_chat("What is a loom?"):
                print(piece, end="")

    It has the calls of `heddle.LLM`, and each that waits there is awaited here, `llm.adapters` and
    `llm.load` too. The model is loaded by `async with` or by `llm = await heddle.AsyncLLM(...)`,
    which ends with `await llm.close()`. The loop goes on meanwhile: answers are waited for in the
    loop itself, and what loads, reads files or waits for a step runs in another thread. A task that
    is cancelled ends its prompts before the next step.

    Args: As `heddle.LLM`, which also says what they mean.
    """

    @_takes_those_of(LLM.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._load_llm = functools.partial(_Loading, self._is_wanted, *args, **kwargs)
        self._wanted = True
        self._loading: Future[_Loading] | None = None
        self._loaded: LLM | None = None

    def _is_wanted(self) -> bool:
        return self._wanted

    async def _enter(self) -> AsyncLLM:
        import asyncio

        if self._loaded is not None:
            return self
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self._load_llm)
        try:
            self._loaded = await asyncio.shield(self._loading)
        except asyncio.CancelledError:
            self._wanted = False
            raise
        return self

    def __await__(self) -> Generator[Any, None, AsyncLLM]:
        return self._enter().__await__()

    async def __aenter__(self) -> AsyncLLM:
        return await self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @property
    def _llm(self) -> LLM:
        if self._loaded is None:
            raise RuntimeError(
                "the model is not loaded: enter `async with heddle.AsyncLLM(...) as llm`, or"
                " `llm = await heddle.AsyncLLM(...)`"
            )
        return self._loaded

    async def close(self) -> None:
        """Cancels what is unfinished and frees the model. What is called after it raises."""
        self._wanted = False
        if self._loaded is not None:
            await _in_thread(self._loaded.close)

    def __repr__(self) -> str:
        return "AsyncLLM(not loaded)" if self._loaded is None else f"Async{self._loaded!r}"

    @property
    def model(self) -> _core.ModelInfo:
        """Facts of the model."""
        return self._llm.model

    @property
    def defaults(self) -> dict[str, float]:
        """What prompts have that do not give it: temperature, max_tokens and others by name."""
        return self._llm.defaults

    @property
    def device(self) -> str:
        """Where the model runs: "cpu" or "cuda:0"."""
        return self._llm.device

    @property
    def max_context(self) -> int:
        """Tokens of one prompt with its answer."""
        return self._llm.max_context

    @property
    def adapters(self) -> Coroutine[Any, Any, list[str]]:
        """The names of the adapters, as in `LLM`: `await llm.adapters`."""
        return _in_thread(lambda: self._llm.adapters)

    @property
    def load(self) -> Coroutine[Any, Any, _core.EngineLoad]:
        """As of now, as in `LLM`: `await llm.load`."""
        return _in_thread(lambda: self._llm.load)

    stats = _awaited(LLM.stats)
    reset_prefix_cache = _awaited(LLM.reset_prefix_cache)
    add_adapter = _awaited(LLM.add_adapter)
    load_adapter = _awaited(LLM.load_adapter)
    remove_adapter = _awaited(LLM.remove_adapter)
    adapter_receipt = _awaited(LLM.adapter_receipt)
    keep_versions = _awaited(LLM.keep_versions)
    roll_back_adapter = _awaited(LLM.roll_back_adapter)
    tokenize = _awaited(LLM.tokenize)
    detokenize = _awaited(LLM.detokenize)

    @overload
    async def apply_chat_template(
        self,
        conversation: str | Sequence[Message],
        *,
        tokenize: Literal[True] = True,
        **options: Unpack[TemplateOptions],
    ) -> list[int]: ...
    @overload
    async def apply_chat_template(
        self,
        conversation: str | Sequence[Message],
        *,
        tokenize: Literal[False],
        **options: Unpack[TemplateOptions],
    ) -> str: ...
    @takes(TemplateOptions, TEMPLATE_DEFAULTS)
    async def apply_chat_template(
        self,
        conversation: str | Sequence[Message],
        *,
        tokenize: bool = True,
        **options: Unpack[TemplateOptions],
    ) -> list[int] | str:
        """What the chat template makes of a conversation, as `LLM.apply_chat_template`."""
        call: Callable[..., list[int] | str] = self._llm.apply_chat_template
        return await _in_thread(functools.partial(call, conversation, tokenize=tokenize, **options))

    @overload
    async def generate(
        self,
        prompts: str | Sequence[int],
        sampling_params: Params = None,
        **options: Unpack[GenerateOptions],
    ) -> Answer: ...
    @overload
    async def generate(
        self,
        prompts: list[str] | Sequence[Sequence[int]],
        sampling_params: Params = None,
        **options: Unpack[GenerateOptions],
    ) -> Answers: ...
    @takes(GenerateOptions)
    async def generate(
        self,
        prompts: str | Sequence[int] | list[str] | Sequence[Sequence[int]],
        sampling_params: Params = None,
        **options: Unpack[GenerateOptions],
    ) -> Answer | Answers:
        """Goes on where the prompts end, as `LLM.generate`, which has the arguments."""
        return await self._run(self._llm._requests.prompts(prompts, sampling_params, options))

    @overload
    async def chat(
        self,
        conversations: str | Sequence[Message],
        sampling_params: Params = None,
        **options: Unpack[ChatOptions],
    ) -> Answer: ...
    @overload
    async def chat(
        self,
        conversations: list[str] | Sequence[Sequence[Message]],
        sampling_params: Params = None,
        **options: Unpack[ChatOptions],
    ) -> Answers: ...
    @takes(ChatOptions)
    async def chat(
        self,
        conversations: str | Sequence[Message] | list[str] | Sequence[Sequence[Message]],
        sampling_params: Params = None,
        **options: Unpack[ChatOptions],
    ) -> Answer | Answers:
        """Answers conversations, as `LLM.chat`, which has the arguments."""
        return await self._run(
            self._llm._requests.conversations(conversations, sampling_params, options)
        )

    @takes(StreamOptions)
    def stream(
        self,
        prompt: str | Sequence[int],
        sampling_params: SamplingParams | None = None,
        **options: Unpack[StreamOptions],
    ) -> Stream:
        """The answer to one prompt, piece by piece, for `async for`, as `LLM.stream`."""
        return self._llm._stream(self._llm._requests.stream(prompt, sampling_params, options))

    @takes(StreamChatOptions)
    def stream_chat(
        self,
        conversation: str | Sequence[Message],
        sampling_params: SamplingParams | None = None,
        **options: Unpack[StreamChatOptions],
    ) -> Stream:
        """The answer to one conversation, piece by piece, for `async for`, as `LLM.stream_chat`."""
        return self._llm._stream(
            self._llm._requests.stream_chat(conversation, sampling_params, options)
        )

    @overload
    async def embed(self, prompts: str | Sequence[int], **options: Unpack[EmbedOptions]) -> list[float]: ...
    @overload
    async def embed(
        self, prompts: list[str] | Sequence[Sequence[int]], **options: Unpack[EmbedOptions]
    ) -> list[list[float]]: ...
    @takes(EmbedOptions, EMBED_DEFAULTS)
    async def embed(
        self,
        prompts: str | Sequence[int] | list[str] | Sequence[Sequence[int]],
        **options: Unpack[EmbedOptions],
    ) -> list[float] | list[list[float]]:
        """The embeddings of texts, as `LLM.embed`, which has the arguments."""
        given = texts_to_embed(prompts, options)
        return embeddings_of(await self._values(given), given.is_one)

    @overload
    async def classify(self, prompts: str | Sequence[int], **options: Unpack[ClassifyOptions]) -> Classes: ...
    @overload
    async def classify(
        self, prompts: list[str] | Sequence[Sequence[int]], **options: Unpack[ClassifyOptions]
    ) -> list[Classes]: ...
    @takes(ClassifyOptions, CLASSIFY_DEFAULTS)
    async def classify(
        self,
        prompts: str | Sequence[int] | list[str] | Sequence[Sequence[int]],
        **options: Unpack[ClassifyOptions],
    ) -> Classes | list[Classes]:
        """The classes of texts, as `LLM.classify`, which has the arguments."""
        given = texts_to_classify(prompts, options)
        return classes_of(await self._values(given), given.is_one)

    async def _run(self, prompts: Prompts) -> Answer | Answers:
        try:
            return await prompts.run_async(self._llm._engine)
        finally:
            self._llm._warn_of_adapters(4)

    async def _values(self, prompts: ValuePrompts) -> list[_core.Completion]:
        try:
            return await run_values_async(self._llm._engine, prompts)
        finally:
            self._llm._warn_of_adapters(4)
