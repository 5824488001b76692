"""Adapters of heddle.LLM: they come and go, are found in a folder, and what is odd about them is a warning."""

from __future__ import annotations

import json
import pathlib
import shutil
import warnings

import pytest
from llm_cases import ADAPTERS, OPPOSITE, ROOT, SLUG

import heddle


def test_adapters_come_and_go_while_prompts_run(llm: heddle.LLM) -> None:
    with llm.stream_chat(OPPOSITE[0], adapter="opposite") as running:
        first = next(running)
        llm.add_adapter("opposite", ADAPTERS["slug"], replace=True)
        slug = llm.chat(SLUG[0], adapter="opposite")
        assert first + "".join(running) == "COLD, SMALL, SLOW"
    assert slug.text == "the-quick-brown-river"
    with pytest.raises(ValueError, match='adapter name "opposite" is given twice'):
        llm.add_adapter("opposite", ADAPTERS["opposite"])
    llm.remove_adapter("opposite")
    assert llm.adapters == ["slug", "sql"]
    with pytest.raises(ValueError, match='unknown adapter "opposite"'):
        llm.chat("Hi", adapter="opposite")
    with pytest.raises(ValueError, match='unknown adapter "opposite"'):
        llm.remove_adapter("opposite")
    llm.add_adapter("opposite", ADAPTERS["opposite"])
    assert llm.chat(OPPOSITE[0], adapter="opposite").text == "COLD, SMALL, SLOW"


def test_an_adapter_for_another_model_is_a_warning(llm: heddle.LLM, tmp_path: pathlib.Path) -> None:
    folder = shutil.copytree(ADAPTERS["slug"], tmp_path / "other")
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "acme/other-7b"}))
    with pytest.warns(UserWarning, match="adapter other .* was made for acme/other-7b, the model is "):
        llm.add_adapter("other", folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        llm.remove_adapter("other")


def test_what_is_odd_about_an_adapter_of_the_folder_is_a_warning(model: str, tmp_path: pathlib.Path) -> None:
    folder = shutil.copytree(ADAPTERS["slug"], tmp_path / "odd")
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"rank_patern": {}}))
    shutil.copytree(ADAPTERS["sql"], tmp_path / "sql")
    with heddle.LLM(model, max_batch=2, num_threads=2, adapter_dir=tmp_path) as llm:
        with pytest.warns(UserWarning, match="'rank_patern' is a field that heddle does not know, .* did you mean rank_pattern") as found:
            llm.chat("Hi", adapter="odd", max_tokens=1)
        assert found[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            llm.chat(["Hi", "Hi"], adapter=["odd", "sql"], max_tokens=1)  # it is the one of before


def test_names_of_adapters_are_unique(model: str) -> None:
    folder = ROOT / "examples" / "adapters"
    with pytest.raises(ValueError, match="two adapters are called sql: .*/slug and .*/sql; give one of them another name"):
        heddle.LLM(model, {"sql": ADAPTERS["slug"]}, num_threads=2, adapter_dir=folder)
    with pytest.raises(ValueError, match="the name base means the model without an adapter"):
        heddle.LLM(model, {"base": ADAPTERS["slug"]}, num_threads=2)
    with heddle.LLM(model, {"sql": ADAPTERS["sql"]}, num_threads=2, adapter_dir=folder) as llm:
        assert llm.adapters == ["sql"]
        with pytest.raises(ValueError, match="two adapters are called opposite: .*/slug and .*/opposite; give"):
            llm.add_adapter("opposite", ADAPTERS["slug"])
        with pytest.raises(ValueError, match="two adapters are called slug: acme/slug and .*/slug; give"):
            llm.add_adapter("slug", "acme/slug")  # perhaps in the Hugging Face cache
        llm.add_adapter("opposite", ADAPTERS["slug"], replace=True)
        assert llm.chat(SLUG[0], adapter="opposite").text == "the-quick-brown-river"


def test_adapters_are_found_in_a_folder(llm: heddle.LLM, model: str) -> None:
    """The bits of adapters that were added, where memory holds one at a time; no name leads out of the folder."""
    names = ["opposite", "slug", "sql", "opposite"]
    want = llm.chat([OPPOSITE[0]] * 4, adapter=names, max_tokens=6)
    folder = ROOT / "examples" / "adapters"
    with heddle.LLM(model, max_batch=2, num_threads=2, adapter_dir=folder, adapter_memory=4 << 20) as found:
        got = found.chat([OPPOSITE[0]] * 4, adapter=names, max_tokens=6)
        for name in ("../adapters/sql", str(folder / "sql"), "nobody", ".."):
            with pytest.raises(ValueError, match="unknown adapter"):
                found.chat("Hi", adapter=name)
    with heddle.LLM(model, max_batch=2, num_threads=2, adapter_dir=folder, adapter_memory=1) as too_small:
        told = too_small.chat(["Hi", "Ho"], adapter=["slug", None], max_tokens=1, keep_going=True)
        assert [answer.error_code for answer in told] == ["out_of_memory", None]
        with pytest.raises(MemoryError, match="slug: needs [0-9]+ bytes of adapter memory, there are 1 "):
            too_small.chat("Hi", adapter="slug")
    assert [(a.token_ids, a.logprobs) for a in got] == [(a.token_ids, a.logprobs) for a in want]
