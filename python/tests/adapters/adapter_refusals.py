"""Adapters of PEFT's that heddle refuses, and what it says: no kind of adapter runs half, or as the base model."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
from typing import Any

from adapter_kinds import LINEAR, take_gradients
from adapter_methods import TENSORS, change_config


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Options of a configuration of PEFT's, and a part of the sentence. `fields` are written over the saved configuration where PEFT needs
    more than a model to make such an adapter (a quantised base, several adapters)."""

    name: str
    config: str
    options: dict[str, Any]
    says: str
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)


def lora(name: str, options: dict[str, Any], says: str, fields: dict[str, Any] | None = None) -> Refusal:
    return Refusal(name, "LoraConfig", {"r": 4, "target_modules": LINEAR} | options, says, fields or {})


def other(peft_type: str, config: str, **options: Any) -> Refusal:
    return Refusal(peft_type, config, options, f'peft_type is "{peft_type}": ')


CHANGED = "which adapts a changed base model"
REFUSALS = [
    lora("PiSSA, as trained", {"init_lora_weights": "pissa"}, CHANGED),
    lora("OLoRA, as trained", {"init_lora_weights": "OLoRA"}, CHANGED),
    lora("LoRA-GA, as trained", {"init_lora_weights": "lora_ga"}, CHANGED),
    lora("CorDA, as trained", {}, CHANGED, {"init_lora_weights": "corda"}),
    lora("LoftQ", {}, CHANGED, {"init_lora_weights": "loftq"}),
    lora("an initialisation that is not known", {}, "which heddle does not know", {"init_lora_weights": "newer"}),
    lora("modules_to_save: norms", {"modules_to_save": ["norm"]}, 'modules_to_save is ["norm"]'),
    lora("layer_replication", {}, "layer_replication is", {"layer_replication": [[0, 2], [1, 3]]}),
    lora("target_parameters", {}, "target_parameters is", {"target_parameters": ["mlp.experts.gate_up_proj"]}),
    lora("QALoRA", {}, "use_qalora is", {"use_qalora": True}),
    lora("BD-LoRA", {}, "use_bdlora is", {"use_bdlora": {"nblocks": 2}}),
    lora("Arrow", {}, "arrow_config is", {"arrow_config": {"top_k": 3}}),
    lora("KaSA", {}, "kasa_config is", {"kasa_config": {"beta": 1e-4}}),
    lora("MonteCLoRA", {}, "monteclora_config is", {"monteclora_config": {"num_samples": 8}}),
    lora("Megatron", {}, "megatron_config is", {"megatron_config": {"tensor_model_parallel_size": 1}}),
    lora("MLX-LM: full", {}, 'fine_tune_type is "full"', {"peft_type": None, "fine_tune_type": "full"}),
    Refusal("LoHa, rank 23", "LoHaConfig", {"r": 23, "target_modules": ["v_proj", "qkv_proj"]}, "has rank 529, supported: up to 512"),
    Refusal("RandLoRA without its bases", "RandLoraConfig", {"r": 8, "target_modules": LINEAR, "save_projection": False},
            "save_projection=True"),
    Refusal("IA3 of other inputs", "IA3Config", {"target_modules": ["o_proj"], "feedforward_modules": ["o_proj"]},
            "supported: those of down_proj alone"),
    Refusal("IA3 of the head", "IA3Config", {"target_modules": ["lm_head", "o_proj"], "feedforward_modules": []}, "IA3"),
    other("LOKR", "LoKrConfig", r=4, target_modules=LINEAR),
    other("OFT", "OFTConfig", oft_block_size=4, target_modules=LINEAR),
    other("BOFT", "BOFTConfig", boft_block_size=4, target_modules=LINEAR),
    other("HRA", "HRAConfig", r=4, target_modules=LINEAR),
    other("ADALORA", "AdaLoraConfig", target_modules=LINEAR, total_step=10),
    other("FOURIERFT", "FourierFTConfig", n_frequency=8, target_modules=LINEAR),
    other("VBLORA", "VBLoRAConfig", r=4, vector_length=4, num_vectors=8, target_modules=LINEAR),
    other("MISS", "MissConfig", r=4, target_modules=LINEAR),
    other("SHIRA", "ShiraConfig", r=2, target_modules=LINEAR),
    other("ROAD", "RoadConfig", group_size=4, target_modules=LINEAR),
    other("DELORA", "DeloraConfig", r=4, target_modules=LINEAR),
    other("LN_TUNING", "LNTuningConfig", target_modules=["input_layernorm", "post_attention_layernorm"]),
    other("PROMPT_TUNING", "PromptTuningConfig", num_virtual_tokens=2),
    Refusal("XLORA", "LoraConfig", {"r": 4, "target_modules": LINEAR}, 'peft_type is "XLORA": ', {"peft_type": "XLORA"}),
]


def make_refused(model: Any, refusal: Refusal, folder: pathlib.Path) -> None:
    import peft

    config = getattr(peft, refusal.config)(**({"task_type": "CAUSAL_LM"} | copy.deepcopy(refusal.options)))
    base = copy.deepcopy(model)
    if config.peft_type == "LORA" and config.init_lora_weights == "lora_ga":
        take_gradients(base, config)
    peft.get_peft_model(base, config).save_pretrained(folder)
    change_config(folder, lambda written: {**written, **refusal.fields})
    if refusal.name == "MLX-LM: full":
        (folder / TENSORS).rename(folder / "adapters.safetensors")
