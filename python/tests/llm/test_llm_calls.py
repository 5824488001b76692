"""What the calls of heddle.LLM share: SamplingParams, adapters without names, texts and tokens, what is shown."""

from __future__ import annotations

import copy
import html.parser
import pathlib
import pickle
from typing import Any

import pytest
from llm_cases import ADAPTERS, OPPOSITE, SLUG

import heddle

PROMPT = "The loom is"
HOT: dict[str, Any] = {"max_tokens": 8, "temperature": 1.5}


def test_params_are_keywords_as_a_value(llm: heddle.LLM) -> None:
    params = heddle.SamplingParams(seed=4, **HOT)
    want = llm.generate(PROMPT, seed=4, **HOT)
    assert llm.generate(PROMPT, params) == llm.generate(PROMPT, sampling_params=params) == llm.generate(PROMPT, **params) == want
    assert llm.generate(PROMPT, params.replace(seed=5)) == llm.generate(PROMPT, seed=5, **HOT) != want
    assert llm.chat(*OPPOSITE[:1], heddle.SamplingParams(max_tokens=16), adapter="opposite").text == "COLD, SMALL, SLOW"
    assert "".join(llm.stream(PROMPT, params)) == want.text
    assert "".join(llm.stream_chat("Hi", params)) == llm.chat("Hi", params).text
    several = llm.generate([PROMPT, "Once"], heddle.SamplingParams(n=2, seed=4, **HOT))
    assert several == llm.generate([PROMPT, "Once"], n=2, seed=4, **HOT) and several[0].each[0] == want


def test_each_prompt_may_have_its_own(llm: heddle.LLM) -> None:
    one, two = heddle.SamplingParams(seed=4, **HOT), heddle.SamplingParams(max_tokens=2)
    answers = llm.generate([PROMPT] * 3, [one, two, None], adapter="slug", top_k=50)
    assert answers[0] == llm.generate(PROMPT, one, adapter="slug", top_k=50), "its seed as it is"
    assert answers[1] == llm.generate(PROMPT, max_tokens=2, adapter="slug", top_k=50)
    assert answers[2] == llm.generate(PROMPT, adapter="slug", top_k=50)
    unseeded = heddle.SamplingParams(**HOT)
    assert llm.generate([PROMPT] * 2, [unseeded] * 2) == llm.generate([PROMPT] * 2, unseeded) == llm.generate([PROMPT] * 2, **HOT)
    with pytest.raises(ValueError, match="sampling_params has 1 entries, expected one or 2"):
        llm.generate([PROMPT] * 2, [one])
    with pytest.raises(TypeError, match="max_tokens is given twice: in sampling_params and as a keyword"):
        llm.generate(PROMPT, one, max_tokens=5)
    for wrong in ({"max_tokens": 5}, "max_tokens", 5):
        with pytest.raises(TypeError, match="expected heddle.SamplingParams"):
            llm.generate(PROMPT, wrong)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="n is given to a stream"):
        llm.stream(PROMPT, heddle.SamplingParams(n=2))


def test_params_are_a_mapping_that_does_not_change() -> None:
    params = heddle.SamplingParams(max_tokens=4, stop="\n")
    assert (params.max_tokens, params.temperature, params["stop"], dict(params)) == (4, None, "\n", {"max_tokens": 4, "stop": "\n"})
    assert repr(params) == "SamplingParams(max_tokens=4, stop='\\n')" and "temperature" in dir(params)
    for other in (copy.deepcopy(params), pickle.loads(pickle.dumps(params)), params.replace()):
        assert other == params and type(other) is heddle.SamplingParams
    with pytest.raises(AttributeError, match=r"do not change; use replace\(max_tokens=...\)"):
        params.max_tokens = 5
    with pytest.raises(AttributeError, match="SamplingParams has no 'max_token'"):
        params.max_token  # noqa: B018


def test_adapters_without_names_are_called_as_their_folders(model: str, tmp_path: pathlib.Path) -> None:
    snapshot = tmp_path / "models--acme--to-slugs" / "snapshots" / "0123abc"
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(ADAPTERS["slug"])
    options: dict[str, Any] = {"num_threads": 2, "max_context": 256}
    with heddle.LLM(model, [ADAPTERS["opposite"], f"{ADAPTERS['sql']}/", snapshot], **options) as llm:
        assert llm.adapters == ["opposite", "sql", "to-slugs"]
        assert llm.chat(SLUG[0], adapter="to-slugs").text == "the-quick-brown-river"
    for one in (ADAPTERS["opposite"], str(ADAPTERS["opposite"])):
        with heddle.LLM(model, adapters=one, **options) as llm:
            assert llm.adapters == ["opposite"]
            assert repr(llm) == f"LLM({llm.model.path!r}, adapters=['opposite'], device={llm.device!r})"
    assert repr(llm) == "LLM(closed)"
    twin = tmp_path / "sql"
    with pytest.raises(ValueError, match=f"two adapters are called sql: .*/adapters/sql and {twin}; name them"):
        heddle.LLM(model, [ADAPTERS["sql"], twin])
    for wrong, says in ((5, "adapters is int, expected a path, a list of paths or a mapping"), ([5], r"adapters\[0\] is int, expected a path")):
        with pytest.raises(TypeError, match=says):
            heddle.LLM(model, wrong)  # type: ignore[arg-type]


def test_texts_become_tokens_and_back(llm: heddle.LLM) -> None:
    text = "Ünï¢ode 🧶 and  spaces\n"
    ids = llm.tokenize(text)
    assert llm.detokenize(ids) == text == llm.detokenize(llm.tokenize(text, adapter="sql", add_special_tokens=False), adapter="sql")
    (end,) = llm.tokenize("<|im_end|>")
    assert llm.detokenize([*ids, end]) == text + "<|im_end|>" and llm.detokenize([*ids, end], skip_special_tokens=True) == text
    wool = llm.tokenize("🧶")
    assert len(wool) > 1 and llm.detokenize(wool[:1]) == "�" and llm.detokenize([]) == ""
    for call in (lambda: llm.tokenize("a", adapter="nobody"), lambda: llm.detokenize([1], adapter="nobody")):
        with pytest.raises(ValueError, match='unknown adapter "nobody"'):
            call()
    for wrong in (10**7, -1, 2**40):
        with pytest.raises(ValueError, match=str(wrong)):
            llm.detokenize([wrong])


def test_the_chat_template_makes_the_prompt_of_chat(llm: heddle.LLM) -> None:
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Red or blue?"}]
    ids = llm.apply_chat_template(conversation)
    text = llm.apply_chat_template(conversation, tokenize=False)
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nRed or blue?<|im_end|>\n<|im_start|>assistant\n"
    assert llm.detokenize(ids) == text and llm.tokenize(text, add_special_tokens=False) == ids
    answer = llm.chat(conversation, max_tokens=6)
    assert llm.generate(ids, max_tokens=6) == answer and answer.prompt_tokens == len(ids)
    assert llm.apply_chat_template("Red or blue?", system="Be brief.", adapter="sql") == ids
    assert text.startswith(llm.apply_chat_template(conversation, tokenize=False, add_generation_prompt=False))
    turns = [*conversation, {"role": "assistant", "content": "Re"}]
    going_on = llm.apply_chat_template(turns, tokenize=False, add_generation_prompt=False, continue_final_message=True)
    assert going_on == text + "Re"
    with pytest.raises(ValueError, match="continue_final_message"):
        llm.apply_chat_template(turns, continue_final_message=True)


def test_stats_are_told(llm: heddle.LLM) -> None:
    before = llm.stats()
    llm.generate(PROMPT, max_tokens=3, ignore_end=True)
    stats = llm.stats()
    assert stats.generated_tokens == before.generated_tokens + 3
    assert repr(stats).startswith("EngineStats(prefill_seconds=") and f"generated_tokens={stats.generated_tokens}, " in repr(stats)
    assert repr(llm.load).startswith("EngineLoad(num_waiting=0, num_running=0, ")


class Cells(html.parser.HTMLParser):
    """The texts of the cells of a table, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.rows[-1][-1] += data


def test_answers_are_shown_as_a_table(llm: heddle.LLM) -> None:
    answers = llm.chat([OPPOSITE[0], "<b>&amp;\n"], adapter=["opposite", None], max_tokens=8)
    table = Cells(answers._repr_html_())
    assert table.rows[0] == ["prompt", "adapter", "answer"]
    assert table.rows[1] == [OPPOSITE[0], "opposite", f"{answers[0].text}\n{answers[0].finish_reason}, {len(answers[0].token_ids)} tokens"]
    assert table.rows[2][:2] == ["<b>&amp;\n", "base"] and "b" not in table.tags, "markup is text"
    assert repr(answers[1]) == f"Answer({answers[1].text!r}, adapter=None, finish_reason={answers[1].finish_reason!r}, {len(answers[1].token_ids)} tokens)"
    assert Cells(answers[0]._repr_html_()).rows == table.rows[:2]
    assert "prompt" not in Cells(llm.generate(llm.tokenize("a"), max_tokens=1)._repr_html_()).rows[0]
    side = [None, "opposite", [{"name": "sql", "scale": 0.5}, {"name": "slug"}]]
    several = llm.chat([OPPOSITE[0], SLUG[0]], each_adapter=side, max_tokens=3)
    table = Cells(several._repr_html_())
    assert table.rows[0] == ["prompt", "base", "opposite", "0.5 sql + 1 slug"]
    assert [row[1:] for row in table.rows[1:]] == [[f"{a.text}\n{a.finish_reason}, {len(a.token_ids)} tokens" for a in s.each] for s in several]
    assert "each=[3 answers]" in repr(several[0])
    assert Cells(llm.chat("Hi", n=2, max_tokens=1)._repr_html_()).rows[0] == ["prompt", "base, 0", "base, 1"]
    wrong = llm.chat(["a"], adapter="<i>", keep_going=True)
    assert Cells(wrong._repr_html_()).rows[1][2].endswith("\nerror") and "error='unknown adapter" in repr(wrong[0])
    assert Cells(heddle.Answers()._repr_html_()).rows == [[]]


def test_the_prompt_of_an_answer(llm: heddle.LLM) -> None:
    conversation = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Wool?"}]
    assert llm.chat([conversation, "Hi"], max_tokens=1) == [llm.chat(conversation, max_tokens=1), llm.chat("Hi", max_tokens=1)]
    assert [a.prompt for a in llm.chat([conversation, "Hi"], max_tokens=1)] == ["Wool?", "Hi"]
    by_ids = llm.generate(llm.tokenize("Hi"), max_tokens=1)
    assert by_ids.prompt == "" and by_ids == llm.generate("Hi", max_tokens=1), "equal all the same"
    with llm.stream("Hi", max_tokens=1) as stream:
        list(stream)
    assert stream.answer is not None and stream.answer.prompt == "Hi"


def test_activations_in_int8_are_near_those_in_f32(model: str, llm: heddle.LLM) -> None:
    want = llm.generate(PROMPT, max_tokens=1)
    with heddle.LLM(model, activations="int8") as rounded:
        answer = rounded.generate(PROMPT, max_tokens=1)
    assert answer.logprobs != want.logprobs and answer.text == want.text
    with pytest.raises(ValueError, match="activations is 'fp8', expected f32 or int8"):
        heddle.LLM(model, activations="fp8")
