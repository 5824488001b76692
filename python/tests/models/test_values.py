"""Embeddings and classes of heddle.LLM against transformers and PEFT: pooling as folders say it, score heads of models and of adapters."""

from __future__ import annotations

import json
import math
import pathlib
import random
import warnings
from typing import Any

import pytest
from frameworks import SEED, TORCH_WANTED

import heddle

pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")

VOCAB = 300
PAD = "<pad>"
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}
FAMILIES = ["Llama", "Mistral", "Qwen2", "Qwen3"]
BOUND = 2e-5  # of the largest number


def write_tokenizer(folder: pathlib.Path) -> None:
    """Tokens of bytes; what the tests ask has ids."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = [chr(b) if b in plain else chr(256 + b) for b in range(256)]
    vocabulary = {text: i for i, text in enumerate(dict.fromkeys(letters))}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": 256, "content": PAD, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PAD}))


def make_model(family: str, kind: str, folder: pathlib.Path, **more: Any) -> Any:
    """A random model of transformers, saved."""
    import torch
    import transformers

    torch.manual_seed(SEED)
    config = getattr(transformers, f"{family}Config")(**SMALL, head_dim=8, **more)
    model = getattr(transformers, family + kind)(config).to(torch.float32).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if "norm" not in name:
                values.copy_(torch.randn_like(values) * 0.3)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return model


def prompts_of(lengths: tuple[int, ...] = (1, 4, 17, 40)) -> list[list[int]]:
    draw = random.Random(SEED)
    return [[draw.randrange(3, VOCAB) for _ in range(length)] for length in lengths]


def states_of(model: Any, tokens: list[int]) -> Any:
    """Those after the last norm."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1][0]


def pooled(states: Any, pooling: str, normalize: bool) -> list[float]:
    vector = {"lasttoken": states[-1], "cls": states[0], "mean": states.mean(0)}[pooling]
    return (vector / vector.norm() if normalize else vector).tolist()


def assert_near(got: list[float], want: list[float], largest: float | None = None) -> None:
    """largest: of numbers of this kind, where `want` may have only one, which may be near 0."""
    assert len(got) == len(want)
    largest = largest or max(abs(x) for x in want)
    assert all(abs(a - b) <= BOUND * largest for a, b in zip(got, want)), (got[:4], want[:4])


def write_pooling(folder: pathlib.Path, pooling: str, normalize: bool) -> None:
    """The files as sentence-transformers saves them."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    modules = [{"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
               for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(
        {"word_embedding_dimension": SMALL["hidden_size"], **{f"pooling_mode_{mode}": name == pooling for name, mode in modes.items()}}))


def open_quietly(folder: pathlib.Path, **more: Any) -> heddle.LLM:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return heddle.LLM(folder, num_threads=1, **more)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_alone_embeds_as_its_folder_says(family: str, tmp_path: pathlib.Path) -> None:
    model = make_model(family, "Model", tmp_path)
    for pooling, normalize in (("mean", True), ("lasttoken", False), ("cls", True)):
        write_pooling(tmp_path, pooling, normalize)
        with open_quietly(tmp_path, prefill_chunk=7) as llm:
            for tokens, got in zip(prompts_of(), llm.embed(prompts_of())):
                assert_near(got, pooled(states_of(model, tokens), pooling, normalize))
            with pytest.raises(NotImplementedError, match="model without a head"):
                llm.generate([5, 6])
            with pytest.raises(NotImplementedError, match="score head"):
                llm.classify([5, 6])


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_vectors_are_those_of_sentence_transformers(family: str, tmp_path: pathlib.Path) -> None:
    """From folders that it has saved, of texts that differ in length, which are a batch in both."""
    import sentence_transformers
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    texts = ["a", "two words", "Ein längerer Satz, in dem mehr steht.", "as long a text as there is among these, of some ninety letters in one line", "b"]
    make_model(family, "Model", tmp_path / "model")
    transformer = Transformer(str(tmp_path / "model"))
    for pooling, normalizes in (("lasttoken", True), ("mean", False), ("cls", True), ("mean", True)):
        folder = tmp_path / f"{pooling}_{normalizes}"
        modules = [transformer, Pooling(SMALL["hidden_size"], pooling), *([Normalize()] if normalizes else [])]
        sentence_transformers.SentenceTransformer(modules=modules, device="cpu").save(str(folder))
        want = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts, batch_size=len(texts))
        with open_quietly(folder, prefill_chunk=7) as llm:
            for got, vector in zip(llm.embed(texts), want, strict=True):
                assert_near(got, vector.tolist())
    joined = tmp_path / "joined"
    sentence_transformers.SentenceTransformer(modules=[transformer, Pooling(SMALL["hidden_size"], ("mean", "cls"))], device="cpu").save(str(joined))
    with open_quietly(joined) as llm:
        with pytest.raises(NotImplementedError, match="pooling by mean, cls is not supported"):
            llm.embed(texts)


def test_what_the_folder_says_and_heddle_does_not_do_is_named(tmp_path: pathlib.Path) -> None:
    make_model("Llama", "ForCausalLM", tmp_path)
    write_pooling(tmp_path, "mean", True)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules.insert(2, {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with open_quietly(tmp_path) as llm:
        assert len(llm.generate([5, 6], max_tokens=2).token_ids) == 2
        with pytest.raises(NotImplementedError, match="module 'Dense' is not supported"):
            llm.embed([5, 6])
        assert len(llm.embed([5, 6], pooling="mean")) == SMALL["hidden_size"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_labels", [1, 3])
def test_a_classifier_and_an_adapter_with_a_head_of_its_own(family: str, num_labels: int, tmp_path: pathlib.Path) -> None:
    import peft
    import torch

    names = {i: f"kind {i}" for i in range(num_labels)}
    model = make_model(family, "ForSequenceClassification", tmp_path / "model", num_labels=num_labels, id2label=names,
                       label2id={v: k for k, v in names.items()})

    def logits(of: Any, tokens: list[int]) -> list[float]:
        with torch.no_grad():
            return of(torch.tensor([tokens])).logits[0].tolist()

    def shares(values: list[float]) -> list[float]:
        if num_labels == 1:
            return [1 / (1 + math.exp(-values[0]))]
        return [math.exp(v) / sum(map(math.exp, values)) for v in values]

    prompts = prompts_of()
    want = [logits(model, tokens) for tokens in prompts]
    states = [states_of(model, tokens) for tokens in prompts]
    torch.manual_seed(SEED + 1)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=3, lora_alpha=6, target_modules="all-linear", task_type="SEQ_CLS")).eval()
    with torch.no_grad():
        for name, values in adapted.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                values.copy_(torch.randn_like(values) * 0.2)
    adapted.save_pretrained(tmp_path / "adapter")
    own = [logits(adapted, tokens) for tokens in prompts]
    with open_quietly(tmp_path / "model", adapters={"own": tmp_path / "adapter"}, prefill_chunk=7) as llm:
        for adapter, expected in ((None, want), ("own", own)):
            largest = max(abs(value) for values in expected for value in values)
            for got, values in zip(llm.classify(prompts, adapter=adapter, activates=False), expected):
                assert_near(got.values, values, largest)
                assert got.labels == list(names.values())
            for got, values in zip(llm.classify(prompts, adapter=adapter), expected):
                assert_near(got.values, shares(values))
                assert got.label == names[values.index(max(values))]
        assert_near(llm.embed(prompts[2]), pooled(states[2], "lasttoken", True))
        with pytest.raises(NotImplementedError, match="writes no answers"):
            llm.generate(prompts[1])


def test_an_adapter_classifies_on_a_model_that_answers(tmp_path: pathlib.Path) -> None:
    """Its base is a ForCausalLM, of which PEFT takes the decoder; answers and classes share a batch."""
    import peft
    import torch
    import transformers

    make_model("Llama", "ForCausalLM", tmp_path / "model")
    base = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", num_labels=4).to(torch.float32).eval()
    torch.manual_seed(SEED + 2)
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"], task_type="SEQ_CLS")).eval()
    with torch.no_grad():
        for name, values in adapted.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                values.copy_(torch.randn_like(values) * 0.2)
    adapted.save_pretrained(tmp_path / "adapter")
    with open_quietly(tmp_path / "model", adapters={"judge": tmp_path / "adapter"}) as llm:
        alone = llm.generate([5, 6, 7], max_tokens=20, ignore_end=True).token_ids
        stream = llm.stream([5, 6, 7], max_tokens=20, ignore_end=True)
        for tokens, got in zip(prompts_of(), llm.classify(prompts_of(), adapter="judge", activates=False)):
            with torch.no_grad():
                assert_near(got.values, adapted(torch.tensor([tokens])).logits[0].tolist())
            assert got.labels == [f"LABEL_{i}" for i in range(4)]
        for _ in stream:
            pass
        assert stream.answer is not None and stream.answer.token_ids == alone
