"""heddle.LLM with the model and the example adapters: the bits of the program, threads, streams, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
from typing import Any

import pytest
from llm_cases import ADAPTERS, OPPOSITE, ROOT, SLUG

import heddle
from heddle._answers import raise_error

PROGRAM = pathlib.Path(os.environ.get("HEDDLE_BUILD_DIR", ROOT / "build")) / "heddle"
PATHS = 1.0  # that log-probabilities of two paths may differ by: docs/numerics.md has it of logits, which reach 50
LONG = {"ignore_end": True, "max_tokens": 4000}  # minutes, unless it is cancelled


def program_answers(model: str, rows: list[dict[str, Any]], folder: pathlib.Path, *options: str) -> list[dict[str, Any]]:
    """What `heddle generate` answers, in the order of the rows."""
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [PROGRAM, "generate", "--json", "--ordered", "--logprobs", "--quiet", "-m", model, "--prompts", file, *options]
    for name, path in ADAPTERS.items():
        command += ["--adapter", f"{name}={path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def expect_same(answers: list[heddle.Answer], told: list[dict[str, Any]]) -> None:
    """The same tokens, and log-probabilities of the same bits."""
    assert len(answers) == len(told)
    for answer, row in zip(answers, told, strict=True):
        for field in ("text", "token_ids", "logprobs", "prompt_tokens", "finish_reason", "adapter", "error"):
            assert getattr(answer, field) == row[field], field


def test_conversations_have_the_bits_of_the_program(llm: heddle.LLM, model: str, tmp_path: pathlib.Path) -> None:
    prompts = ["What is a loom?", OPPOSITE[0], SLUG[0], "Tell me about wool.", "SQL: count the cars of each brand"]
    names = [None, "opposite", "slug", None, "sql"]
    sampling: dict[str, Any] = {"max_tokens": 12, "temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "stop": ["ing"]}
    rows = [{"prompt": p, "adapter": n or "base", **sampling} for p, n in zip(prompts, names, strict=True)]
    told = program_answers(model, rows, tmp_path, "--seed", "5")
    expect_same(llm.chat(prompts, adapter=names, seed=5, **sampling), told)
    conversations = [
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Wool?"}],
        [{"role": "system", "content": "One word."}, {"role": "user", "content": "Red or blue?"}],
    ]
    told = program_answers(model, [{"messages": c, "max_tokens": 8} for c in conversations], tmp_path, "--system", "Be brief.")
    expect_same(llm.chat(conversations, max_tokens=8, system="Be brief."), told)


def test_plain_text_has_the_bits_of_the_program(llm: heddle.LLM, model: str, tmp_path: pathlib.Path) -> None:
    prompts = ["The loom is", "Once upon a time"]
    told = program_answers(model, [{"prompt": p, "max_tokens": 9} for p in prompts], tmp_path, "--raw")
    expect_same(llm.generate(prompts, max_tokens=9), told)
    ids = [llm.tokenize(prompt) for prompt in prompts]
    expect_same(llm.generate(ids, max_tokens=9), told)
    expect_same([llm.generate(ids[0], max_tokens=9)], told[:1])


def test_what_the_text_shows_and_what_ended_it(llm: heddle.LLM) -> None:
    prompt = "The loom is"
    first = llm.generate(prompt, max_tokens=12)
    word = first.text[5:9]
    before, behind = (llm.generate(prompt, max_tokens=12, stop=word, include_stop=shown) for shown in (False, True))
    assert behind.text == before.text + word and first.text.startswith(behind.text)
    assert (before.stop, behind.stop, first.stop) == (word, word, None)
    assert llm.generate(prompt, max_tokens=12, stop_token_ids=[first.token_ids[3]]).stop == first.token_ids[3]
    (end,) = llm.tokenize("<|im_end|>")
    special: dict[str, Any] = {"max_tokens": 3, "allowed_token_ids": [end], "ignore_end": True}
    assert llm.generate(prompt, **special).text == "<|im_end|>" * 3
    hidden = llm.generate(prompt, skip_special_tokens=True, **special)
    assert (hidden.text, hidden.token_ids) == ("", [end] * 3)


def test_defaults_come_from_a_generation_config(
    llm: heddle.LLM, model: str, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture,
) -> None:
    prompt = "The loom is"
    assert llm.defaults == {"max_tokens": 256, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    file = tmp_path / "generation_config.json"
    file.write_text(json.dumps({"temperature": 5.0, "top_k": 1, "max_new_tokens": 3, "repetition_penalty": 1.5, "num_beams": 2}))
    with (
        caplog.at_level("INFO", "heddle"), pytest.warns(UserWarning, match="num_beams is 2, which heddle does not support") as found,
        heddle.LLM(model, num_threads=2, generation_config=tmp_path) as made,
    ):
        assert f"from {file}, where prompts do not set it: temperature 5, top_k 1, repetition_penalty 1.5, max_tokens 3" in caplog.text
        assert made.model.generation.path == str(file)
        assert made.defaults == llm.defaults | {"temperature": 5.0, "top_k": 1, "repetition_penalty": 1.5, "max_tokens": 3}
        by_hand = llm.generate(prompt, max_tokens=3, repetition_penalty=1.5).token_ids
        assert made.generate(prompt).token_ids == by_hand
        assert made.generate(prompt, temperature=9, repetition_penalty=None, max_tokens=None).token_ids == by_hand
        plain = llm.generate(prompt, max_tokens=12).token_ids
        assert made.generate(prompt, max_tokens=12, repetition_penalty=1.0).token_ids == plain
        assert "".join(made.stream(prompt)) == llm.generate(prompt, max_tokens=3, repetition_penalty=1.5).text
        assert made.generate(prompt, max_tokens=12, top_k=0).token_ids != plain
    assert found[0].filename == __file__
    file.write_text('{"top_p": 7}')
    with pytest.raises(ValueError, match="top_p is 7, expected above 0 and up to 1"):
        heddle.LLM(model, generation_config=file)
    with pytest.raises(ValueError, match="generation_config is empty"):
        heddle.LLM(model, generation_config="")
    with heddle.LLM(model, num_threads=2, generation_config="none") as made:
        assert made.defaults == llm.defaults and made.model.generation.path == ""


def test_stop_strings_match_special_tokens(llm: heddle.LLM) -> None:
    (mark,) = llm.tokenize("<|im_start|>")
    special: dict[str, Any] = {"max_tokens": 3, "allowed_token_ids": [mark], "stop": "im_start|><|im"}
    for hidden, text in ((False, "<|"), (True, "")):
        for included in (False, True):
            answer = llm.generate("The loom is", skip_special_tokens=hidden, include_stop=included, **special)
            assert (answer.text, answer.stop) == (text + special["stop"] * included, special["stop"])
            pieces = list(llm.stream("The loom is", skip_special_tokens=hidden, include_stop=included, **special))
            assert "".join(pieces) == answer.text


def test_how_the_prompt_becomes_tokens(llm: heddle.LLM) -> None:
    ids = llm.tokenize("The loom is")
    cut = llm.generate("The loom is", max_tokens=5, truncate_prompt_tokens=2)
    assert (cut.prompt_tokens, cut.token_ids) == (2, llm.generate(ids[-2:], max_tokens=5).token_ids)
    for added in (None, True, False):  # this tokenizer adds none
        assert llm.generate("The loom is", max_tokens=1, add_special_tokens=added).prompt_tokens == len(ids)
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two,"}]
    text = "".join(f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in turns).removesuffix("<|im_end|>\n")
    going_on = llm.chat([turns], add_generation_prompt=False, continue_final_message=True, max_tokens=8)[0]
    assert going_on.token_ids == llm.generate(text, max_tokens=8).token_ids


def test_penalties_biases_and_ends_have_the_bits_of_the_program(llm: heddle.LLM, model: str, tmp_path: pathlib.Path) -> None:
    prompt = "The loom is"
    first = llm.generate(prompt, max_tokens=6)
    each: list[dict[str, Any]] = [
        {"repetition_penalty": 1.4}, {"frequency_penalty": 1.5, "presence_penalty": 0.5}, {"logit_bias": {first.token_ids[0]: -100.0}},
        {"stop_token_ids": [first.token_ids[2]]}, {"stop_token_ids": [first.token_ids[2]], "min_tokens": 4}, {"bad_words": ["is", "the"]},
    ]
    answers = [llm.generate(prompt, max_tokens=24, **options) for options in each]
    rows = [{"prompt": prompt, "max_tokens": 24, **options} for options in each]
    expect_same(answers, program_answers(model, rows, tmp_path, "--raw"))
    told = llm.generate(prompt, max_tokens=6, top_logprobs=3, prompt_logprobs=True)
    assert (told.token_ids, told.logprobs) == (first.token_ids, first.logprobs)
    for token, logprob, top in zip(told.token_ids, told.logprobs, told.top_logprobs, strict=True):
        assert len(top) == 3 and top[token] == logprob == max(top.values())
    scored = llm.generate([*llm.tokenize(prompt), *first.token_ids], max_tokens=0)
    assert not scored.token_ids and scored.prompt_logprobs[0] is None
    same_path = llm.model.activations == "f32"  # on a GPU a prompt takes another one (docs/numerics.md)
    tail = scored.prompt_logprobs[len(told.prompt_logprobs) :]
    assert scored.prompt_logprobs[: len(told.prompt_logprobs)] == told.prompt_logprobs
    assert tail == (first.logprobs if same_path else pytest.approx(first.logprobs, abs=PATHS))
    row = program_answers(model, [{"prompt": prompt, "max_tokens": 6, "top_logprobs": 3, "prompt_logprobs": True}], tmp_path, "--raw")[0]
    assert row["prompt_logprobs"] == told.prompt_logprobs
    assert [{t: p for t, p in place} for place in row["top_logprobs"]] == told.top_logprobs
    assert first.token_ids[0] not in answers[2].token_ids
    assert answers[3].token_ids == first.token_ids[:2] and answers[3].finish_reason == "stop"
    assert answers[4].token_ids[:2] == first.token_ids[:2] and len(answers[4].token_ids) >= 4
    with pytest.raises(TypeError, match="'top_q'"):
        llm.generate(prompt, top_q=1)  # type: ignore[call-overload]


def test_one_prompt_has_one_answer_and_a_list_has_a_list(llm: heddle.LLM) -> None:
    prompt, name = OPPOSITE
    one = llm.chat(prompt, adapter=name)
    assert str(one) == "COLD, SMALL, SLOW" and one.finish_reason == "stop" and one.adapter == name
    assert llm.chat([prompt], adapter=name) == [one]
    message = {"role": "user", "content": prompt}
    assert llm.chat([message], adapter=name) == one
    assert llm.chat([[message], [message]], adapter=[name, name]) == [one, one]
    assert llm.chat([]) == [] and llm.generate([]) == []


def test_a_list_may_be_merged(llm: heddle.LLM) -> None:
    """Two that are one: each merge of all of their values is that adapter again."""
    prompt, halves = OPPOSITE[0], [{"name": "opposite", "scale": 0.25}, {"name": "again", "scale": 0.25}]
    wholes = [{"name": "opposite"}, {"name": "again"}]
    llm.add_adapter("again", ADAPTERS["opposite"])
    try:
        alone = llm.chat(prompt, adapter="opposite", max_tokens=8).token_ids
        for adapters, method in ((halves, "magnitude_prune"), (halves, "dare_linear"), (wholes, "ties"), (wholes, "dare_ties")):
            merge = {"method": method, "density": 1.0}
            answer = llm.chat(prompt, adapters=adapters, merge=merge, max_tokens=8)
            assert answer.token_ids == alone, method
            with llm.stream_chat(prompt, adapters=adapters, merge=merge, max_tokens=8) as stream:
                assert "".join(stream) == answer.text
        ties = {"method": "ties", "density": 0.3, "majority_sign_method": "frequency"}
        merged = llm.chat(prompt, adapters=wholes, merge=ties, max_tokens=8)
        assert merged.logprobs != llm.chat(prompt, adapters=wholes, max_tokens=8).logprobs
        several = llm.chat(prompt, each_adapter=[None, "opposite", wholes], merge=ties, max_tokens=8)
        assert several.each is not None and several.each[2].token_ids == merged.token_ids
        assert several.each[1].token_ids == alone
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"merge": {"density": 0.5}}, "merge has no method"), ({"merge": {"method": "ties", "share": 1}}, "merge has 'share'"),
            ({"merge": {"method": "slerp", "density": 0.5}}, "is 'slerp', expected one of linear, ties"),
            ({"merge": {"method": "ties"}}, "the density of the merge is 0"),
            ({"merge": ties, "adapters": None, "adapter": "opposite"}, "takes two adapters or more")]
        for options, message in wrong:
            with pytest.raises(ValueError) as refused:
                llm.chat(prompt, **{"adapters": wholes, **options})
            assert message in str(refused.value)
        with pytest.raises(TypeError, match="merge is str"):
            llm.chat(prompt, adapters=wholes, merge="ties")  # type: ignore[call-overload]
        with pytest.raises(NotImplementedError, match="ties_svd"):
            llm.chat(prompt, adapters=wholes, merge={"method": "ties_svd", "density": 0.5})
    finally:
        llm.remove_adapter("again")


def test_lists_of_adapters_have_the_bits_of_the_program(llm: heddle.LLM, model: str, tmp_path: pathlib.Path) -> None:
    prompt = OPPOSITE[0]
    lists = [[{"name": "opposite", "scale": 0.5}, {"name": "slug"}], [{"name": "sql", "scale": -0.25}]]
    told = program_answers(model, [{"prompt": prompt, "adapters": each, "max_tokens": 8} for each in lists], tmp_path)
    answers = llm.chat([prompt, prompt], adapters=lists, max_tokens=8)
    expect_same(answers, told)
    assert [answer.adapters for answer in answers] == [{"opposite": 0.5, "slug": 1.0}, {"sql": -0.25}]
    assert llm.chat([prompt], adapters=lists[0], max_tokens=8) == answers[:1]
    with llm.stream_chat(prompt, adapters=lists[1], max_tokens=8) as stream:
        assert "".join(stream) == answers[1].text and stream.answer == answers[1]
    assert llm.chat(prompt, adapters=[{"name": "opposite"}]).token_ids == llm.chat(prompt, adapter="opposite").token_ids
    for wrong, message in [({"adapters": []}, "adapters is empty"), ({"adapters": [{"scale": 1}]}, "adapters[0] has no name"),
                           ({"adapters": [{"name": "sql", "weight": 1}]}, "adapters[0] has 'weight', expected name and scale"),
                           ({"adapters": lists, "adapter": "sql"}, "adapter and adapters are given"),
                           ({"adapters": [{"name": "sql"}, {"name": "sql"}]}, 'adapters[1].name is "sql", which adapters[0] already has'),
                           ({"adapters": lists}, "adapters has 2 lists, expected one or 1")]:
        with pytest.raises(ValueError) as refused:
            llm.chat(prompt, **wrong)
        assert message in str(refused.value)


def test_several_answers_to_one_prompt_have_the_bits_of_the_program(llm: heddle.LLM, model: str, tmp_path: pathlib.Path) -> None:
    prompt, drawn = OPPOSITE[0], {"temperature": 0.9, "seed": 3, "max_tokens": 6}
    each: list[Any] = ["opposite", None, [{"name": "slug", "scale": 0.5}]]
    sampled, through, plain = program_answers(
        model, [{"prompt": prompt, "n": 3, "adapter": "slug", **drawn}, {"prompt": prompt, "each_adapter": each, **drawn},
                {"prompt": prompt, "max_tokens": 2}], tmp_path)
    samples = llm.chat(prompt, n=3, adapter="slug", **drawn)
    expect_same(samples.each, [{**choice, "adapter": "slug"} for choice in sampled["choices"]])
    answers = llm.chat([prompt], each_adapter=each, **drawn)[0]
    expect_same(answers.each, [{**entry, "adapter": entry["adapter"]} for entry in through["each_adapter"]])
    assert samples.text == samples.each[0].text and answers.each[2].adapters == {"slug": 0.5}
    assert samples.each[1] == llm.chat(prompt, adapter="slug", **{**drawn, "seed": 4})
    assert "choices" not in plain and not llm.chat(prompt, max_tokens=2).each and len(llm.chat(prompt, max_tokens=2, n=1).each) == 1
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"n": 0}, "n is 0, expected 1 to 128"), ({"n": 2, "each_adapter": each}, "n and each_adapter"), ({"each_adapter": []}, "not a list"),
        ({"each_adapter": "sql"}, "not a list"), ({"each_adapter": each, "adapter": "sql"}, "together with"), ({"each_adapter": ["nobody"]}, "nobody")]
    for options, message in wrong:
        with pytest.raises(ValueError, match=message):
            llm.chat(prompt, **options)
    with pytest.raises(TypeError, match="n is given to a stream"):
        llm.stream_chat(prompt, n=2)


def test_a_stream_is_the_answer_in_pieces(llm: heddle.LLM) -> None:
    prompt, name = SLUG
    with llm.stream_chat(prompt, adapter=name) as stream:
        assert stream.answer is None
        pieces = list(stream)
    assert "".join(pieces) == "the-quick-brown-river" and len(pieces) > 3
    assert stream.answer == llm.chat(prompt, adapter=name)
    assert list(stream) == []
    assert "".join(llm.stream("The loom is", max_tokens=6)) == llm.generate("The loom is", max_tokens=6).text


def test_streams_in_an_event_loop_run_side_by_side(llm: heddle.LLM) -> None:
    async def read(prompt: str, name: str | None) -> str:
        return "".join([piece async for piece in llm.stream_chat(prompt, adapter=name, max_tokens=8)])

    async def read_all() -> list[str]:
        rows = [OPPOSITE, SLUG, ("What is a loom?", None)] * 3
        return await asyncio.gather(*(read(prompt, name) for prompt, name in rows))

    want = [llm.chat(prompt, adapter=name, max_tokens=8).text for prompt, name in (OPPOSITE, SLUG, ("What is a loom?", None))]
    assert asyncio.run(read_all()) == want * 3


def test_a_task_that_is_cancelled_ends_its_request(llm: heddle.LLM) -> None:
    async def read() -> heddle.Stream:
        stream = llm.stream("The", ignore_end=True, max_tokens=4000)
        task = asyncio.ensure_future(drain(stream))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return stream

    async def drain(stream: heddle.Stream) -> None:
        async for _ in stream:
            pass

    stream = asyncio.run(read())
    list(stream)
    assert stream.answer is not None and stream.answer.finish_reason == "cancelled"


def test_many_threads_may_ask_and_the_interpreter_goes_on(llm: heddle.LLM) -> None:
    want = [llm.chat(prompt, adapter=name, max_tokens=8) for prompt, name in (OPPOSITE, SLUG)]
    got: list[heddle.Answer] = []

    def ask(prompt: str, name: str) -> None:
        got.extend(llm.chat(prompt, adapter=name, max_tokens=8) for _ in range(3))

    threads = [threading.Thread(target=ask, args=row) for row in (OPPOSITE, SLUG) * 3]
    for thread in threads:
        thread.start()
    count = 0
    while any(thread.is_alive() for thread in threads):
        count += 1
        time.sleep(0.001)
    assert count > 50, "the interpreter lock was held"
    assert len(got) == 18
    assert all(answer in want for answer in got)


def test_what_cannot_run_raises_or_is_told(llm: heddle.LLM) -> None:
    with pytest.raises(ValueError, match='^prompt 1: unknown adapter "nobody"$'):
        llm.chat(["Hi", "Ho"], adapter=[None, "nobody"], **LONG)
    told = llm.chat(["Hi", "Ho"], adapter=[None, "nobody"], max_tokens=2, keep_going=True)
    assert [answer.finish_reason for answer in told] == ["length", "error"]
    assert told[1].error == 'unknown adapter "nobody"' and told[0].error is None
    assert [answer.error_code for answer in told] == [None, "unknown_adapter"]
    for wrong, says in (
        ({"temperature": -1.0}, "temperature is -1"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_k": 2**40}, "top_k is 1099511627776"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"top_logprobs": 101}, "top_logprobs is 101, expected 0 to 100"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0"),
        ({"logit_bias": {10**7: 1.0}}, "logit_bias has token 10000000, the vocabulary has"),
        ({"min_tokens": 300}, "min_tokens is 300, expected 0 to max_tokens = 256"),
        ({"stop": ""}, r"stop\[0\] is empty"),
        ({"allowed_token_ids": [10**7]}, "allowed_token_ids has token 10000000, the vocabulary has"),
        ({"truncate_prompt_tokens": -1}, "truncate_prompt_tokens is -1"),
        ({"adapter": ["slug", "slug"]}, "adapter has 2 names, expected one or 1"),
    ):
        with pytest.raises(ValueError, match=says):
            llm.chat("Hi", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="continue_final_message but no messages"):
        llm.generate("Hi", continue_final_message=True)
    with pytest.raises(TypeError, match="allowed_token_ids is one text"):
        llm.generate("Hi", allowed_token_ids="12")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="token id 99999999"):
        llm.generate([99999999])
    with pytest.raises(ValueError, match="the vocabulary has"):
        next(llm.stream([2**31 - 1]))
    with pytest.raises(TypeError, match="bad_words has an entry of another type"):
        llm.generate("Hi", bad_words=[1])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        llm.generate([1, "two"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="nonexistent"):
        heddle.LLM("/nonexistent.gguf")


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        ("invalid_argument", ValueError),
        ("unknown_adapter", ValueError),
        ("unsupported", NotImplementedError),
        ("out_of_memory", MemoryError),
        ("engine_ended", RuntimeError),
    ],
)
def test_every_code_has_its_exception(code: str, exception: type[Exception]) -> None:
    with pytest.raises(exception, match="^prompt 3: why$") as raised:
        raise_error(heddle.Answer("", [], [], 0, "error", None, "why", error_code=code), "prompt 3: ")
    assert raised.type is exception
    raise_error(heddle.Answer("", [], [], 0, "stop", None))


def test_the_type_of_the_kv_cache_is_that_of_the_program(model: str, tmp_path: pathlib.Path) -> None:
    told = program_answers(model, [{"prompt": "What is a loom?", "max_tokens": 6}], tmp_path, "--kv-type", "bf16")
    with heddle.LLM(model, kv_type="bf16") as made:
        expect_same([made.chat("What is a loom?", max_tokens=6)], told)
    with pytest.raises(ValueError, match="kv_type is 'int8', expected one of f32, f16, bf16, fp8"):
        heddle.LLM(model, kv_type="int8")


def test_what_of_a_prompt_the_prefix_cache_had(model: str) -> None:
    prompt = list(range(100, 140))
    options: dict[str, Any] = {"max_tokens": 3, "ignore_end": True}
    with heddle.LLM(model, max_context=256, num_threads=2) as made:
        found = 39 if made.device == "cpu" else 32  # on a GPU whole pages
        first = made.generate(prompt, **options)
        again = made.generate(prompt, **options)
        assert (first.prompt_tokens, first.cached_tokens, again.cached_tokens) == (40, 0, found)
        assert first == again, "answers that differ in it alone are equal"
        assert [made.generate(prompt, cache_salt=salt, **options).cached_tokens for salt in ("a", "a", "b")] == [0, found, 0]
        with made.stream(prompt, cache_salt="a", **options) as stream:
            assert "".join(stream) == first.text and stream.answer.cached_tokens == found
        assert (made.stats().prefix_tokens, made.stats().cached_tokens, made.stats().parkings) == (240, 3 * found, 0)
        assert made.load.num_cached_pages >= 6
        made.reset_prefix_cache()
        assert made.load.num_cached_pages == 0
        assert made.generate(prompt, **options).cached_tokens == 0


def test_without_the_prefix_cache(model: str) -> None:
    prompt = list(range(100, 140))
    with heddle.LLM(model, max_context=256, num_threads=2, prefix_cache=False, admit="longest") as made:
        assert [made.generate(prompt, max_tokens=2, cache_salt=salt).cached_tokens for salt in ("", "", "a")] == [0] * 3
        assert (made.stats().prefix_tokens, made.stats().cached_tokens) == (0, 0)
        assert made.stats().generated_tokens == 6 and made.stats().prefill_tokens == 120
        assert (made.load.num_running, made.load.num_parked, made.load.num_cached_pages) == (0, 0, 0)
        assert made.load.num_free_pages == made.load.num_pages > 0
        made.reset_prefix_cache()
        with pytest.raises(TypeError, match="cache_salt is int, expected a text"):
            made.generate(prompt, cache_salt=7)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="admit is 'later', expected now or longest"):
        heddle.LLM(model, admit="later")
    with pytest.raises(ValueError, match="the engine is closed"):
        made.reset_prefix_cache()


def test_the_device_is_told(model: str) -> None:
    with heddle.LLM(model, device="cpu") as made:
        assert (made.device, made.model.device_name, made.model.activations) == ("cpu", "", "f32")


def test_a_device_that_is_not_there_is_refused(model: str) -> None:
    with pytest.raises(ValueError, match="device is 'gpu', expected cpu, cuda or cuda:1"):
        heddle.LLM(model, device="gpu")
    says = r"device is cuda:99, (CUDA devices: \d+|this build is for the CPU alone)"
    with pytest.raises((ValueError, NotImplementedError), match=says):
        heddle.LLM(model, device="cuda:99")


def test_ctrl_c_ends_the_requests_and_the_model_goes_on(llm: heddle.LLM) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.3, interrupt).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["The", "A", "One"], **LONG)
    assert time.monotonic() - begin < 5
    stream = llm.stream("The", ignore_end=True, max_tokens=4000)
    threading.Timer(0.3, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    assert llm.chat(OPPOSITE[0], adapter="opposite").text == "COLD, SMALL, SLOW"


def test_a_stream_that_is_thrown_away_frees_its_place(model: str) -> None:
    begin = time.monotonic()
    with heddle.LLM(model, max_batch=1, max_context=4096) as llm:
        stream = llm.stream("The", ignore_end=True, max_tokens=4000)
        next(stream)
        del stream
        assert len(llm.generate("The", max_tokens=3).token_ids) == 3
    assert time.monotonic() - begin < 20


def test_after_close_everything_is_refused(model: str) -> None:
    llm = heddle.LLM(model, max_batch=1)
    stream = llm.stream("The", ignore_end=True, max_tokens=4000)
    next(stream)
    llm.close()
    llm.close()
    list(stream)
    assert stream.answer is not None and stream.answer.finish_reason == "cancelled"
    for call in (lambda: llm.generate("a"), lambda: llm.adapters, lambda: llm.remove_adapter("a"), lambda: llm.model):
        with pytest.raises(ValueError, match="the engine is closed"):
            call()


def test_a_child_after_fork_is_told_and_ends(llm: heddle.LLM) -> None:
    child = os.fork()
    if child == 0:
        try:
            llm.generate("a")
        except ValueError as error:
            os._exit(0 if "belongs to the process that made it" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_progress_is_shown_where_it_is_wanted(llm: heddle.LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate(["a", "b"], max_tokens=1)
    assert capsys.readouterr().err == "", "no terminal"
    llm.generate(["a", "b"], max_tokens=1, progress=True)
    assert "answers [##############################] 2 of 2" in capsys.readouterr().err
    llm.generate("a", max_tokens=1, progress=False)
    assert capsys.readouterr().err == ""


def test_a_stream_keeps_its_model(model: str) -> None:
    stream = heddle.LLM(model, num_threads=2).stream("One, two,", max_tokens=8, ignore_end=True)
    gc.collect()
    assert "".join(stream) == stream.answer.text
    assert (stream.answer.finish_reason, len(stream.answer.token_ids)) == ("length", 8)
