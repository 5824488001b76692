"""Adapters of heddle.LLM: they come and go, are found in a folder, and what is odd about them is a warning."""

from __future__ import annotations

import json
import pathlib
import shutil
import struct
import warnings

import numpy as np
import pytest
import xxhash
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
    with pytest.warns(UserWarning, match="adapter other .* was made for acme/other-7b, the model is ") as found:
        llm.add_adapter("other", folder)
    assert found[0].filename == __file__
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


def tensors_of(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Of an adapter_model.safetensors in f32 or f16."""
    data = (folder / "adapter_model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    types = {"F32": np.float32, "F16": np.float16}
    tensors = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        values = np.frombuffer(data[8 + size + begin : 8 + size + end], types[tensor["dtype"]])
        tensors[name] = values.reshape(tensor["shape"])
    return tensors


def digest_of(tensors: dict[str, np.ndarray], scales: dict[str, float]) -> str:
    """The formula of docs/adapter_receipts.md."""
    types = {"float32": "f32", "float16": "f16"}
    lines = []
    for name, values in tensors.items():
        rows, columns = values.shape
        digest = xxhash.xxh3_128_hexdigest(values.tobytes())
        lines.append(f"{name} {types[str(values.dtype)]} {rows}x{columns} {digest}\n")
        if ".lora_A." in name:
            module = name.removeprefix("base_model.model.").split(".lora_A.")[0]
            bits = struct.unpack("<I", struct.pack("<f", scales[module.rsplit(".", 1)[1]]))[0]
            lines.append(f"{module} scale {bits:08x}\n")
    return xxhash.xxh3_128_hexdigest("".join(sorted(lines)).encode())


def test_an_adapter_from_memory_answers_as_from_its_folder(llm: heddle.LLM) -> None:
    folder = pathlib.Path(ADAPTERS["slug"])
    tensors, config = tensors_of(folder), json.loads((folder / "adapter_config.json").read_text())
    receipt = llm.load_adapter("policy", tensors, config)
    try:
        want = llm.chat(SLUG[0], adapter="slug")
        got = llm.chat(SLUG[0], adapter="policy")
        assert (got.text, got.logprobs) == (want.text, want.logprobs)
        assert got.adapter_digest == want.adapter_digest == receipt.digest
        assert llm.chat("Hi", max_tokens=1).adapter_digest is None
        measured = llm.adapter_receipt("policy")
        assert measured is not None and 0 < measured.delta_norm < measured.base_norm
        assert receipt.digest in str(measured) and receipt.tensors_given == len(tensors)
        # Others take its place, from a text and from tensors of another layout.
        others = {name: np.asfortranarray(values) for name, values in tensors.items()}
        with pytest.raises(ValueError, match="row-major"):
            llm.load_adapter("policy", others, json.dumps(config))
        halved = {name: values * values.dtype.type(0.5) for name, values in tensors.items()}
        assert llm.load_adapter("policy", halved, json.dumps(config)).digest != receipt.digest
        with pytest.raises(ValueError, match="given twice"):
            llm.load_adapter("policy", tensors, config, replace=False)
        with pytest.raises(TypeError, match="config is list"):
            llm.load_adapter("policy", tensors, [config])
        with pytest.raises(ValueError, match="adapter policy: holds no tensor|holds no tensor"):
            llm.load_adapter("policy", {}, config)
    finally:
        llm.remove_adapter("policy")


def test_an_adapter_that_changes_nothing_is_told(llm: heddle.LLM) -> None:
    folder = pathlib.Path(ADAPTERS["slug"])
    tensors, config = tensors_of(folder), json.loads((folder / "adapter_config.json").read_text())
    zero = {name: values * 0 if ".lora_B." in name else values for name, values in tensors.items()}
    with pytest.warns(UserWarning, match="adapter fresh: changes nothing"):
        receipt = llm.load_adapter("fresh", zero, config)
    assert receipt.is_zero
    assert llm.chat("Hi", adapter="fresh", max_tokens=4).text == llm.chat("Hi", max_tokens=4).text
    llm.remove_adapter("fresh")


def test_anyone_can_compute_the_digest(llm: heddle.LLM) -> None:
    folder = pathlib.Path(ADAPTERS["slug"])
    receipt = llm.adapter_receipt("slug", norms=False)
    assert receipt is not None
    scales = {site.module.rsplit(".", 1)[1]: site.scale for site in receipt.sites}
    assert digest_of(tensors_of(folder), scales) == receipt.digest
