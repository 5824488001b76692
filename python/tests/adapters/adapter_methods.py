"""Methods of PEFT's other than LoRA that come down to A and B, and files as other trainers write them."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

from adapter_kinds import DORA, LINEAR, Kind, always, change, is_untied, scaled

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
Tensors = dict[str, Any]


def change_config(folder: pathlib.Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    file = folder / CONFIG
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


def change_tensors(folder: pathlib.Path, change: Callable[[Tensors], Tensors]) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / TENSORS
    save_file(change(load_file(file)), file)


def as_lora_xs(folder: pathlib.Path) -> None:
    """A matrix between A and B, as LoRA-XS trains it: here R, with which A' = R^-1 A is A again."""
    import torch

    def with_latent(tensors: Tensors) -> Tensors:
        result = dict(tensors)
        for number, (name, a) in enumerate(sorted(tensors.items())):
            if not name.endswith(".lora_A.weight"):
                continue
            latent = torch.eye(len(a)) + 0.2 * torch.randn(len(a), len(a))
            module = name.removesuffix(".lora_A.weight")
            result[name] = torch.linalg.solve(latent, a).contiguous()
            # What versions of PEFT make of ".default_lora_latent_mapping".
            result[f"{module}{'_' if number % 2 else '.default_'}lora_latent_mapping.weight"] = latent
        return result

    change_tensors(folder, with_latent)


def as_mlx(folder: pathlib.Path) -> None:
    """As mlx_lm.lora of MLX-LM 0.32 writes it: the arguments of the run, and transposed halves."""
    def settings(config: dict[str, Any]) -> dict[str, Any]:
        return {"model": "mlx-community/tiny-4bit", "train": True, "fine_tune_type": "dora" if config["use_dora"] else "lora",
                "optimizer": "adam", "num_layers": 16, "batch_size": 4, "iters": 100, "mask_prompt": False, "seed": 0,
                "lora_parameters": {"rank": config["r"], "dropout": 0.0, "scale": config["lora_alpha"] / config["r"]}}

    def flipped(tensors: Tensors) -> Tensors:
        names = {".lora_A.weight": ".lora_a", ".lora_B.weight": ".lora_b", ".lora_magnitude_vector": ".m"}
        result = {}
        for name, values in tensors.items():
            old = next(end for end in names if name.endswith(end))
            result[name.removeprefix("base_model.model.").removesuffix(old) + names[old]] = values.T.contiguous()
        return result

    change_config(folder, settings)
    change_tensors(folder, flipped)
    (folder / TENSORS).rename(folder / "adapters.safetensors")


def as_torchtune(folder: pathlib.Path) -> None:
    """As torchtune 0.6 writes it: four fields and the base model."""
    change_config(folder, lambda config: {"r": config["r"], "lora_alpha": config["lora_alpha"], "target_modules": LINEAR[:7],
                                          "peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.2-1B-Instruct"})


def as_ms_swift(folder: pathlib.Path) -> None:
    """As ms-swift 4.6 writes it: PEFT's, and a file of its own for training."""
    (folder / "additional_config.json").write_text(json.dumps({"lora_dtype": None, "lorap_lr_ratio": None, "lorap_emb_lr": 1e-06}))


def as_fsdp(folder: pathlib.Path) -> None:
    """Names as FSDP and torch.compile leave them, the adapter's among them."""
    def wrapped(name: str) -> str:
        name = name.replace("model.layers", "model._fsdp_wrapped_module.layers").replace(".self_attn", "._orig_mod.self_attn")
        return name.replace("lora_A.weight", "lora_A.default.weight").replace("lora_B.weight", "lora_B.default.weight")

    change_tensors(folder, lambda tensors: {wrapped(name): values for name, values in tensors.items()})


# unsloth_zoo 2026.10's get_peft_regex for the language model's attention and MLP; ms-swift 4.6's get_multimodal_target_regex.
PARTS, PROJECTIONS = "self_attn|attention|attn|mixer|mlp|feed_forward|ffn|dense|mixer", "(?:" + "|".join(LINEAR) + ")"
UNSLOTH = rf"(?:.*?(?:language|text).*?(?:{PARTS}).*?\.{PROJECTIONS})|" \
          rf"(?:\bmodel\.layers\.[\d]{{1,}}(?!.*\.experts\.\d)\..*?(?:{PARTS}).*?\.(?:{PROJECTIONS}))"
MS_SWIFT = rf"^(model(?=\.).*\.({'|'.join(LINEAR)}))$"
B = {"scale": scaled("lora_B")}


def method(name: str, config: str, options: dict[str, Any], part: str, mistakes: dict[str, Any] | None = None) -> Kind:
    with_vocabulary = "modules_to_save" in options or "lm_head" in options.get("target_modules", [])
    return Kind(name, {"target_modules": LINEAR} | options, {part: scaled(part)} | (mistakes or {}),
                merges=is_untied if with_vocabulary else always, config=config)


METHODS = [
    method("LoHa", "LoHaConfig", {"r": 3, "alpha": 4}, "hada_w1_a"),
    method("LoHa, patterns", "LoHaConfig", {"r": 3, "alpha": 4, "rank_pattern": {"o_proj": 2}, "alpha_pattern": {"v_proj": 7}},
           "hada_w2_b"),
    method("LoHa, head", "LoHaConfig", {"r": 2, "alpha": 3, "target_modules": ["lm_head", "o_proj"]}, "lm_head.hada_w1_a"),
    method("LoHa, rank 22", "LoHaConfig", {"r": 22, "alpha": 3, "target_modules": ["v_proj", "qkv_proj"]}, "hada_w1_a"),
    method("VeRA", "VeraConfig", {"r": 6}, "vera_lambda_b", {"order": change("vera_lambda_d", lambda d: d.roll(1, 0))}),
    method("VeRA, some layers", "VeraConfig", {"r": 40, "layers_to_transform": [0, 2]}, "vera_lambda_d"),
    method("VeRA, modules_to_save", "VeraConfig", {"r": 6, "modules_to_save": ["lm_head"]}, "vera_lambda_b"),
    method("VeRA, save_projection: false", "VeraConfig", {"r": 6, "save_projection": False, "projection_prng_key": 11}, "vera_lambda_b"),
    method("RandLoRA", "RandLoraConfig", {"r": 3, "randlora_alpha": 30}, "randlora_lambda",
           {"gamma": change("randlora_gamma", lambda g: g.mean().expand_as(g))}),
    method("RandLoRA, sparse", "RandLoraConfig", {"r": 8, "randlora_alpha": 80, "sparse": True}, "randlora_lambda"),
    method("IA3", "IA3Config", {"target_modules": ["k_proj", "v_proj", "qkv_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
           "ia3_l", {"down_proj": change("down_proj.ia3_l", lambda factors: factors.roll(1, 1))}),
    method("IA3, all layers", "IA3Config", {"feedforward_modules": ["down_proj"]}, "o_proj.ia3_l"),
    method("IA3, outputs alone", "IA3Config", {"feedforward_modules": []}, "ia3_l"),
]
FORMS = [
    Kind("LoRA-XS", {"target_modules": LINEAR}, B, form=as_lora_xs),
    Kind("unsloth", {"target_modules": UNSLOTH, "use_rslora": True}, B),
    Kind("axolotl", {"target_modules": sorted(LINEAR), "target_parameters": [], "lora_dropout": 0.05, "lora_alpha": 16} | {
        "rank_pattern": {"o_proj": 5}}, B),
    Kind("LLaMA-Factory", {"target_modules": LINEAR, "r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "use_rslora": True}, B),
    Kind("TRL", {"target_modules": "all-linear", "r": 16, "lora_alpha": 32, "lora_dropout": 0.05}, B),
    Kind("torchtune", {"target_modules": LINEAR}, B, form=as_torchtune, needs=lambda model: model.config.model_type != "phi3"),
    Kind("ms-swift", {"target_modules": LINEAR, "r": 8, "lora_alpha": 32, "lora_dropout": 0.05}, B, form=as_ms_swift),
    Kind("ms-swift: an expression", {"target_modules": MS_SWIFT, "r": 8, "lora_alpha": 32}, B, form=as_ms_swift),
    Kind("MLX-LM", {"target_modules": LINEAR, "r": 8, "lora_alpha": 20}, B, form=as_mlx),
    Kind("MLX-LM: DoRA", {"target_modules": LINEAR, "r": 4, "lora_alpha": 5, "use_dora": True, "layers_to_transform": [1, 2]}, DORA,
         form=as_mlx),
    Kind("FSDP and torch.compile", {"target_modules": LINEAR}, B, form=as_fsdp),
]
