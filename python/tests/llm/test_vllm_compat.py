"""heddle.vllm_compat: scripts for vLLM with other imports, what their options mean here, and what is refused."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from llm_cases import ADAPTERS

import heddle
from heddle import vllm_compat
from heddle.vllm_compat import EngineArgs, LLMEngine, LoRARequest, SamplingParams, TokensPrompt
from heddle.vllm_compat._engine_args import ONLY, RENAMED, WITHOUT_EFFECT, translated
from heddle.vllm_compat.sampling_params import RequestOutputKind, StructuredOutputsParams

SCRIPTS = pathlib.Path(__file__).parent / "vllm_scripts"
GREEDY = SamplingParams(temperature=0, max_tokens=8)
OPPOSITE = LoRARequest("opposite", 1, str(ADAPTERS["opposite"]))


@pytest.fixture(scope="module")
def compat(model: str) -> Iterator[vllm_compat.LLM]:
    yield vllm_compat.LLM(model, enable_lora=True, max_num_seqs=4, num_threads=2)


def run_script(name: str, folder: pathlib.Path, *arguments: str) -> list[str]:
    """The lines that a script for vLLM prints, with `heddle.vllm_compat` for `vllm` in its imports and nothing else changed."""
    source = (SCRIPTS / name).read_text()
    imports = [line for line in source.splitlines() if line.startswith("from vllm")]
    assert len(imports) == 2 and source.count("from vllm") == 2
    script = folder / name
    script.write_text(source.replace("from vllm", "from heddle.vllm_compat"))
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_script_for_batches_runs(llm: heddle.LLM, model: str, tmp_path: pathlib.Path) -> None:
    lines = run_script("batch.py", tmp_path, model, str(ADAPTERS["opposite"]))
    prompts = ["The loom is", "Once upon a time"]
    answers = llm.generate(prompts, adapter="opposite", max_tokens=12, stop="\n", skip_special_tokens=True)
    want = [f"{prompt!r} {answer.text!r} opposite" for prompt, answer in zip(prompts, answers, strict=True)]
    base = llm.chat("Opposites: hot, big, fast", max_tokens=16, skip_special_tokens=True)
    assert lines == [*want, f"{base.text!r} {base.finish_reason}", "'COLD, SMALL, SLOW' stop"]


def test_a_script_for_the_engine_runs(llm: heddle.LLM, model: str, tmp_path: pathlib.Path) -> None:
    lines = run_script("engine.py", tmp_path, model, str(ADAPTERS["opposite"]))
    told = {line.split()[0]: line for line in lines}
    assert sorted(told) == ["0", "1", "2", "3"]

    def line(prompt: str, adapter: str | None, **options: Any) -> str:
        a = llm.generate(prompt, adapter=adapter, max_tokens=8, skip_special_tokens=True, **options)
        return f"{a.prompt_tokens} {a.prompt_tokens} {a.token_ids} {a.finish_reason} {a.text!r}"

    assert told["0"] == "0 " + line("A robot may not injure a human being", None)
    for i in "23":
        assert told[i] == f"{i} " + line("Opposites: hot, big, fast\n", "opposite", stop_token_ids=[3])


def test_outputs_have_the_bits_of_heddle(llm: heddle.LLM, compat: vllm_compat.LLM) -> None:
    params = SamplingParams(temperature=0.9, top_k=20, top_p=0.95, seed=7, max_tokens=6, n=2, logprobs=2, prompt_logprobs=0)
    [output] = compat.generate("The loom is", params, lora_request=OPPOSITE)
    want = llm.generate("The loom is", adapter="opposite", temperature=0.9, top_k=20, top_p=0.95, seed=7, max_tokens=6, n=2,
                        top_logprobs=2, prompt_logprobs=True, skip_special_tokens=True)
    assert (output.prompt, output.prompt_token_ids) == ("The loom is", llm.tokenize("The loom is"))
    assert output.finished and output.lora_request == OPPOSITE and output.num_cached_tokens is not None
    assert [each.text for each in output.outputs] == [each.text for each in want.each]
    for own, each in zip(output.outputs, want.each, strict=True):
        assert (own.token_ids, own.finish_reason, own.index) == (each.token_ids, each.finish_reason, output.outputs.index(own))
        assert own.cumulative_logprob == sum(each.logprobs)
        assert own.logprobs is not None
        for place, token, logprob, tops in zip(own.logprobs, each.token_ids, each.logprobs, each.top_logprobs, strict=True):
            assert next(iter(place)) == token and place[token].logprob == logprob
            assert {t: x.logprob for t, x in place.items()} == {token: logprob} | tops
            assert [place[t].rank for t in tops] == [1, 2] and place[token].decoded_token == llm.detokenize([token])
    scores = output.prompt_logprobs
    assert scores is not None and scores[0] is None
    assert [next(iter(place.values())).logprob for place in scores[1:] if place] == want.prompt_logprobs[1:]


def test_every_form_of_a_prompt(compat: vllm_compat.LLM) -> None:
    tokenizer = compat.get_tokenizer()
    ids = tokenizer.encode("The loom is")
    forms: list[Any] = ["The loom is", ids, {"prompt": "The loom is"}, TokensPrompt(prompt_token_ids=ids), {"prompt": "x", "prompt_token_ids": ids, "cache_salt": "a"}]
    outputs = compat.generate(forms, GREEDY)
    assert len({output.outputs[0].text for output in outputs}) == 1
    assert [output.prompt for output in outputs] == ["The loom is", None, "The loom is", None, "x"]
    assert all(output.prompt_token_ids == ids for output in outputs)
    assert compat.generate(ids, GREEDY)[0].outputs == outputs[0].outputs
    assert tokenizer.decode(ids) == tokenizer.decode([*ids, 2], skip_special_tokens=True) == "The loom is"
    assert compat.generate(["The loom is"] * 2, GREEDY, priority=[1, -1])[1].outputs == outputs[0].outputs
    for wrong in ([], [1], [1, 2, 3]):
        with pytest.raises(ValueError, match=f"priority has {len(wrong)} entries, expected one or 2"):
            compat.generate(["The loom is"] * 2, GREEDY, priority=wrong)
    conversation = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    [chat] = compat.chat([conversation], GREEDY)
    assert (chat.prompt, chat.prompt_token_ids) == (text, tokenizer.apply_chat_template(conversation, add_generation_prompt=True))
    assert compat.generate([], GREEDY) == []
    with pytest.raises(NotImplementedError, match="'multi_modal_data', heddle takes text and token ids"):
        compat.generate({"prompt": "a", "multi_modal_data": {"image": 1}})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match="neither 'prompt' nor"):
        compat.generate({"cache_salt": "a"})  # type: ignore[typeddict-item]


def test_sampling_params_mean_what_they_do_in_vllm(llm: heddle.LLM, compat: vllm_compat.LLM) -> None:
    prompt = "The loom is"
    assert len(compat.generate(prompt, SamplingParams(ignore_eos=True))[0].outputs[0].token_ids) == 16, "max_tokens is 16"
    hot = SamplingParams(temperature=1.5, max_tokens=8)
    drawn = [compat.generate(prompt, hot)[0].outputs[0].text for _ in range(4)]
    assert len(set(drawn)) > 1, "calls without a seed differ"
    seeded = hot.clone()
    seeded.seed = 5
    assert len({compat.generate(prompt, seeded)[0].outputs[0].text for _ in range(2)}) == 1
    ids = compat.get_tokenizer().encode(prompt)
    [cut] = compat.generate(prompt, SamplingParams(temperature=0, max_tokens=4, truncate_prompt_tokens=2, prompt_logprobs=1))
    assert cut.prompt_token_ids == ids[-2:] and cut.outputs[0].text == llm.generate(ids[-2:], max_tokens=4).text
    yes = SamplingParams(temperature=1.5, max_tokens=20, structured_outputs=StructuredOutputsParams(choice=["yes", "no"]))
    assert compat.chat([{"role": "user", "content": "Is it?"}], yes)[0].outputs[0].text in ("yes", "no")
    schema = StructuredOutputsParams(json=json.dumps({"enum": [1, 2]}))
    assert compat.chat([{"role": "user", "content": "?"}], SamplingParams(structured_outputs=schema))[0].outputs[0].text in ("1", "2")
    first = compat.generate(prompt, GREEDY)[0].outputs[0]
    word = first.text[3:7]
    stopped = compat.generate(prompt, SamplingParams(temperature=0, stop=word, include_stop_str_in_output=True))[0].outputs[0]
    assert stopped.text.endswith(word) and (stopped.finish_reason, stopped.stop_reason) == ("stop", word)
    each = compat.generate([prompt] * 2, [GREEDY, SamplingParams(temperature=0, max_tokens=2)], lora_request=[None, OPPOSITE], use_tqdm=False)
    assert [len(output.outputs[0].token_ids) for output in each] == [8, 2]
    assert compat.get_default_sampling_params() == SamplingParams()


@pytest.mark.parametrize(
    ("options", "raised", "says"),
    [
        ({"best_of": 2}, NotImplementedError, "n draws several"), ({"logprobs": -1}, ValueError, "logprobs is -1, expected 0 to 100"),
        ({"thinking_token_budget": 5}, NotImplementedError, "thoughts"), ({"max_tokens": 0}, ValueError, "max_tokens is 0"),
        ({"output_kind": RequestOutputKind.DELTA}, NotImplementedError, "DELTA"), ({"detokenize": False}, NotImplementedError, "always have their text"),
        ({"guided_decoding": {"json": {}}}, NotImplementedError, "structured_outputs"), ({"truncate_prompt_tokens": 0}, ValueError, "truncate_prompt_tokens is 0"),
        ({"top_q": 1}, TypeError, "top_q"),
    ],
)
def test_sampling_params_that_are_refused(options: dict[str, Any], raised: type[Exception], says: str) -> None:
    with pytest.raises(raised, match=says):
        SamplingParams(**options)


def test_formats_that_are_refused() -> None:
    with pytest.raises(ValueError, match="structured_outputs has json, regex, expected one of json"):
        StructuredOutputsParams(json="{}", regex="a")
    with pytest.raises(ValueError, match="structured_outputs has none"):
        StructuredOutputsParams()
    with pytest.raises(NotImplementedError, match="whitespace_pattern"):
        StructuredOutputsParams(json="{}", whitespace_pattern=" ")


def test_adapters_are_those_of_their_requests(compat: vllm_compat.LLM, model: str) -> None:
    prompt = [{"role": "user", "content": "Opposites: hot, big, fast"}]
    assert compat.chat(prompt, GREEDY, lora_request=LoRARequest("twin", 9, OPPOSITE.lora_path))[0].outputs[0].text == "COLD, SMALL, SLOW"
    for wrong, says in (
        (LoRARequest("twin", 8, OPPOSITE.lora_path), "'twin' was .* with number 9, now it is .* with 8"),
        (LoRARequest("twin", 9, str(ADAPTERS["slug"])), "give load_inplace=True or another name"),
        (LoRARequest("other", 9, OPPOSITE.lora_path), "lora_int_id 9 is that of 'twin' and of 'other'"),
    ):
        with pytest.raises(ValueError, match=says):
            compat.chat(prompt, GREEDY, lora_request=wrong)
    slug = LoRARequest("twin", 9, str(ADAPTERS["slug"]), load_inplace=True)
    assert compat.chat(prompt, GREEDY, lora_request=slug)[0].outputs[0].text != "COLD, SMALL, SLOW"
    engine = compat.llm_engine
    assert 9 in engine.list_loras() and engine.remove_lora(9) and not engine.remove_lora(9)
    assert engine.add_lora(LoRARequest("other", 9, OPPOSITE.lora_path)) and 9 in engine.list_loras()
    for arguments, says in ((("a", 0, "b"), "lora_int_id is 0"), (("a", 1, ""), "lora_path of 'a' is empty")):
        with pytest.raises(ValueError, match=says):
            LoRARequest(*arguments)
    plain = vllm_compat.LLM(model, num_threads=2, max_model_len=64)
    with pytest.raises(ValueError, match=r"lora_request 'opposite' needs LLM\(enable_lora=True\)"):
        plain.generate("Hi", GREEDY, lora_request=OPPOSITE)
    with pytest.raises(TypeError, match="sampling_params is heddle._params.SamplingParams, expected heddle.vllm_compat"):
        plain.generate("Hi", heddle.SamplingParams())  # type: ignore[arg-type]


def test_the_engine_ends_and_aborts_requests(compat: vllm_compat.LLM) -> None:
    engine = compat.llm_engine
    assert engine.step() == [] and not engine.has_unfinished_requests()
    engine.add_request("long", "The", SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))
    engine.add_request("two", "The", SamplingParams(n=2, max_tokens=3, ignore_eos=True), lora_request=OPPOSITE)
    assert engine.get_num_unfinished_requests() == 2
    with pytest.raises(ValueError, match="request_id 'two' is that of a request that is not finished"):
        engine.add_request("two", "The", GREEDY)
    outputs = []
    while not outputs:
        outputs = engine.step()
    assert outputs[0].request_id == "two" and [len(each.token_ids) for each in outputs[0].outputs] == [3, 3]
    engine.abort_request("long")
    while engine.has_unfinished_requests():
        outputs += engine.step()
    assert outputs[1].outputs[0].finish_reason == "abort"
    engine.add_request("wrong", "The", SamplingParams(top_p=7))
    with pytest.raises(ValueError, match="request 'wrong': top_p is 7"):
        while engine.has_unfinished_requests():
            engine.step()
    engine.add_request("later", "The", GREEDY, priority=1)
    engine.add_request("sooner", "The", GREEDY, priority=-1)
    ended = []
    while engine.has_unfinished_requests():
        ended += engine.step()
    assert sorted(output.request_id for output in ended) == ["later", "sooner"]
    assert ended[0].outputs[0].token_ids == ended[1].outputs[0].token_ids


def test_options_are_those_of_heddle() -> None:
    given = {
        "enable_lora": True, "seed": 3, "dtype": "bfloat16", "max_model_len": 99, "max_num_seqs": 5, "max_loras": 2, "block_size": 32,
        "enable_prefix_caching": False, "kv_cache_dtype": "bfloat16", "generation_config": "vllm", "device": "auto", "tokenizer": "a-model",
        "max_num_batched_tokens": 64, "tensor_parallel_size": 1, "trust_remote_code": True, "adapter_memory": 7, "kv_cache_memory_bytes": None,
    }
    options = translated("a-model", given)
    assert options.options == {
        "model": "a-model", "max_context": 99, "max_batch": 5, "max_batch_adapters": 2, "page_size": 32, "prefix_cache": False, "kv_type": "bf16",
        "generation_config": "none", "device": None, "prefill_chunk": 64, "adapter_memory": 7,
    }
    assert (options.enable_lora, options.seed, options.activations) == (True, 3, "bf16")
    for config, own in (
        ({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}, {"draft_tokens": 5, "draft_ngram": (2, 4)}),
        ({"method": "ngram", "prompt_lookup_max": 3}, {"draft_ngram": (3, 3)}), ({"method": "ngram", "prompt_lookup_min": 3}, {"draft_ngram": (3, 3)}),
        ({"method": "suffix"}, {}),
        ({"method": "draft_model", "model": "small", "num_speculative_tokens": 5}, {"speculate": "model", "draft_model": "small", "draft_tokens": 5}),
        ({"method": "medusa", "model": "h"}, {"speculate": "heads", "draft_model": "h"}), ({"method": "eagle3", "model": "e"}, {"draft_model": "e"}),
    ):
        assert translated("m", {"speculative_config": config}).options == {"model": "m", "speculate": config["method"], **own}
    assert translated("m", {"speculative_config": None}).options == {"model": "m"}
    names = set(heddle.LLM.__init__.__wrapped__.__code__.co_varnames)  # type: ignore[attr-defined]
    assert set(RENAMED.values()) <= names and not names & (set(ONLY) | set(WITHOUT_EFFECT))


@pytest.mark.parametrize(
    ("options", "raised", "says"),
    [
        ({"tensor_parallel_size": 2}, NotImplementedError, "one device"), ({"gpu_memory_utilization": 0.5}, NotImplementedError, "kv_memory"),
        ({"quantization": "awq"}, NotImplementedError, "files"), ({"tokenizer": "other"}, NotImplementedError, "model's own"),
        ({"dtype": "int8"}, NotImplementedError, "leave it out"), ({"kv_cache_dtype": "fp8_e5m2"}, NotImplementedError, "fp8_e5m2.*expected auto, float16, .*fp8_e4m3"),
        ({"speculative_config": {}}, NotImplementedError, "method None, expected ngram, suffix, draft_model, "),
        ({"speculative_config": {"method": "mtp"}}, NotImplementedError, "method 'mtp', expected"),
        ({"speculative_config": {"method": "eagle3"}}, NotImplementedError, "method 'eagle3' needs a model"),
        ({"speculative_config": {"method": "ngram", "model": "x"}}, NotImplementedError, "method 'ngram' takes no model"),
        ({"speculative_config": {"method": "draft_model", "model": "x", "prompt_lookup_max": 3}}, NotImplementedError, "'draft_model' takes no prompt_lookup_max"),
        ({"speculative_config": {"method": "ngram", "quantization": "x"}}, NotImplementedError, "has 'quantization', expected method, num_speculative_tokens, "),
        ({"speculative_config": {"method": "suffix", "suffix_decoding_max_tree_depth": 9}}, NotImplementedError, "tree_depth.*; draft_memory bounds"), ({"enable_lorra": True}, TypeError, "did you mean enable_lora"),
        ({"n_ctx": 5}, TypeError, "it is max_context here"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], raised: type[Exception], says: str) -> None:
    with pytest.raises(raised, match=says):
        EngineArgs("a-model", **options)


def test_options_without_effect_are_logged(model: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "heddle"):
        vllm_compat.LLM(model, max_model_len=64, max_lora_rank=8, enforce_eager=True)
    assert [line for line in caplog.messages if "no effect" in line] == [
        "max_lora_rank has no effect: ranks may be 1 to 512", "enforce_eager has no effect: bits do not depend on CUDA graphs"]


def test_a_type_that_the_device_does_not_compute_in_is_refused(model: str) -> None:
    with pytest.raises(NotImplementedError, match="dtype='float16': the model computes in f32 on cpu; leave it out"):
        vllm_compat.LLM(model, dtype="float16", device="cpu", max_model_len=64)
    assert "max_model_len=64" in repr(EngineArgs(model, max_model_len=64))
    engine = LLMEngine.from_engine_args(EngineArgs(model, dtype="float32", device="cpu", max_model_len=64))
    assert engine.get_tokenizer().decode(engine.get_tokenizer().encode("Hi")) == "Hi"
