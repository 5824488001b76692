"""Every kind of LoRA adapter that PEFT writes, and a mistake in each one's formula: what test_adapter_kinds.py compares heddle with.

Other methods and the files of other trainers are in adapter_methods.py; every_kind.py has all.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from family_models import ON_CPU

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj"]
METHOD_PARTS = {"hada_": 0.4, "vera_lambda_": 0.6, "randlora_lambda": 0.02}  # and the deviation of random values
WRONG_SCALE = 1.1 if ON_CPU else 1.5  # whose effect is above the tolerance
PATTERNS = {"rank_pattern": {"o_proj": 5}, "alpha_pattern": {"v_proj": 7}}

Mistake = Callable[[Any], contextlib.AbstractContextManager[None]]


def always(model: Any) -> bool:
    return True


@dataclasses.dataclass(frozen=True)
class Kind:
    """Options of a configuration of PEFT's, and mistakes in what PEFT makes of them, each of which the comparison must see."""

    name: str
    options: dict[str, Any]
    mistakes: dict[str, Mistake]
    merges: Callable[[Any], bool] = always  # whether PEFT merges it into the model
    needs: Callable[[Any], bool] = always
    more_tokens: int = 0  # than the base model has
    converts: bool = False  # PEFT saves what the adapter has learnt as LoRA for the base model
    finds_base: bool = False  # what PEFT saves is whole only where it finds the base model on disk, and so sees the resize
    config: str = "LoraConfig"
    prepare: Callable[[Any, Any], None] | None = None  # what the initialisation needs: (model, configuration)
    form: Callable[[pathlib.Path], None] | None = None  # rewrites what PEFT saved as another trainer writes it

    @property
    def invocation(self) -> list[int]:
        return self.options.get("alora_invocation_tokens", [])

    @property
    def has_vocabulary(self) -> bool:
        """Whether PEFT may save it otherwise where it finds the base model on disk."""
        named = [*self.options.get("target_modules", []), *self.options.get("modules_to_save", [])]
        return bool(self.more_tokens) or bool({"embed_tokens", "lm_head"} & set(named)) or "trainable_token_indices" in self.options


def parameters(model: Any, part: str) -> list[Any]:
    found = [values for name, values in model.named_parameters() if part in name]
    assert found, part
    return found


def change(part: str, function: Callable[[Any], Any]) -> Mistake:
    """The values whose names have the part, changed."""

    @contextlib.contextmanager
    def mistake(model: Any) -> Iterator[None]:
        import torch

        before = [values.clone() for values in parameters(model, part)]
        with torch.no_grad():
            for values in parameters(model, part):
                values.copy_(function(values))
            yield
            for values, old in zip(parameters(model, part), before, strict=True):
                values.copy_(old)

    return mistake


def replace(path: str, function: Callable[..., Any]) -> Mistake:
    """A function of PEFT's, replaced."""
    return lambda model: mock.patch(f"peft.tuners.{path}", function)


def norm_of_the_base(self: Any, weight: Any, lora_weight: Any, scaling: Any, adapter_name: Any = None) -> Any:
    return weight.T.norm(dim=1) if self.fan_in_fan_out else weight.norm(dim=1)


def dora_with_bias_inside(module: Any, active_adapter: str, x: Any, result: Any, **_: Any) -> Any:
    bias = module.get_base_layer().bias
    own = module.lora_magnitude_vector[active_adapter](
        x, lora_A=module.lora_A[active_adapter], lora_B=module.lora_B[active_adapter], scaling=module.scaling[active_adapter],
        base_layer=module.get_base_layer(), base_result=None, adapter_name=active_adapter)
    magnitude = module.lora_magnitude_vector[active_adapter]
    delta = module.get_delta_weight(active_adapter)
    norm = (module.get_base_layer().weight + delta).norm(dim=1)
    return result + own + (0 if bias is None else (magnitude.weight / norm - 1) * bias)


def has_bias(model: Any) -> bool:
    return any(name.endswith("proj.bias") for name, _ in model.named_parameters())


def is_untied(model: Any) -> bool:
    """PEFT merges into the weight that both have, embedding and head."""
    return not model.config.tie_word_embeddings


def is_tied(model: Any) -> bool:
    return not is_untied(model)


def never(model: Any) -> bool:
    return False


def scaled(part: str) -> Mistake:
    return change(part, lambda values: values * WRONG_SCALE)


def offsets_from(start_of: Callable[[list[int], list[int]], int]) -> Mistake:
    """aLoRA that begins elsewhere: start_of(prompt, invocation)."""

    def offsets(peft_config: Any, active_adapter: str, input_ids: Any, adapter_names: Any = None) -> list[int]:
        invocation = peft_config[active_adapter].alora_invocation_tokens
        return [len(row) - start_of(row, invocation) for row in input_ids.tolist()]

    return replace("lora.variants.calculate_alora_offsets", offsets)


def last_start(row: list[int], invocation: list[int]) -> int:
    """Where the row, which may lack it, has the invocation, or its end."""
    size = len(invocation)
    return max((i for i in range(len(row)) if row[i: i + size] == invocation), default=len(row))


def first_start(row: list[int], invocation: list[int]) -> int:
    size = len(invocation)
    return min((i for i in range(len(row)) if row[i: i + size] == invocation), default=len(row))


ALORA = {
    "begins with the prompt": offsets_from(lambda row, invocation: 0),
    "begins with the first invocation": offsets_from(first_start),
    "begins behind the invocation": offsets_from(lambda row, invocation: min(last_start(row, invocation) + len(invocation), len(row))),
    "begins too early": offsets_from(lambda row, invocation: last_start(row, invocation) - 1),
}
DORA = {
    "magnitude": change("lora_magnitude_vector", lambda m: m.mean().expand_as(m)),
    "norm": replace("lora.dora.DoraLinearLayer.get_weight_norm", norm_of_the_base),
}
VOCABULARY = ["embed_tokens", "lm_head"]


def lora(name: str, **options: Any) -> Kind:
    """LoRA on all linear layers with these options besides."""
    return Kind(name, {"target_modules": LINEAR} | options, {"scale": scaled("lora_B")})


def take_gradients(model: Any, config: Any) -> None:
    """What LoRA-GA begins with: gradients of one step."""
    import peft
    import torch

    config.lora_ga_config = peft.LoraGAConfig()
    tokens = torch.arange(3, 19)[None]
    peft.preprocess_loraga(model, config, lambda: model(input_ids=tokens, labels=tokens).loss.backward())


LORA_KINDS = [
    Kind("LoRA", {"target_modules": LINEAR} | PATTERNS, {"scale": scaled("lora_B")}),
    Kind("DoRA", {"target_modules": LINEAR, "use_dora": True} | PATTERNS, DORA),
    Kind("DoRA, bias", {"target_modules": LINEAR, "use_dora": True, "use_rslora": True},
         {"bias inside": replace("lora.variants.DoraLinearVariant.forward", staticmethod(dora_with_bias_inside))}, needs=has_bias),
    Kind("lora_bias", {"target_modules": LINEAR + ["lm_head"], "lora_bias": True} | PATTERNS,
         {"without scale": change("lora_B.default.bias", lambda b: b * 2), "none": change("lora_B.default.bias", lambda b: b * 0)},
         merges=never),  # only into layers that have a bias
    Kind("embedding", {"target_modules": ["embed_tokens"]}, {"scale": scaled("lora_embedding_B")}, is_untied),
    Kind("head", {"target_modules": ["lm_head", "v_proj", "qkv_proj"], "rank_pattern": {"lm_head": 6}},
         {"scale": scaled("lm_head.lora_B")}, is_untied),
    Kind("embedding and head, DoRA", {"target_modules": VOCABULARY, "use_dora": True},
         DORA | {"embedding": scaled("embed_tokens.lora_magnitude_vector"), "head": scaled("lm_head.lora_magnitude_vector")},
         is_untied),
    Kind("modules_to_save", {"target_modules": LINEAR, "modules_to_save": VOCABULARY},
         {"embedding": scaled("embed_tokens.modules_to_save"), "head": scaled("lm_head.modules_to_save")}, is_untied),
    Kind("modules_to_save: embedding", {"target_modules": LINEAR, "modules_to_save": ["embed_tokens"]},
         {"embedding": scaled("embed_tokens.modules_to_save")}, is_untied),
    Kind("more tokens", {"target_modules": LINEAR, "modules_to_save": VOCABULARY},
         {"embedding": scaled("embed_tokens.modules_to_save"), "head": scaled("lm_head.modules_to_save")}, is_untied, more_tokens=5),
    Kind("more tokens, head adapted", {"target_modules": VOCABULARY + ["o_proj"]},
         {"embedding": scaled("embed_tokens.lora_embedding_B"), "head": scaled("lm_head.lora_B")}, is_untied, more_tokens=3),
    Kind("fewer tokens", {"target_modules": LINEAR, "modules_to_save": VOCABULARY},
         {"head": scaled("lm_head.modules_to_save")}, is_untied, more_tokens=-4),
    Kind("trainable_token_indices", {"target_modules": LINEAR, "trainable_token_indices": [7, 4, 40]},
         {"order": change("trainable_tokens_delta", lambda rows: rows.roll(1, 0))}),
    Kind("trainable_token_indices: head", {"target_modules": LINEAR,
                                           "trainable_token_indices": {"embed_tokens": [5, 4], "lm_head": [9, 8, 30]}},
         {"embedding": change("embed_tokens.token_adapter.trainable_tokens_delta", lambda rows: rows.roll(1, 0)),
          "head": change("lm_head.token_adapter.trainable_tokens_delta", lambda rows: rows.roll(1, 0))}, is_untied),
    Kind("trainable_token_indices next to a head", {"target_modules": LINEAR, "trainable_token_indices": [7, 4, 40],
                                                   "modules_to_save": ["lm_head"]},
         {"rows": scaled("trainable_tokens_delta")}, needs=is_untied),  # which PEFT cannot run where they are tied
    Kind("more tokens, none saved", {"target_modules": LINEAR}, {"scale": scaled("lora_B")}, is_untied, more_tokens=4, finds_base=True),
    Kind("more tokens, head saved", {"target_modules": LINEAR, "modules_to_save": ["lm_head"]},
         {"head": scaled("lm_head.modules_to_save")}, is_untied, more_tokens=3, finds_base=True),
    Kind("more tokens, embedding saved", {"target_modules": LINEAR, "modules_to_save": ["embed_tokens"]},
         {"embedding": scaled("embed_tokens.modules_to_save")}, is_untied, more_tokens=3, finds_base=True),
    Kind("more tokens, trainable_token_indices", {"target_modules": LINEAR, "trainable_token_indices": [50, 48, 49, 9]},
         {"order": change("trainable_tokens_delta", lambda rows: rows.roll(1, 0))}, is_untied, more_tokens=3, finds_base=True),
    Kind("some layers", {"target_modules": LINEAR, "layers_to_transform": [0, 2]}, {"scale": scaled("lora_B")}),
    Kind("bias of layers", {"target_modules": LINEAR, "bias": "lora_only"},
         {"bias": change("base_layer.bias", lambda b: b * 0)}, needs=has_bias),
    Kind("bias of layers, DoRA", {"target_modules": LINEAR, "bias": "all", "use_dora": True},
         {"bias": change("base_layer.bias", lambda b: b * 0)}, needs=has_bias),
    Kind("PiSSA", {"target_modules": LINEAR, "init_lora_weights": "pissa"}, {"scale": scaled("lora_B")}, converts=True),
    Kind("PiSSA, niter", {"target_modules": LINEAR, "init_lora_weights": "pissa_niter_2"}, {"scale": scaled("lora_B")}, converts=True),
    Kind("OLoRA", {"target_modules": LINEAR, "init_lora_weights": "olora"}, {"scale": scaled("lora_B")}, converts=True),
    Kind("LoRA-GA", {"target_modules": LINEAR, "init_lora_weights": "lora_ga"}, {"scale": scaled("lora_B")}, converts=True,
         prepare=take_gradients),
    Kind("aLoRA", {"target_modules": LINEAR + ["lm_head"], "alora_invocation_tokens": [11, 3, 12]}, ALORA, never),
    Kind("aLoRA, lora_bias", {"target_modules": LINEAR, "alora_invocation_tokens": [9, 13], "lora_bias": True}, ALORA, never),
    Kind("aLoRA, use_rslora, patterns", {"target_modules": LINEAR, "alora_invocation_tokens": [9, 13], "use_rslora": True} | PATTERNS,
         ALORA, never),
    lora("r", r=40),
    lora("lora_alpha", lora_alpha=7.5),
    lora("use_rslora", use_rslora=True),
    lora("use_rslora, patterns", use_rslora=True, **PATTERNS),
    lora("rank_pattern", rank_pattern={r"^model\.layers\.0\.mlp\..*": 2, "layers.1.self_attn.o_proj": 5, "o_proj": 4}),
    lora("alpha_pattern", alpha_pattern={"down_proj": 9, r"layers\.[12]\..*proj": 2.5}),
    lora("target_modules: an expression", target_modules=r".*layers\.[02]\..*(v_proj|qkv_proj|down_proj)"),
    lora("target_modules: all-linear", target_modules="all-linear"),
    lora("exclude_modules", exclude_modules=["k_proj", "qkv_proj", "up_proj"]),
    lora("exclude_modules: an expression", exclude_modules=r".*layers\.1\..*"),
    lora("layers_to_transform: one", layers_to_transform=1),
    lora("layers_pattern", layers_to_transform=[0, 1], layers_pattern="layers"),
    lora("lora_dropout", lora_dropout=0.4),
    lora("fan_in_fan_out", fan_in_fan_out=True),
    lora("init_lora_weights: false", init_lora_weights=False),
    lora("init_lora_weights: gaussian", init_lora_weights="gaussian"),
    lora("init_lora_weights: orthogonal", init_lora_weights="orthogonal", r=4),
    lora("EVA", init_lora_weights="eva"),
    lora("MiCA", init_lora_weights="mica"),
    lora("VeLoRA", velora_config={"num_groups": 4}),
    Kind("DoRA, use_rslora, patterns", {"target_modules": LINEAR, "use_dora": True, "use_rslora": True} | PATTERNS, DORA),
    Kind("DoRA, some layers", {"target_modules": LINEAR, "use_dora": True, "layers_to_transform": [1]}, DORA),
    Kind("DoRA, modules_to_save", {"target_modules": LINEAR, "use_dora": True, "modules_to_save": ["lm_head"]},
         DORA | {"head": scaled("lm_head.modules_to_save")}, is_untied),
    Kind("DoRA, trainable_token_indices", {"target_modules": LINEAR, "use_dora": True, "trainable_token_indices": [7, 4, 40]},
         DORA | {"order": change("trainable_tokens_delta", lambda rows: rows.roll(1, 0))}),
    Kind("lora_bias, use_rslora", {"target_modules": LINEAR, "lora_bias": True, "use_rslora": True},
         {"none": change("lora_B.default.bias", lambda b: b * 0)}, merges=never),
    Kind("bias of layers, use_rslora", {"target_modules": LINEAR, "bias": "lora_only", "use_rslora": True},
         {"bias": change("base_layer.bias", lambda b: b * 0)}, needs=has_bias),
    Kind("embedding, ensure_weight_tying", {"target_modules": ["embed_tokens", "o_proj"], "ensure_weight_tying": True},
         {"scale": scaled("lora_embedding_B")}, never, needs=is_tied),
]


def make(model: Any, kind: Kind, folder: pathlib.Path, seed: int, found: pathlib.Path | None = None) -> Any:
    """A random adapter of the kind for a copy of the model, saved; returns the model with it.

    found: the folder of the base model. The adapter is then saved once more, in a folder of the name and "-found", as PEFT saves it where
    the base model is on disk: save_embedding_layers="auto" acts there alone.
    """
    import peft
    import torch

    torch.manual_seed(seed)
    plain = {"r": 3, "lora_alpha": 4} if kind.config == "LoraConfig" else {}
    config = getattr(peft, kind.config)(**({"task_type": "CAUSAL_LM"} | plain | copy.deepcopy(kind.options)))
    base = copy.deepcopy(model)
    if kind.more_tokens:
        base.resize_token_embeddings(model.config.vocab_size + kind.more_tokens, mean_resizing=False)
    if kind.prepare is not None:
        kind.prepare(base, config)
    adapted = peft.get_peft_model(base, config).eval()
    if kind.converts:
        adapted.peft_config["default"].init_lora_weights = True  # so that it is saved as it is
        adapted.save_pretrained(folder / "start")
        adapted.peft_config["default"].init_lora_weights = kind.options["init_lora_weights"]
    with torch.no_grad():
        for name, values in adapted.named_parameters():
            if "magnitude" in name:
                values.mul_(1 + torch.randn_like(values) * 0.3)
            elif kind.converts and "lora_" in name:
                values.add_(torch.randn_like(values) * 0.2)
            elif "ia3_l" in name:
                values.copy_(1 + torch.randn_like(values) * 0.3)
            elif "randlora_gamma" in name:
                values.mul_(1 + torch.randn_like(values) * 0.3)
            elif any(part in name for part in METHOD_PARTS):
                values.copy_(torch.randn_like(values) * METHOD_PARTS[next(part for part in METHOD_PARTS if part in name)])
            elif "lora_" in name:
                values.copy_(torch.randn_like(values) * 0.2)
            elif kind.options.get("bias", "none") != "none" and name.endswith("base_layer.bias"):
                values.add_(torch.randn_like(values) * 0.5)
            elif "modules_to_save" in name or "trainable_tokens" in name:
                values.add_(torch.randn_like(values) * 0.3)
    convert = {"path_initial_model_for_weight_conversion": str(folder / "start")} if kind.converts else {}
    adapted.save_pretrained(folder, **convert)
    if kind.form is not None:
        kind.form(folder)
    if found is not None and not kind.converts:
        adapted.peft_config["default"].base_model_name_or_path = str(found)
        adapted.save_pretrained(found_name(folder))
    return adapted


def with_adapters(base: Any, parts: dict[str, str], folder: pathlib.Path, seed: int) -> tuple[Any, list[str]]:
    """A copy of the model with random adapters of PEFT, `parts` their kinds by name, and heddle's options that name their folders."""
    import peft

    kinds = {kind.name: kind for kind in LORA_KINDS}
    model: Any = None
    options: list[str] = []
    for number, (part, kind) in enumerate(parts.items()):
        make(base, kinds[kind], folder / part, seed + number)
        options += ["--adapter", f"{part}={folder / part}"]
        if model is None:
            model = peft.PeftModel.from_pretrained(copy.deepcopy(base), folder / part, adapter_name=part).eval()
        else:
            model.load_adapter(folder / part, adapter_name=part)
    return model, options


def found_name(folder: pathlib.Path) -> pathlib.Path:
    return folder.with_name(f"{folder.name}-found")
