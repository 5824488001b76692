"""Text halves of models that see images against transformers' own class of the whole, in f32: folders in old and new names, GGUF, adapters."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import json
import pathlib
import subprocess
from typing import Any

import pytest
from family_models import ON_CPU, SMALL, YARN, make_adapter
from frameworks import TORCH_WANTED
from test_families import DEVICE, PROGRAM, STEPS, TOLERANCE, error_of, make_rows, run, seed_of_run

pytestmark = pytest.mark.skipif(not TORCH_WANTED or not ON_CPU, reason="skipped: without torch, or on a GPU, where families are compared")
HAS_GGUF = importlib.util.find_spec("gguf") is not None
TOWER: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
                         "patch_size": 14}
BLOCKS: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "depth": 1, "num_heads": 2, "out_hidden_size": SMALL["hidden_size"]}
MROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 20000.0}
GEMMA3 = {"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 20000.0},
          "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}


@dataclasses.dataclass(frozen=True)
class Half:
    """A text half and what is around it; `sibling` has the same weights alone."""

    name: str
    whole: str  # of transformers' classes: <whole>Config and <whole>ForConditionalGeneration
    text: dict[str, Any]
    vision: dict[str, Any]
    sibling: str
    gguf: str = ""


HALVES = [
    Half("gemma3", "Gemma3", {"head_dim": 12, "query_pre_attn_scalar": 12, "sliding_window": 7, "num_hidden_layers": 7,
                              "rope_parameters": GEMMA3}, TOWER, "Gemma3", "gemma3"),
    Half("mistral3", "Mistral3", {"model_type": "mistral", "head_dim": 12, "sliding_window": None},
         TOWER | {"model_type": "pixtral"}, "Mistral"),
    Half("mistral3-window", "Mistral3", {"model_type": "mistral", "sliding_window": 7}, TOWER | {"model_type": "pixtral"}, "Mistral"),
    Half("qwen2-vl", "Qwen2VL", {"rope_parameters": MROPE}, {"embed_dim": 16, "hidden_size": 32, "depth": 1, "num_heads": 2}, "Qwen2"),
    Half("qwen2.5-vl", "Qwen2_5_VL", {"rope_parameters": MROPE}, BLOCKS, "Qwen2", "qwen2vl"),
    Half("qwen2.5-vl-yarn", "Qwen2_5_VL", {"rope_parameters": MROPE | YARN}, BLOCKS, "Qwen2"),
    Half("qwen3-vl", "Qwen3VL", {"head_dim": 16, "rope_parameters": MROPE | {"mrope_section": [4, 2, 2], "mrope_interleaved": True}},
         BLOCKS | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]}, "Qwen3", "qwen3vl"),
]
by_name = pytest.mark.parametrize("half", HALVES, ids=lambda half: half.name)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    if TORCH_WANTED:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)
    else:
        yield


def make_whole(half: Half, seed: int, tied: bool = False) -> Any:
    """The whole model in f32, norms and biases random too."""
    import torch
    import transformers

    text = SMALL | half.text | {"tie_word_embeddings": tied}
    config = getattr(transformers, f"{half.whole}Config")(text_config=text, vision_config=dict(half.vision), tie_word_embeddings=tied)
    config._attn_implementation = config.text_config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = getattr(transformers, f"{half.whole}ForConditionalGeneration")(config).to(torch.float32).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if "norm" in name:
                values.add_(torch.randn_like(values) * 0.3)
            elif name.endswith("bias"):
                values.copy_(torch.randn_like(values) * 0.5)
            else:
                values.copy_(torch.randn_like(values) * (1.0 if "embed_tokens" in name else 0.25))
    return model


def compare(rows: list[dict[str, Any]], result: Any, model: Any) -> None:
    """Logits after each prompt, and each token of the greedy answer the best or as good as the best."""
    import torch

    for row, got in zip(rows, result["rows"], strict=True):
        with torch.no_grad():
            all_logits = model(input_ids=torch.tensor([row["tokens"] + got["answer"]])).logits[0]
        logits = all_logits[len(row["tokens"]) - 1: -1]
        assert error_of(got["logits"], logits[0].tolist()) <= TOLERANCE
        of_answer = logits[torch.arange(len(got["answer"])), torch.tensor(got["answer"])]
        assert (of_answer >= logits.max(dim=1).values - 2 * TOLERANCE * logits.abs().max()).all()
        assert len(got["answer"]) == STEPS
        assert got["same_bits_alone"]


def check(path: pathlib.Path, rows: list[dict[str, Any]], model: Any, *options: str) -> Any:
    result = run(path, rows, "--steps", str(STEPS), *options)
    assert result["unread"] == []
    assert result["warnings"] == []
    compare(rows, result, model)
    return result


def edit(path: pathlib.Path, change: Any) -> None:
    value = json.loads(path.read_text())
    path.write_text(json.dumps(change(value) or value))


def write_names_of(model: Any, folder: pathlib.Path) -> None:
    """The tensors by the names of the class in memory, as transformers 4.52 to 4.57 wrote them; save_pretrained writes earlier ones."""
    from safetensors.torch import save_file

    tied = model.config.tie_word_embeddings
    save_file({name: values.contiguous() for name, values in model.state_dict().items() if not (tied and name == "lm_head.weight")},
              folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("tied", [False, True], ids=["own-head", "tied"])
@by_name
def test_folder(half: Half, tied: bool, tmp_path: pathlib.Path) -> None:
    seed = seed_of_run()
    model = make_whole(half, seed, tied)
    model.save_pretrained(tmp_path)
    rows = make_rows(seed)
    result = check(tmp_path, rows, model)
    assert len(result["notes"]) == 1
    assert "only its text half is loaded, without " in result["notes"][0]
    write_names_of(model, tmp_path)
    assert check(tmp_path, rows, model) | {"notes": []} == result | {"notes": []}


def of_transformers_4(config: dict[str, Any]) -> dict[str, Any]:
    """The form of Qwen2-VL's and Qwen2.5-VL's settings on the hub: the text's next to those of images, rope_scaling of type mrope."""
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text.pop("layer_types")
    text.pop("model_type")
    text["rope_theta"] = rope.pop("rope_theta")
    if rope["rope_type"] == "default":
        rope = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    return text | config | {"rope_scaling": rope}


@pytest.mark.parametrize("tied", [False, True], ids=["own-head", "tied"])
@pytest.mark.parametrize("half", [half for half in HALVES if half.whole.startswith("Qwen2")], ids=lambda half: half.name)
def test_flat_settings(half: Half, tied: bool, tmp_path: pathlib.Path) -> None:
    seed = seed_of_run()
    model = make_whole(half, seed, tied)
    model.save_pretrained(tmp_path)
    edit(tmp_path / "config.json", of_transformers_4)
    check(tmp_path, make_rows(seed), model)


def test_who_says_that_the_head_is_tied(tmp_path: pathlib.Path) -> None:
    """What transformers' own classes take: the whole's word, or that of text_config, or a default."""
    import transformers
    from safetensors.torch import save_file

    for half in HALVES:
        model = make_whole(half, 1, False)
        folder = tmp_path / half.name
        model.save_pretrained(folder)
        plain = json.loads((folder / "config.json").read_text())
        for whole in (None, False, True):
            for text in (None, False, True):
                config = copy.deepcopy(plain)
                for place, said in ((config, whole), (config["text_config"], text)):
                    place.pop("tie_word_embeddings", None)
                    if said is not None:
                        place["tie_word_embeddings"] = said
                (folder / "config.json").write_text(json.dumps(config))
                saved = dict(model.state_dict())
                saved["lm_head.weight"] = saved["model.language_model.embed_tokens.weight"].clone()  # so that no tie is undone
                save_file(saved, folder / "model.safetensors", metadata={"format": "pt"})
                theirs = transformers.AutoConfig.from_pretrained(folder)
                ties = bool(getattr(theirs, "tie_word_embeddings", False))
                with_traits = run(folder, [{"tokens": [3, 4], "adapter": None}])
                assert ("tied_head" in with_traits["traits"]) == ties, (half.name, whole, text)


@by_name
def test_adapter(half: Half, tmp_path: pathlib.Path) -> None:
    """PEFT's adapter of the language model alone, as its expressions name it, by both forms of its modules' names."""
    import peft
    import torch
    from safetensors.torch import load_file, save_file

    seed = seed_of_run()
    model = make_whole(half, seed)
    model.save_pretrained(tmp_path / "model")
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=3, lora_alpha=4, target_modules=r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|up_proj|down_proj)",
                             task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(copy.deepcopy(model), config).eval()
    with torch.no_grad():
        for name, values in adapted.named_parameters():
            if "lora_" in name:
                values.copy_(torch.randn_like(values) * 0.2)
    adapted.save_pretrained(tmp_path / "new")
    file = tmp_path / "new" / "adapter_model.safetensors"
    names = load_file(file)
    assert all(name.startswith("base_model.model.model.language_model.layers.") for name in names)
    old = tmp_path / "old"
    old.mkdir()
    (old / "adapter_config.json").write_bytes((tmp_path / "new" / "adapter_config.json").read_bytes())
    save_file({name.replace("model.language_model.", "language_model.model.", 1): values for name, values in names.items()},
              old / "adapter_model.safetensors")
    rows = make_rows(seed, ("new", "old", None))
    options = [option for name in ("new", "old") for option in ("--adapter", f"{name}={tmp_path / name}")]
    result = run(tmp_path / "model", rows, "--steps", str(STEPS), *options)
    for adapter, which in (("new", adapted), ("old", adapted), (None, model)):
        mine = [i for i, row in enumerate(rows) if row["adapter"] == adapter]
        compare([rows[i] for i in mine], {"rows": [result["rows"][i] for i in mine]}, which)


@by_name
def test_exclude_modules(half: Half, tmp_path: pathlib.Path) -> None:
    """Names of layers, without those of what sees images."""
    import peft
    import torch

    seed = seed_of_run()
    model = make_whole(half, seed)
    model.save_pretrained(tmp_path / "model")
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=3, lora_alpha=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM",
                             exclude_modules=r".*(visual|vision_tower|multi_modal_projector).*")
    adapted = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, values in adapted.named_parameters():
            if "lora_" in name:
                values.copy_(torch.randn_like(values) * 0.2)
    adapted.save_pretrained(tmp_path / "a")
    rows = make_rows(seed, ("a",))
    result = run(tmp_path / "model", rows, "--steps", str(STEPS), "--adapter", f"a={tmp_path / 'a'}")
    compare(rows, result, adapted)


@by_name
def test_adapter_of_what_sees_images_is_refused(half: Half, tmp_path: pathlib.Path) -> None:
    model = make_whole(half, 1)
    model.save_pretrained(tmp_path / "model")
    make_adapter(model, tmp_path / "a", 1)  # of all linear layers
    with pytest.raises(RuntimeError, match=r"adapter_model.safetensors: tensor '.*(visual|vision_tower|projector).*' is for the image or audio part"):
        run(tmp_path / "model", [], "--adapter", f"a={tmp_path / 'a'}")


@pytest.mark.skipif(not HAS_GGUF, reason="skipped: without the package gguf")
@pytest.mark.parametrize("half", [half for half in HALVES if half.gguf], ids=lambda half: half.name)
def test_gguf(half: Half, tmp_path: pathlib.Path) -> None:
    """As llama.cpp's conversion writes a text half."""
    import transformers
    from family_gguf import write_gguf

    seed = seed_of_run()
    model = make_whole(half, seed)
    settings = model.config.text_config.to_dict()
    for key in ("model_type", "architectures", "transformers_version"):
        settings.pop(key, None)
    name = "Gemma3TextConfig" if half.sibling == "Gemma3" else f"{half.sibling}Config"
    config = getattr(transformers, name)(**settings, attn_implementation="eager")
    config.tie_word_embeddings = False
    sibling = getattr(transformers, f"{half.sibling}ForCausalLM")(config).float().eval()
    state = {name.replace("model.language_model.", "model."): values for name, values in model.state_dict().items()}
    sibling.load_state_dict({name: values for name, values in state.items() if name in sibling.state_dict()})
    check(write_gguf(sibling, half.gguf, tmp_path / "model.gguf"), make_rows(seed), model)


def test_other_text_halves_are_refused(tmp_path: pathlib.Path) -> None:
    model = make_whole(HALVES[1], 1)
    model.save_pretrained(tmp_path)
    edit(tmp_path / "config.json", lambda config: config["text_config"].update(model_type="ministral3"))
    result = subprocess.run([PROGRAM, tmp_path, "--device", DEVICE], input="[]", capture_output=True, text=True, check=False)
    assert "config.json: text_config.model_type is ministral3, a Mistral3ForConditionalGeneration is supported with mistral" in result.stderr
