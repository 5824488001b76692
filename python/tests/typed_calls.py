"""Calls that a type checker must accept; nothing runs them."""

from __future__ import annotations

import numpy as np

import heddle
from heddle import ops


def with_numpy() -> None:
    """NumPy arrays, options as keywords."""
    x = np.ones((2, 8), np.float32)
    weight = np.ones(8, np.float32)
    ops.rms_norm(x, x, weight, epsilon=1e-5)
    table = heddle.AdapterTable(2, [8], 4, dtype="f32")
    table.set(0, 0, weight, scale=2.0)
    ids = np.zeros(2, np.int32)
    ops.lora_shrink(x, x, table, heddle.LoraBatch(slot_ids=ids))
    pages = heddle.PageTable(page_indptr=ids, pages=ids, last_page_len=ids)
    cache = heddle.PagedKv.from_pool(x, x)
    ops.batch_prefill(x, None, x, ids, cache, pages, heddle.AttentionOptions(window_left=4))
    packed = heddle.PackedWeight(x, "F32", out_features=2, in_features=8)
    ops.linear(x, x, packed)
    ops.linear([x, x], x, [packed, packed])
    ops.linear_site([x, x], x, [x, packed.to("cpu")])
    version: str = heddle.__version__
    threads: int = heddle.num_threads()
    print(version, threads)


def with_a_model() -> None:
    """Prompts of all kinds, one and many."""
    with heddle.LLM("model.gguf", {"a": "folder"}, weights="q8_0", prefix_cache=False, admit="longest", speculate="suffix", draft_ngram=(2, 4)) as llm:
        one: heddle.Answer = llm.generate("text", adapter="a", max_tokens=4, stop="\n")
        ids: list[int] = llm.generate([1, 2, 3], temperature=0.5, top_p=0.9, seed=1).token_ids
        many: list[heddle.Answer] = llm.generate(["a", "b"], adapter=["a", None], keep_going=True)
        tokens: list[heddle.Answer] = llm.generate([[1], [2, 3]])
        message = {"role": "user", "content": "Hi"}
        chat: heddle.Answer = llm.chat([message], system="Be brief.")
        chats: list[heddle.Answer] = llm.chat([[message], [message]], tools=[{"type": "function"}])
        texts: list[heddle.Answer] = llm.chat(["Hi", "Ho"])
        with llm.stream_chat("Hi") as stream:
            pieces: list[str] = list(stream)
        for piece in llm.stream([1, 2]):
            print(piece.upper())
        llm.add_adapter("b", "folder", replace=True)
        names: list[str] = llm.adapters
        cached: int = llm.chat("Hi", cache_salt="a", tenant="b", tenant_weight=2, priority=-1).cached_tokens
        counts: list[int] = [llm.stats().cached_tokens, llm.stats().parkings, llm.load.num_cached_pages]
        drafted: int = llm.chat("Hi", speculation="ngram", prediction="Ho").drafted_tokens
        sources: dict[str, tuple[int, int]] = llm.stats().drafts_by_source
        llm.reset_prefix_cache()
        print(one, ids, many, tokens, chat, chats, texts, pieces, names, llm.model.vocab_size)
        print(cached, counts, drafted, sources)


async def as_they_come(llm: heddle.LLM) -> str:
    """A stream in an event loop."""
    return "".join([piece async for piece in llm.stream_chat("Hi", adapter=None)])


async def with_an_event_loop() -> None:
    """The calls of AsyncLLM."""
    params = heddle.SamplingParams(max_tokens=4, stop="\n")
    async with heddle.AsyncLLM("model.gguf", ["folder"], max_batch=4) as llm:
        one: heddle.Answer = await llm.chat("Hi", params, adapter="a")
        many: heddle.Answers = await llm.generate(["a", "b"], [params, params.replace(seed=1)])
        names: list[str] = await llm.adapters
        cached: int = (await llm.stats()).cached_tokens
        await llm.add_adapter("b", "folder", replace=True)
        ids: list[int] = await llm.apply_chat_template("Hi")
        text: str = await llm.apply_chat_template("Hi", tokenize=False)
        print(one, many, names, cached, ids, text, await llm.tokenize("a"), await llm.embed("a"))
    other = await heddle.AsyncLLM()
    await other.close()


def for_vllm() -> str:
    """Names of vLLM."""
    from heddle.vllm_compat import LLM, LoRARequest, SamplingParams

    llm = LLM("model", enable_lora=True, max_loras=2)
    outputs = llm.generate(["a"], SamplingParams(max_tokens=4), lora_request=LoRARequest("a", 1, "folder"))
    return outputs[0].outputs[0].text
