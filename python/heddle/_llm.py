"""`heddle.LLM`: a model with many adapters, from strings to answers."""

from __future__ import annotations

import os
import pathlib
import warnings
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from heddle import _core
from heddle._adapter_calls import AdapterCalls
from heddle._adapters import AdapterPaths, named_adapters
from heddle._answers import Answer, Answers, Stream
from heddle._defaults import default_model, default_values
from heddle._fields import Message
from heddle._hints import hinted
from heddle._options import ChatOptions, GenerateOptions, StreamChatOptions, StreamOptions, takes
from heddle._params import Params, SamplingParams
from heddle._request_maker import RequestMaker, StreamPrompt
from heddle._progress import Progress, is_watched
from heddle._several import Prompts
from heddle._text_calls import TextCalls
from heddle._values import ValueCalls

if TYPE_CHECKING:
    from typing_extensions import Unpack


class LLM(AdapterCalls, TextCalls, ValueCalls):
    """One model with many LoRA adapters, which answer concurrently in one batch.

    `chat` and `stream_chat` put prompts into the model's chat template; `generate` and `stream`
    take them as they are. Answers have the same bits as those of `heddle generate`: nothing that
    runs concurrently changes them.

    Many threads may call at once; their prompts share batches. The model works in a thread of its
    own, without the interpreter lock. `close` or the end of a `with` block frees the memory. A
    child after fork cannot use it.

    Args:
        model: A GGUF file, a folder that transformers saved, or a name in the local Hugging Face
            cache; None: $HEDDLE_MODEL, else the model that tools/fetch_model brings.
        adapters: Folders of LoRA adapters as PEFT saves them, by name; or one or several of them
            without names, which are called as their folders are.
        device: "cpu", "cuda" or "cuda:1"; None: the first GPU that the build runs on, or the CPU.
        max_batch: Prompts that run at once; others wait.
        num_threads: None: `heddle.num_threads()`.
        max_context: Tokens of one prompt with its answer; 0: what the model was made for.
        kv_memory: Bytes of the KV cache; 0: half of the device's memory that is available.
        prefix_cache: Whether prompts take keys and values of tokens that an earlier one began with
            (docs/prefix_cache.md). No bit of an answer depends on it.
        kv_host_memory: Bytes of host memory for pages that a GPU has no room for; None: a quarter of
            what is available, 0: none. On the CPU none.
        kv_cache_dir: A folder in which these keys and values outlive the process
            (docs/prefix_cache.md); None: none.
        kv_disk_memory: Bytes that its files may take; 0: a quarter of what the disk has free.
        kv_disk_salted: Whether pages of requests with a cache_salt go there, too.
        admit: When a waiting prompt starts: "now", where the pages of the prompt and a few more are
            free, so that the youngest may be parked later; "longest", where those of the longest
            answer are free, too.
        fairness: In which order waiting prompts start: "off", as they came; "adapter" or "tenant",
            so that adapters, or those that `tenant` of a prompt names, share the engine by
            `tenant_weight` and a burst of one does not hold up the others (docs/fair_shares.md).
        kv_type: Type of keys and values in the cache (docs/engine.md): on the CPU "f32" (empty),
            or "f16" or "bf16" in half the memory, or "fp8" in a little over a quarter; on a GPU the
            type of the model's activations (empty), or "fp8".
        weights: "q8_0" or another type packs the model when it is loaded (docs/models.md).
        activations: What products with the model's matrices take on the CPU: "f32" (empty), or
            "int8", which rounds them for matrices in block formats (docs/int8_activations.md).
        speculate: How steps draft tokens and verify several at a time, which changes no answer
            (docs/speculation.md): "off", "ngram", "suffix", "model", "heads" or "eagle3".
        draft_tokens: Tokens that a step drafts for a prompt, at most 15; 0: 8.
        draft_ngram: How many of the last tokens must have stood before, at least and at most; None:
            2 and 4.
        draft_memory: Bytes that recent answers may take with "suffix"; 0: 64 MiB. With "model" those
            of keys and values of the draft model; 0: a quarter of the memory that is available.
        draft_model: What drafts with "model", "heads" and "eagle3": a model, or a folder of heads.
        adapter_dir: A folder of adapters that are found by name when a prompt first names them
            (docs/adapters.md); None: only those of `adapters` exist.
        adapter_memory: Bytes of the weights of all adapters; those of `adapter_dir` make room for
            one another. 0: with `adapter_dir` a quarter of the memory that is available.
        adapter_host_memory: Bytes of their copies in host memory, on a GPU (docs/adapters.md).
        max_batch_adapters: Adapters that the prompts which run at once may use; 0: no bound.
        max_batch_adapter_bytes: Bytes of the weights of these adapters; 0: no bound.
        generation_config: Where temperature, top_k, top_p, min_p, repetition_penalty and max_tokens
            of prompts come from that do not give them: "auto", the model's own
            generation_config.json or GGUF file; "none"; or such a file or its folder
            (docs/models.md).
        page_size: Tokens in a page of the KV cache.
        prefill_chunk: Tokens of prompts that one step prefills, at most; 0: 512, on a GPU 2048.
        progress: Whether lines of progress are written to standard error; None: where that is a
            terminal or a notebook.

    Raises:
        ValueError: The model or an adapter does not exist, is damaged, or of a kind that heddle does not
            run; the sentence has file and field.
        MemoryError: No memory.
    """

    @hinted
    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        adapters: AdapterPaths = None,
        *,
        device: str | None = None,
        max_batch: int = 16,
        num_threads: int | None = None,
        max_context: int = 0,
        kv_memory: int = 0,
        prefix_cache: bool = True,
        kv_host_memory: int | None = None,
        kv_cache_dir: str | os.PathLike[str] | None = None,
        kv_disk_memory: int = 0,
        kv_disk_salted: bool = False,
        admit: str = "now",
        fairness: str = "off",
        kv_type: str = "",
        weights: str = "",
        activations: str = "",
        speculate: str = "off",
        draft_tokens: int = 0,
        draft_ngram: tuple[int, int] | None = None,
        draft_memory: int = 0,
        draft_model: str | os.PathLike[str] | None = None,
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
        named = named_adapters(adapters)
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
                prefix_cache,
                -1 if kv_host_memory is None else kv_host_memory,
                "" if kv_cache_dir is None else os.fspath(kv_cache_dir),
                kv_disk_memory,
                kv_disk_salted,
                admit,
                fairness,
                kv_type,
                weights,
                activations,
                "" if adapter_dir is None else os.fspath(adapter_dir),
                adapter_memory,
                adapter_host_memory,
                max_batch_adapters,
                max_batch_adapter_bytes,
                os.fspath(generation_config),
                speculate,
                draft_tokens,
                (0, 0) if draft_ngram is None else draft_ngram,
                draft_memory,
                "" if draft_model is None else os.fspath(draft_model),
                lambda done, total: self._on_load(bar, done, total),
            )
        # Also at the end of the process, which must not free the memory while the thread runs.
        self._close = weakref.finalize(self, self._engine.close)
        info = self._engine.model
        for key in info.unread_settings:
            shown = key if key.isprintable() else ascii(key)
            what = f"{info.settings_path}: {shown} is a setting that heddle does not know"
            warnings.warn(what, stacklevel=3)
        self._requests = RequestMaker(default_values(info.generation), progress)
        for what in info.warnings:
            warnings.warn(what, stacklevel=3)
        for name, folder in named.items():
            self.add_adapter(name, folder)

    def _on_load(self, bar: Progress, done: int, total: int) -> None:
        """While the model is read: bytes so far, and in all. What it raises ends the load."""
        bar.update(100 * done // max(total, 1), " %")

    def close(self) -> None:
        """Cancels what is unfinished and frees the model. What is called after it raises."""
        self._close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            names, path = self.adapters, self.model.path
        except (AttributeError, ValueError):  # it did not load; it is closed, or in a child after fork
            return "LLM(closed)"
        return f"LLM({path!r}, adapters={names!r}, device={self.device!r})"

    @property
    def model(self) -> _core.ModelInfo:
        """Facts of the model."""
        return self._engine.model

    @property
    def defaults(self) -> dict[str, float]:
        """What prompts have that do not give it: temperature, max_tokens and others by name."""
        return dict(self._requests.defaults)

    @property
    def device(self) -> str:
        """Where the model runs: "cpu" or "cuda:0"."""
        return self._engine.device

    @property
    def max_context(self) -> int:
        """Tokens of one prompt with its answer."""
        return self._engine.max_context

    def stats(self) -> _core.EngineStats:
        """What the model has done: tokens, steps, seconds, what the prefix cache had, parked prompts,
        drafts."""
        return self._engine.stats()

    @property
    def load(self) -> _core.EngineLoad:
        """As of now: prompts by state, pages of the KV cache, adapters in memory."""
        return self._engine.load()

    def reset_prefix_cache(self) -> None:
        """Forgets what the prefix cache has. Prompts that run keep what they took."""
        self._engine.reset_prefix_cache()

    def _warn_of_adapters(self, level: int) -> None:
        """Reports what is odd about adapters of `adapter_dir` that prompts have named; `level` is that of
        the user's call."""
        for what in self._engine.take_warnings():
            warnings.warn(what, stacklevel=level)

    @overload
    def generate(
        self,
        prompts: str | Sequence[int],
        sampling_params: Params = None,
        **options: Unpack[GenerateOptions],
    ) -> Answer: ...
    @overload
    def generate(
        self,
        prompts: list[str] | Sequence[Sequence[int]],
        sampling_params: Params = None,
        **options: Unpack[GenerateOptions],
    ) -> Answers: ...
    @takes(GenerateOptions)
    def generate(
        self,
        prompts: str | Sequence[int] | list[str] | Sequence[Sequence[int]],
        sampling_params: Params = None,
        **options: Unpack[GenerateOptions],
    ) -> Answer | Answers:
        """Goes on where the prompts end, without a chat template, as `heddle generate --raw` does.

        Args:
            prompts: A text or a list of token ids, which has one answer; or a list of these, which
                has a list of answers in the same order.
            sampling_params: Keywords of below as a value, or one for each prompt, which then draws
                with its seed as it is.
            adapters: Instead of `adapter`: adapters that act together, such as
                `[{"name": "sql", "scale": 0.5}, {"name": "slug"}]`, or a list of such lists, one
                for each prompt.
            merge: How such lists act, `{"method": "ties", "density": 0.5}`: merged as PEFT's
                `add_weighted_adapter` does (docs/adapter_merges.md); None: their deltas are added up.
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
        return self._run(self._requests.prompts(prompts, sampling_params, options))

    @overload
    def chat(
        self,
        conversations: str | Sequence[Message],
        sampling_params: Params = None,
        **options: Unpack[ChatOptions],
    ) -> Answer: ...
    @overload
    def chat(
        self,
        conversations: list[str] | Sequence[Sequence[Message]],
        sampling_params: Params = None,
        **options: Unpack[ChatOptions],
    ) -> Answers: ...
    @takes(ChatOptions)
    def chat(
        self,
        conversations: str | Sequence[Message] | list[str] | Sequence[Sequence[Message]],
        sampling_params: Params = None,
        **options: Unpack[ChatOptions],
    ) -> Answer | Answers:
        """Answers conversations through the model's chat template, as `heddle generate` does.

        Args:
            conversations: A text, which is one message of a user, or a list of messages, which has
                one answer; or a list of these, which has a list of answers in the same order.
            sampling_params: As in `generate`.
            adapters: As in `generate`, and so all that follow up to `progress`.
            merge: How such lists act.
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
            system: A system message before conversations that do not begin with one.
            tools: Functions that the template describes to the model, as OpenAI's API has them.
            documents: `{"title": ..., "text": ...}` for the template.
            chat_template_kwargs: Further variables of the template.
            add_generation_prompt: The text ends where the model's answer begins.
            **sampling: As in `generate`.

        Raises:
            ValueError: As `generate`; or the model has no template, or it refuses the conversation.
            NotImplementedError, MemoryError, RuntimeError: As `generate`.
        """
        return self._run(self._requests.conversations(conversations, sampling_params, options))

    @takes(StreamOptions)
    def stream(
        self,
        prompt: str | Sequence[int],
        sampling_params: SamplingParams | None = None,
        **options: Unpack[StreamOptions],
    ) -> Stream:
        """The answer to one prompt of `generate`, piece by piece, for `for` and `async for`.

        The arguments are those of `generate`. A prompt that cannot run raises what it raises
        there, when its stream is read.
        """
        return self._stream(self._requests.stream(prompt, sampling_params, options))

    @takes(StreamChatOptions)
    def stream_chat(
        self,
        conversation: str | Sequence[Message],
        sampling_params: SamplingParams | None = None,
        **options: Unpack[StreamChatOptions],
    ) -> Stream:
        """The answer to one conversation of `chat`, piece by piece, for `for` and `async for`.

        The arguments are those of `chat`. A conversation that cannot run raises what it raises
        there, when its stream is read.
        """
        return self._stream(self._requests.stream_chat(conversation, sampling_params, options))

    def _run(self, prompts: Prompts) -> Answer | Answers:
        try:
            return prompts.run(self._engine)
        finally:
            self._warn_of_adapters(5)

    def _stream(self, prompt: StreamPrompt) -> Stream:
        self._warn_of_adapters(5)
        return Stream(self._engine, prompt.request, prompt.choice, prompt.prompt, self)
