"""`heddle.LLM`: a model with many adapters, from strings to answers."""

from __future__ import annotations

import os
import pathlib
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from heddle import _core
from heddle._adapters import (
    BASE, AdapterList, AdapterLists, Adapters, Choice, check_name, choices_of, name_of, set_adapters,
)
from heddle._answers import Answer, Stream
from heddle._defaults import default_model, default_values
from heddle._fields import (
    Message, fields_of_conversation, fields_of_prompt, fields_of_template, wrapped_seed,
)
from heddle._progress import Progress, is_watched
from heddle._sampling import SEVERAL, Sampling, set_options
from heddle._several import Work, run_all, work_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _is_number(value: object) -> bool:
    return hasattr(value, "__index__")


def _list_of(stop: str | Sequence[str]) -> list[str]:
    return [stop] if isinstance(stop, str) else list(stop)


class LLM:
    """One model with many LoRA adapters, which answer side by side in one batch.

    `chat` and `stream_chat` put prompts into the model's chat template; `generate` and `stream`
    take them as they are. Answers have the same bits as those of `heddle generate`: nothing that
    runs beside a prompt changes them.

    Many threads may call at once; their prompts share batches. The model works in a thread of its
    own, without the interpreter lock. `close` or the end of a `with` block frees the memory. A
    child after fork cannot use it.

    Args:
        model: A GGUF file, a folder that transformers saved, or a name in the local Hugging Face
            cache; None: $HEDDLE_MODEL, else the model that tools/fetch_model brings.
        adapters: Folders of LoRA adapters as PEFT saves them, by name.
        device: "cpu", "cuda" or "cuda:1"; None: the first GPU that the build runs on, or the CPU.
        max_batch: Prompts that run at once; others wait.
        num_threads: None: `heddle.num_threads()`.
        max_context: Tokens of one prompt with its answer; 0: what the model was made for.
        kv_memory: Bytes of the KV cache; 0: half of the device's memory that is available.
        kv_type: Type of keys and values in the cache (docs/engine.md): on the CPU "f32" (empty),
            or "f16" or "bf16" in half the memory; on a GPU the type of the model's activations.
        weights: "q8_0" or another type packs the model when it is loaded (docs/models.md).
        adapter_dir: A folder of adapters that are found by name when a prompt first names them
            (docs/adapters.md); None: there are those of `adapters` alone.
        adapter_memory: Bytes of the weights of all adapters; those of `adapter_dir` make room for
            one another. 0: with `adapter_dir` a quarter of the memory that is available.
        adapter_host_memory: The same of their copies in host memory, on a GPU (docs/adapters.md).
        max_batch_adapters: Adapters that the prompts which run at once may use; 0: no bound.
        max_batch_adapter_bytes: Bytes of the weights of these adapters; 0: no bound.
        generation_config: Where temperature, top_k, top_p, min_p, repetition_penalty and max_tokens
            of prompts come from that do not give them: "auto", the model's own
            generation_config.json or GGUF file; "none"; or such a file or its folder
            (docs/models.md).
        page_size: Tokens in a page of the KV cache.
        prefill_chunk: Tokens of prompts that one step takes in, at most; 0: 512, on a GPU 2048.
        progress: Whether lines of progress are written to standard error; None: where that is a
            terminal or a notebook.

    Raises:
        ValueError: The model or an adapter is not there, damaged, or of a kind that heddle does not
            run; the sentence has file and field.
        MemoryError: No memory.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        adapters: Mapping[str, str | os.PathLike[str]] | None = None,
        *,
        device: str | None = None,
        max_batch: int = 16,
        num_threads: int | None = None,
        max_context: int = 0,
        kv_memory: int = 0,
        kv_type: str = "",
        weights: str = "",
        adapter_dir: str | os.PathLike[str] | None = None,
        adapter_memory: int = 0,
        adapter_host_memory: int = 0,
        max_batch_adapters: int = 0,
        max_batch_adapter_bytes: int = 0,
        generation_config: str | os.PathLike[str] = "auto",
        page_size: int = 16,
        prefill_chunk: int = 0,
        progress: bool | None = None,
    ) -> None:
        if not os.fspath(generation_config):
            raise ValueError('generation_config is empty, expected "auto", "none" or a file')
        self._progress = progress
        self._adapter_dir = None if adapter_dir is None else pathlib.Path(adapter_dir)
        path = default_model() if model is None else os.fspath(model)
        threads = _core.num_threads() if num_threads is None else num_threads
        with Progress("loading", 100, is_watched() if progress is None else progress) as bar:
            self._engine = _core.Engine(
                path,
                device or "",
                max_batch,
                threads,
                page_size,
                prefill_chunk,
                max_context,
                kv_memory,
                kv_type,
                weights,
                "" if adapter_dir is None else os.fspath(adapter_dir),
                adapter_memory,
                adapter_host_memory,
                max_batch_adapters,
                max_batch_adapter_bytes,
                os.fspath(generation_config),
                lambda done, total: bar.update(100 * done // max(total, 1), " %"),
            )
        # Also at the end of the process, which must not take the memory from under the thread.
        self._close = weakref.finalize(self, self._engine.close)
        info = self._engine.model
        for key in info.unread_settings:
            shown = key if key.isprintable() else ascii(key)
            what = f"{info.settings_path}: {shown} is a setting that heddle does not know"
            warnings.warn(what, stacklevel=2)
        self._defaults = default_values(info.generation)
        for what in info.warnings:
            warnings.warn(what, stacklevel=2)
        for name, folder in (adapters or {}).items():
            self.add_adapter(name, folder)

    def close(self) -> None:
        """Cancels what is unfinished and frees the model. What is called after it raises."""
        self._close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def model(self) -> _core.ModelInfo:
        """Facts of the model."""
        return self._engine.model

    @property
    def defaults(self) -> dict[str, float]:
        """What prompts have that do not give it: temperature, max_tokens and others by name."""
        return dict(self._defaults)

    @property
    def device(self) -> str:
        """Where the model runs: "cpu" or "cuda:0"."""
        return self._engine.device

    @property
    def max_context(self) -> int:
        """Tokens of one prompt with its answer."""
        return self._engine.max_context

    @property
    def adapters(self) -> list[str]:
        """The names of the adapters; of those of `adapter_dir`, the ones that are in use or in memory."""
        return self._engine.adapter_names()

    def add_adapter(
        self, name: str, folder: str | os.PathLike[str], *, replace: bool = False
    ) -> None:
        """Loads an adapter; prompts that run wait for it.

        Args:
            name: What prompts call it.
            folder: As PEFT saves it, or a GGUF file of llama.cpp.
            replace: Where the name is taken, the new adapter takes its place for all prompts that
                follow; those before end with the weights that they began with.

        Raises:
            ValueError: It does not fit the model, or the name is taken. Nothing has changed then.
        """
        path = os.fspath(folder)
        if name == BASE:
            raise ValueError(f"{path}: the name {name} means the model without an adapter")
        if self._adapter_dir is not None and not replace:
            check_name(name, pathlib.Path(path), self._adapter_dir)
        for what in self._engine.add_adapter(name, path, replace):
            warnings.warn(what, stacklevel=2)

    def _warn_of_adapters(self, level: int) -> None:
        """What is odd about adapters of `adapter_dir` that prompts have named; `level` is that of
        the user's call."""
        for what in self._engine.take_warnings():
            warnings.warn(what, stacklevel=level)

    def remove_adapter(self, name: str) -> None:
        """Takes an adapter out; prompts that were given before end with it.

        Raises:
            ValueError: There is none of that name.
        """
        if not self._engine.remove_adapter(name):
            raise ValueError(f'unknown adapter "{name}"')

    def tokenize(self, prompt: str) -> list[int]:
        """The token ids of a text as `generate` takes it."""
        return self._engine.tokenize(self._request({"text": prompt}, None, 0, stop=[], ignore_end=False))

    @overload
    def generate(
        self,
        prompts: str | Sequence[int],
        *,
        adapters: AdapterLists = None,
        adapter: Adapters = None, max_tokens: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, seed: int = 0,
        stop: str | Sequence[str] = (), ignore_end: bool = False,
        keep_going: bool = False, progress: bool | None = None,
        **sampling: Unpack[Sampling],
    ) -> Answer: ...
    @overload
    def generate(
        self,
        prompts: list[str] | Sequence[Sequence[int]],
        *,
        adapters: AdapterLists = None,
        adapter: Adapters = None, max_tokens: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, seed: int = 0,
        stop: str | Sequence[str] = (), ignore_end: bool = False,
        keep_going: bool = False, progress: bool | None = None,
        **sampling: Unpack[Sampling],
    ) -> list[Answer]: ...
    def generate(
        self,
        prompts: str | Sequence[int] | list[str] | Sequence[Sequence[int]],
        *,
        adapters: AdapterLists = None,
        adapter: Adapters = None, max_tokens: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, seed: int = 0,
        stop: str | Sequence[str] = (), ignore_end: bool = False,
        keep_going: bool = False, progress: bool | None = None,
        **sampling: Unpack[Sampling],
    ) -> Answer | list[Answer]:
        """Goes on where the prompts end, without a chat template, as `heddle generate --raw` does.

        Args:
            prompts: A text or a list of token ids, which has one answer; or a list of these, which
                has a list of answers in the same order.
            adapters: Instead of `adapter`: adapters that act together, such as
                `[{"name": "sql", "scale": 0.5}, {"name": "slug"}]`, or a list of such lists, one
                for each prompt.
            adapter: The adapter of all prompts, or a list with one for each; None: the base model.
            max_tokens: Tokens of an answer; the context's end is one too. None: as the model's
                files have it, else 256. So it is with the four that follow.
            temperature: 0, which is the default: the most likely token.
            top_k: The most likely tokens alone; 0: all.
            top_p: The smallest set of tokens of this probability; 1: all.
            min_p: Tokens of at least this share of the largest probability; 0: all.
            seed: Fixes the draws; prompt i of a list draws with `seed + i`.
            stop: The text ends before the first of these.
            ignore_end: The end token does not end an answer.
            keep_going: A prompt that cannot run has an answer with its error; else it raises.
            progress: As in the class; None: for lists of several prompts.
            **sampling: Penalties, biases and further ends of an answer: `heddle.Sampling`.

        Raises:
            ValueError: A prompt cannot run: an unknown adapter, a value out of its range, more
                tokens than the context holds. The others are cancelled, as they are by ctrl-C.
            NotImplementedError, MemoryError, RuntimeError: By its `Answer.error_code`.
        """
        is_one = isinstance(prompts, str) or (len(prompts) > 0 and _is_number(prompts[0]))
        fields = [fields_of_prompt(p) for p in ([prompts] if is_one else prompts)]
        return self._answers(
            self._works(
                fields, choices_of(adapter, adapters, len(fields)), seed, max_tokens=max_tokens,
                temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                stop=_list_of(stop), ignore_end=ignore_end,
                sampling=sampling,
            ),
            is_one, keep_going, progress,
        )

    @overload
    def chat(
        self,
        conversations: str | Sequence[Message],
        *,
        adapters: AdapterLists = None,
        adapter: Adapters = None, max_tokens: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, seed: int = 0,
        stop: str | Sequence[str] = (), ignore_end: bool = False,
        keep_going: bool = False, progress: bool | None = None,
        system: str | None = None, tools: Sequence[Message] | None = None,
        documents: Sequence[Message] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        **sampling: Unpack[Sampling],
    ) -> Answer: ...
    @overload
    def chat(
        self,
        conversations: list[str] | Sequence[Sequence[Message]],
        *,
        adapters: AdapterLists = None,
        adapter: Adapters = None, max_tokens: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, seed: int = 0,
        stop: str | Sequence[str] = (), ignore_end: bool = False,
        keep_going: bool = False, progress: bool | None = None,
        system: str | None = None, tools: Sequence[Message] | None = None,
        documents: Sequence[Message] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        **sampling: Unpack[Sampling],
    ) -> list[Answer]: ...
    def chat(
        self,
        conversations: str | Sequence[Message] | list[str] | Sequence[Sequence[Message]],
        *,
        adapters: AdapterLists = None,
        adapter: Adapters = None, max_tokens: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, seed: int = 0,
        stop: str | Sequence[str] = (), ignore_end: bool = False,
        keep_going: bool = False, progress: bool | None = None,
        system: str | None = None, tools: Sequence[Message] | None = None,
        documents: Sequence[Message] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        **sampling: Unpack[Sampling],
    ) -> Answer | list[Answer]:
        """Answers conversations through the model's chat template, as `heddle generate` does.

        Args:
            conversations: A text, which is one message of a user, or a list of messages, which has
                one answer; or a list of these, which has a list of answers in the same order.
            adapters: As in `generate`, and so all that follow up to `progress`.
            adapter: The adapter of all conversations, or a list with one for each.
            max_tokens: Tokens of an answer.
            temperature: 0: the most likely token.
            top_k: 0: all tokens.
            top_p: 1: all tokens.
            min_p: 0: all tokens.
            seed: Conversation i of a list draws with `seed + i`.
            stop: The text ends before the first of these.
            ignore_end: The end token does not end an answer.
            keep_going: A conversation that cannot run has an answer with its error.
            progress: Whether a line of progress is written.
            system: A system message in front of conversations that do not begin with one.
            tools: Functions that the template tells the model of, as OpenAI's API has them.
            documents: `{"title": ..., "text": ...}` for the template.
            chat_template_kwargs: Further variables of the template.
            add_generation_prompt: The text ends where the model's answer begins.
            **sampling: As in `generate`.

        Raises:
            ValueError: As `generate`; or the model has no template, or it refuses the conversation.
            NotImplementedError, MemoryError, RuntimeError: As `generate`.
        """
        is_one = isinstance(conversations, str) or (
            len(conversations) > 0 and isinstance(conversations[0], Mapping)
        )
        template = fields_of_template(tools, documents, chat_template_kwargs, add_generation_prompt)
        each = [conversations] if is_one else conversations
        fields = [fields_of_conversation(c, system) | template for c in each]
        return self._answers(
            self._works(
                fields, choices_of(adapter, adapters, len(fields)), seed, max_tokens=max_tokens,
                temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                stop=_list_of(stop), ignore_end=ignore_end,
                sampling=sampling,
            ),
            is_one, keep_going, progress,
        )

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        adapters: AdapterList | None = None,
        adapter: str | None = None, max_tokens: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, seed: int = 0,
        stop: str | Sequence[str] = (), ignore_end: bool = False, **sampling: Unpack[Sampling],
    ) -> Stream:
        """The answer to one prompt of `generate`, piece by piece, for `for` and `async for`.

        The arguments are those of `generate`. A prompt that cannot run raises what it raises
        there, when its stream is read.
        """
        choice = choices_of(adapter, adapters, 1)[0]
        request = self._request(
            fields_of_prompt(prompt), choice, seed, max_tokens=max_tokens, temperature=temperature,
            top_k=top_k, top_p=top_p, min_p=min_p, stop=_list_of(stop), ignore_end=ignore_end,
            sampling=sampling,
        )
        self._warn_of_adapters(3)
        return Stream(self._engine, request, choice, self)

    def stream_chat(
        self,
        conversation: str | Sequence[Message],
        *,
        adapters: AdapterList | None = None,
        adapter: str | None = None, max_tokens: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, seed: int = 0,
        stop: str | Sequence[str] = (), ignore_end: bool = False,
        system: str | None = None, tools: Sequence[Message] | None = None,
        documents: Sequence[Message] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        **sampling: Unpack[Sampling],
    ) -> Stream:
        """The answer to one conversation of `chat`, piece by piece, for `for` and `async for`.

        The arguments are those of `chat`. A conversation that cannot run raises what it raises
        there, when its stream is read.
        """
        template = fields_of_template(tools, documents, chat_template_kwargs, add_generation_prompt)
        choice = choices_of(adapter, adapters, 1)[0]
        request = self._request(
            fields_of_conversation(conversation, system) | template, choice, seed, max_tokens=max_tokens,
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, stop=_list_of(stop),
            ignore_end=ignore_end, sampling=sampling,
        )
        self._warn_of_adapters(3)
        return Stream(self._engine, request, choice, self)

    def _request(
        self,
        fields: dict[str, Any],
        choice: Choice,
        seed: int,
        sampling: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> _core.Request:
        name = name_of(choice) or ""
        own = {key: value for key, value in options.items() if value is not None}
        named = {"adapter": name, "seed": wrapped_seed(seed)}
        request = _core.Request()
        for key, value in {**fields, **named, **self._defaults, **own}.items():
            setattr(request, key, value)
        set_adapters(request, choice)
        set_options(request, sampling or {})
        return request

    def _works(
        self,
        fields: list[dict[str, Any]],
        choices: list[Choice],
        seed: int,
        sampling: Mapping[str, Any],
        **options: Any,
    ) -> list[Work]:
        """A request for each prompt, with its adapters."""
        rest = {name: value for name, value in sampling.items() if name not in SEVERAL}
        return [
            work_of(self._request(field, choice, seed + i, rest, **options), choice, sampling)
            for i, (field, choice) in enumerate(zip(fields, choices))
        ]

    def _answers(
        self, works: list[Work], is_one: bool, keep_going: bool, progress: bool | None
    ) -> Answer | list[Answer]:
        """Runs all requests to their ends."""
        if progress is None:
            progress = self._progress
        shown = (len(works) > 1 and is_watched()) if progress is None else progress
        try:
            return run_all(self._engine, works, is_one, keep_going, shown)
        finally:
            self._warn_of_adapters(4)
