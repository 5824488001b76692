"""heddle.AsyncLLM: the answers of heddle.LLM, an event loop that goes on, tasks that are cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from llm_cases import ADAPTERS, OPPOSITE, SLUG

import heddle

R = TypeVar("R")
LONG: dict[str, Any] = {"ignore_end": True, "max_tokens": 4000}  # minutes, unless it is cancelled


def with_llm(model: str, use: Callable[[heddle.AsyncLLM], Awaitable[R]], **options: Any) -> R:
    """What `use` returns of a model that is loaded in an event loop."""

    async def run() -> R:
        async with heddle.AsyncLLM(model, ADAPTERS, **{"max_batch": 4, "num_threads": 2, **options}) as llm:
            return await use(llm)

    return asyncio.run(run())


def test_the_calls_are_those_of_llm(llm: heddle.LLM, model: str) -> None:
    conversation = [{"role": "user", "content": "Hi"}]
    params = heddle.SamplingParams(max_tokens=4, temperature=1.0, seed=3)

    async def use(own: heddle.AsyncLLM) -> None:
        assert await own.chat(OPPOSITE[0], adapter="opposite") == llm.chat(OPPOSITE[0], adapter="opposite")
        prompts = [OPPOSITE[0], SLUG[0], "Hi"]
        names = ["opposite", "slug", None]
        assert await own.chat(prompts, params, adapter=names, n=2) == llm.chat(prompts, params, adapter=names, n=2)
        assert await own.generate(["a", "b"], params) == llm.generate(["a", "b"], params)
        assert [piece async for piece in own.stream("a", params)] != [] and await own.generate([]) == []
        async with own.stream_chat(SLUG[0], adapter="slug") as stream:
            assert "".join([piece async for piece in stream]) == "the-quick-brown-river"
        assert await own.embed(["a", "b"]) == llm.embed(["a", "b"]) and await own.embed("a") == llm.embed("a")
        ids = await own.apply_chat_template(conversation)
        assert ids == llm.apply_chat_template(conversation) and await own.detokenize(ids) == await own.apply_chat_template(conversation, tokenize=False)
        assert await own.tokenize("Hi") == llm.tokenize("Hi")
        assert await own.adapters == llm.adapters == ["opposite", "slug", "sql"]
        await own.add_adapter("again", ADAPTERS["slug"])
        receipt = await own.adapter_receipt("again", norms=False)
        assert receipt is not None and receipt.digest == llm.adapter_receipt("slug", norms=False).digest  # type: ignore[union-attr]
        await own.remove_adapter("again")
        await own.reset_prefix_cache()
        assert (await own.stats()).generated_tokens > 0 and (await own.load).num_running == 0
        assert (own.device, own.defaults, own.max_context) == (llm.device, llm.defaults, llm.max_context)
        assert own.model.path == model and repr(own) == f"Async{llm!r}"
        with pytest.raises(ValueError, match='unknown adapter "nobody"'):
            await own.chat("Hi", adapter="nobody")
        with pytest.raises(ValueError, match="prompt 1: top_p is 7"):
            await own.generate(["a", "b"], [params, params.replace(top_p=7)])
        with pytest.raises(NotImplementedError, match="score head"):
            await own.classify("a")
        told = await own.chat(["Hi"], adapter="nobody", keep_going=True)
        assert told[0].error_code == "unknown_adapter"

    with_llm(model, use)


def test_the_loop_goes_on_while_answers_are_waited_for(model: str) -> None:
    async def use(llm: heddle.AsyncLLM) -> float:
        longest, begin = 0.0, time.monotonic()
        started = begin
        answers = asyncio.gather(llm.generate(["The", "A"], max_tokens=48, ignore_end=True), *(llm.chat("Hi", max_tokens=24) for _ in range(3)))
        while not answers.done():
            await asyncio.sleep(0.001)
            longest, begin = max(longest, time.monotonic() - begin), time.monotonic()
        assert len((await answers)[0][0].token_ids) == 48
        return longest / (time.monotonic() - started)

    assert with_llm(model, use) < 0.5, "the loop stood still for half of the time"


def test_a_task_that_is_cancelled_ends_its_prompts(model: str) -> None:
    async def use(llm: heddle.AsyncLLM) -> None:
        calls = [
            lambda: llm.generate(["The", "A", "One"], **LONG), lambda: llm.chat("Hi", n=2, **LONG), lambda: read(llm.stream("The", **LONG)),
        ]
        for call in calls:
            task = asyncio.ensure_future(call())
            while (await llm.load).num_running == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            begin = time.monotonic()
            while (load := await llm.load).num_running + load.num_waiting > 0:
                await asyncio.sleep(0.01)
            assert time.monotonic() - begin < 5
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(llm.generate("The", **LONG), 0.2)
        assert (await llm.chat(OPPOSITE[0], adapter="opposite")).text == "COLD, SMALL, SLOW"

    async def read(stream: heddle.Stream) -> None:
        async for _ in stream:
            pass

    with_llm(model, use, max_context=4096)


def test_an_error_ends_the_other_prompts_of_its_call(model: str) -> None:
    async def use(llm: heddle.AsyncLLM) -> None:
        with pytest.raises(ValueError, match="prompt 1: "):
            await llm.generate(["The", "A"], [heddle.SamplingParams(**LONG), heddle.SamplingParams(top_p=7)])
        while (await llm.load).num_running > 0:
            await asyncio.sleep(0.01)

    with_llm(model, use, max_context=4096)


def test_it_is_used_while_it_is_loaded(model: str) -> None:
    async def run() -> None:
        llm = heddle.AsyncLLM(model, num_threads=2, max_context=256)
        assert repr(llm) == "AsyncLLM(not loaded)"
        with pytest.raises(RuntimeError, match="the model is not loaded: enter `async with"):
            await llm.chat("Hi")
        assert await llm is llm and (await llm.generate("a", max_tokens=1)).prompt_tokens == 1
        assert await llm is llm, "twice is once"
        await llm.close()
        await llm.close()
        for call in (llm.generate("a"), llm.adapters, llm.stats()):
            with pytest.raises(ValueError, match="the engine is closed"):
                await call
        with pytest.raises(ValueError, match="nonexistent"):
            await heddle.AsyncLLM("/nonexistent.gguf")

    asyncio.run(run())


def test_a_load_that_is_cancelled_ends(model: str) -> None:
    async def run() -> None:
        llm = heddle.AsyncLLM(model, num_threads=2)
        task = asyncio.ensure_future(llm.__aenter__())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises((InterruptedError, RuntimeError)):
            await llm
            await llm.chat("Hi")

    asyncio.run(run())
