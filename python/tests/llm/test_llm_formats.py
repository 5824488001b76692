"""`format` of heddle.LLM: what answers must be, and what is no format."""

from __future__ import annotations

import enum
import json
import re
from typing import Any

import pytest

import heddle

SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
HOT: dict[str, Any] = {"temperature": 1.5, "max_tokens": 200}


class Color(enum.Enum):
    COLD = "teal"
    WARM = "ochre"


class Model:
    """What a pydantic class has of one."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return SCHEMA


class Adapter:
    """What a pydantic TypeAdapter has of one."""

    def json_schema(self) -> dict[str, Any]:
        return SCHEMA


def is_n(text: str) -> bool:
    return json.loads(text) in ({"n": 1}, {"n": 2})


TAG = {"format": {"type": "tag", "begin": "<n>", "content": {"type": "json_schema", "json_schema": {"enum": [1, 2]}}, "end": "</n>"}}
FORMATS = [
    (SCHEMA, is_n), (Model, is_n), (Adapter(), is_n), (Color, lambda text: text in ("teal", "ochre")), (["yes", "no"], lambda text: text in ("yes", "no")),
    (re.compile("[a-z]{4}"), lambda text: re.fullmatch("[a-z]{4}", text)),
    (heddle.Grammar('root ::= "x" [0-9]'), lambda text: re.fullmatch("x[0-9]", text)),
    (heddle.Grammar('start: "y" /[0-9]/', "lark"), lambda text: re.fullmatch("y[0-9]", text)),
    (heddle.StructuralTag(TAG), lambda text: text in ("<n>1</n>", "<n>2</n>")),
]


def test_a_format_that_forces_tokens_has_drafts_and_no_answer_depends_on_them(model: str, llm: heddle.LLM) -> None:
    forced: dict[str, Any] = {"format": ["a forced answer of several tokens"], "max_tokens": 32}
    want = llm.chat("Which one?", **forced)
    assert (want.drafted_tokens, want.accepted_tokens) == (0, 0)
    for _ in range(6):  # whether a draft pays follows from what steps cost, as an engine measures them on a machine that may be busy
        drafting = heddle.LLM(model, speculate="ngram", draft_tokens=4, draft_ngram=(2, 3))
        if drafting.chat("Which one?", **forced).accepted_tokens:
            break
        drafting.close()
    with drafting:
        for speculation in (None, True, "ngram"):
            answer = drafting.chat("Which one?", speculation=speculation, **forced)
            assert answer == want and 0 < answer.accepted_tokens <= answer.drafted_tokens, speculation
        stats = drafting.stats()
        assert list(stats.drafts_by_source) == ["eagle3", "format", "heads", "model", "ngram", "prediction", "suffix"]
        for i, whole in enumerate((stats.drafted_tokens, stats.accepted_tokens)):
            assert whole > 0 and sum(counts[i] for counts in stats.drafts_by_source.values()) == whole
            assert sum(counts[i] for counts in stats.drafts_by_place) == whole
        assert f"drafted_tokens={stats.drafted_tokens}" in repr(stats)
        for off in (False, "off"):
            answer = drafting.chat("Which one?", speculation=off, **forced)
            assert answer == want and answer.drafted_tokens == 0
        hello = llm.generate("Hello", max_tokens=8)
        params = [heddle.SamplingParams(prediction="there, how"), heddle.SamplingParams(speculation=False)]
        for predicted in drafting.generate(["Hello", "Hello"], params, max_tokens=8):
            assert predicted == hello and predicted.accepted_prediction_tokens <= predicted.accepted_tokens
            assert predicted.rejected_prediction_tokens >= 0
        with pytest.raises(ValueError, match="speculation is 'eagle9', expected off, ngram, suffix"):
            drafting.generate("Hello", speculation="eagle9")
        with pytest.raises(TypeError, match="speculation is int, expected a text"):
            drafting.generate("Hello", speculation=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="speculation is ngram, but the engine has none"):
        llm.generate("Hello", speculation="ngram")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"speculate": "eagle9"}, "speculation is 'eagle9', expected off, ngram, suffix"), ({"draft_tokens": 16}, "max_drafts is 16, expected 0 to 15"),
        ({"draft_ngram": (4, 2)}, "min_ngram is 4, expected at most max_ngram = 2"), ({"draft_memory": -1}, "speculation memory is -1"),
    ],
)
def test_options_of_drafts_that_are_wrong(model: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        heddle.LLM(model, **options)


@pytest.mark.parametrize(("given", "fits"), FORMATS)
def test_answers_have_their_format(llm: heddle.LLM, given: Any, fits: Any) -> None:
    for seed in range(3):
        answer = llm.chat("Hello", format=given, seed=seed, **HOT)
        assert answer.finish_reason == "stop"
        assert fits(answer.text), answer.text
    raw = llm.generate("Hello", format=given, **HOT)
    assert fits(raw.text)
    with llm.stream_chat("Hello", format=given, seed=2, **HOT) as stream:
        assert "".join(stream) == answer.text


def test_any_object(llm: heddle.LLM) -> None:
    answer = llm.chat("Hello", format="json", max_tokens=400)
    assert answer.text.startswith("{")
    assert answer.finish_reason == "length" or isinstance(json.loads(answer.text), dict)


def test_none_is_any_text(llm: heddle.LLM) -> None:
    assert llm.chat("Hello", format=None, max_tokens=8) == llm.chat("Hello", max_tokens=8)


def test_a_cut_answer_is_the_beginning_of_one(llm: heddle.LLM) -> None:
    answer = llm.chat("Hello", format=re.compile("(abc){40}"), max_tokens=5)
    assert answer.finish_reason == "length"
    assert ("abc" * 40).startswith(answer.text)
    assert answer.text


def test_several_answers_have_it(llm: heddle.LLM) -> None:
    answers = llm.chat(["Hello", "Goodbye"], format=["yes", "no"], n=3, temperature=1.5)
    assert all(a.text in ("yes", "no") for answer in answers for a in answer.each)


@pytest.mark.parametrize(
    ("given", "raised", "says"),
    [
        ("yaml", ValueError, "format is 'yaml'"), (3, TypeError, "format is int"), ([], TypeError, "list"), (["a", 1], TypeError, "list"),
        (b"ab", TypeError, "bytes"), (int, TypeError, "format is type"), (re.compile("a", re.I), ValueError, "flags"), (re.compile(b"a"), ValueError, "bytes"),
        (heddle.Grammar("a", "b"), ValueError, "syntax is 'b'"), (re.compile("a(?=b)"), ValueError, "Lookahead"),
        ({"type": "nothing"}, ValueError, "nothing"), (heddle.Grammar("root ::= other"), ValueError, "other"),
    ],
)
def test_what_is_no_format(llm: heddle.LLM, given: Any, raised: type[Exception], says: str) -> None:
    with pytest.raises(raised, match=re.escape(says)):
        llm.chat("Hello", format=given)
