"""heddle.LLM with a tiny model on a GPU: what the CPU answers within the rounding of bf16, and the same bits in any company."""

from __future__ import annotations

import asyncio
import pathlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import heddle

if not heddle.has_cuda():
    pytest.skip("skipped: no CUDA device", allow_module_level=True)

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "server"))
import tiny_model  # noqa: E402

NAMES = [None, "a0", "a1", "a2"]
PROMPTS = ["the loom", "weft and warp, over and under", "a", "shuttle"]
OPTIONS: dict[str, Any] = {"max_tokens": 12, "ignore_end": True}
# Of log-probabilities: weights and cache rounded to bf16 alone make 0.17 of it on the CPU, another adapter 9 and more.
TOLERANCE = 1.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("tiny")
    tiny_model.write_all(path, 3)
    return path


def make(folder: pathlib.Path, device: str) -> heddle.LLM:
    adapters = {name: folder / "adapters" / name for name in NAMES if name}
    return heddle.LLM(folder / "model", adapters, device=device, max_batch=4, num_threads=2, kv_memory=64 << 20)


@pytest.fixture(scope="module")
def llm(folder: pathlib.Path) -> Iterator[heddle.LLM]:
    with make(folder, "cuda") as made:
        yield made


def test_the_device_is_told(llm: heddle.LLM) -> None:
    assert (llm.device, llm.model.activations) == ("cuda:0", "bf16")
    assert llm.model.device_name


def test_answers_are_those_of_the_cpu(llm: heddle.LLM, folder: pathlib.Path) -> None:
    """Each token is the best for the CPU, too, or as good as that within the tolerance, and has the log-probability that it has there."""
    answers = llm.generate(PROMPTS, adapter=NAMES, **OPTIONS)
    assert len({tuple(answer.token_ids) for answer in llm.generate(PROMPTS[:1] * 4, adapter=NAMES, **OPTIONS)}) == 4
    with make(folder, "cpu") as cpu:
        for prompt, name, answer in zip(PROMPTS, NAMES, answers, strict=True):
            assert (len(answer.token_ids), answer.finish_reason) == (OPTIONS["max_tokens"], "length")
            ids = cpu.tokenize(prompt)
            told = cpu.generate(ids + answer.token_ids, adapter=name, max_tokens=0, prompt_logprobs=True, top_logprobs=1)
            places = zip(answer.logprobs, told.prompt_logprobs[len(ids):], told.prompt_top_logprobs[len(ids):], strict=True)
            for logprob, of_cpu, tops in places:
                assert of_cpu is not None and abs(logprob - of_cpu) <= TOLERANCE
                assert of_cpu >= max(tops.values()) - TOLERANCE


def test_a_prompt_has_the_same_bits_in_any_company(llm: heddle.LLM) -> None:
    together = llm.generate(PROMPTS * 3, adapter=NAMES * 3, **OPTIONS)
    alone = [llm.generate(prompt, adapter=name, **OPTIONS) for prompt, name in zip(PROMPTS, NAMES)]
    assert together == alone * 3
    drawn = OPTIONS | {"adapter": "a1", "temperature": 0.9, "top_p": 0.9}
    assert llm.generate(PROMPTS, seed=7, **drawn)[2] == llm.generate(PROMPTS[2], seed=7 + 2, **drawn)


def test_threads_and_streams_get_the_same_answers(llm: heddle.LLM) -> None:
    want = [llm.generate(prompt, adapter=name, **OPTIONS) for prompt, name in zip(PROMPTS, NAMES)]
    got: list[Any] = [None] * len(want)

    def ask(i: int) -> None:
        got[i] = llm.generate(PROMPTS[i], adapter=NAMES[i], **OPTIONS)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(want))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == want
    with llm.stream(PROMPTS[1], adapter=NAMES[1], **OPTIONS) as stream:
        assert "".join(stream) == want[1].text
    assert stream.answer == want[1]

    async def read(prompt: str, name: str | None) -> str:
        return "".join([piece async for piece in llm.stream(prompt, adapter=name, **OPTIONS)])

    async def read_all() -> list[str]:
        return await asyncio.gather(*(read(*row) for row in zip(PROMPTS, NAMES)))

    assert asyncio.run(read_all()) == [answer.text for answer in want]


def test_adapters_come_and_go(llm: heddle.LLM, folder: pathlib.Path) -> None:
    before = llm.generate(PROMPTS[0], adapter="a1", **OPTIONS)
    llm.add_adapter("late", folder / "adapters" / "a1")
    late = llm.generate(PROMPTS[0], adapter="late", **OPTIONS)
    assert (late.token_ids, late.logprobs) == (before.token_ids, before.logprobs)
    uses: list[dict[str, Any]] = [{"name": "late", "scale": 0.5}, {"name": "a2"}]
    both = llm.generate(PROMPTS[0], adapters=uses, **OPTIONS)
    assert both.finish_reason == "length" and both.token_ids != before.token_ids
    llm.remove_adapter("late")
    with pytest.raises(ValueError, match='unknown adapter "late"'):
        llm.generate(PROMPTS[0], adapter="late")
    assert llm.generate(PROMPTS[0], adapter="a1", **OPTIONS) == before


def test_a_cache_of_another_type_is_refused(folder: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="kv_type is f32, but this model on cuda:0 needs bf16"):
        heddle.LLM(folder / "model", device="cuda", kv_type="f32", kv_memory=64 << 20)
