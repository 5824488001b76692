"""Fake modules for those that the peers' kernels import and do not use here.

`install(folder)` makes the packages of peers whose files lie in FOLDER/sglang and FOLDER/vllm
importable: a package's own modules are the peer's files, unchanged; its __init__ files are not run;
and what these modules import from the rest of a serving system is one of the small modules below.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import logging
import pathlib
import types
import typing
from typing import Any

import torch
import triton
import triton.language
from stub_modules import module, package

PACKAGES = {
    "sglang": [
        "kernels",
        "kernels.ops",
        "kernels.ops.lora",
        "kernels.ops.lora.common",
        "kernels.ops.lora.dense",
        "kernels.ops.lora.moe",
        "srt",
        "srt.lora",
        "srt.lora.backend",
        "srt.lora.dense",
    ],
    "vllm": ["lora", "lora.ops", "lora.ops.triton_ops", "utils"],
}


def not_here(*_: Any, **__: Any) -> Any:
    """A function that no call of the race reaches."""
    raise NotImplementedError("the race has no such function of the peer")


# Two libraries of records, of which the peers use little.


class Struct:
    """msgspec.Struct: the annotated members of a subclass become the arguments of its __init__."""

    def __init_subclass__(cls, frozen: bool = False, kw_only: bool = False) -> None:
        dataclasses.dataclass(cls, frozen=frozen, kw_only=kw_only)


def parsed(kind: Any, value: Any) -> Any:
    """A value of JSON as what its annotation says."""
    arguments = typing.get_args(kind)
    if type(None) in arguments:
        if value is None:
            return None
        kind = next(a for a in arguments if a is not type(None))
        arguments = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        return [parsed(arguments[0], one) for one in value]
    if isinstance(kind, type) and issubclass(kind, Model):
        return kind.model_validate(value)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    return value


@dataclasses.dataclass
class Field:
    """pydantic.Field"""

    default_factory: Any


class Model:
    """pydantic.BaseModel, of members that may be models, lists, enums and plain values."""

    @classmethod
    def model_validate(cls, raw: dict[str, Any]) -> Any:
        kinds, made = typing.get_type_hints(cls), cls()
        if unknown := set(raw) - set(kinds):
            raise ValueError(f"{cls.__name__} has no members {sorted(unknown)}")
        for name, kind in kinds.items():
            if name == "model_config":
                continue
            default = getattr(cls, name, None)
            if name in raw:
                value = parsed(kind, raw[name])
            else:
                value = default.default_factory() if isinstance(default, Field) else default
            setattr(made, name, value)
        return made

    def model_dump(self) -> dict[str, Any]:
        return dict(vars(self))


def install_records() -> None:
    """msgspec and pydantic, also where they are installed: the same in all runs."""
    module("msgspec", Struct=Struct)
    module(
        "pydantic",
        BaseModel=Model,
        Field=lambda default_factory: Field(default_factory),
        ConfigDict=dict,
        model_validator=lambda mode: lambda function: function,
    )


# What is around the kernels in the two packages.


def major_capability() -> int:
    return torch.cuda.get_device_capability()[0] if torch.cuda.is_available() else 0


class Setting:
    """An environment setting that is not set."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self) -> Any:
        return self.value


class Mode(enum.Enum):
    """sglang's ForwardMode, of the two kinds of steps of the race."""

    DECODE = "decode"
    EXTEND = "extend"

    def is_decode(self) -> bool:
        return self is Mode.DECODE

    def is_extend(self) -> bool:
        return self is Mode.EXTEND

    is_extend_without_speculative = is_extend

    def is_idle(self) -> bool:
        return False

    is_target_verify = is_idle


def install_sglang() -> None:
    package("sglang.kernels.ops.moe")
    module("sglang.kernels.ops.moe.moe_align", moe_align_block_size=not_here)
    package("sglang.kernels.jit")
    module("sglang.kernels.jit.utils", is_arch_support_pdl=lambda: major_capability() >= 9)
    module("sglang.srt.lora.backend.lmhead_mixing", LoRABackendLmHeadMixing=LmHead)
    package("sglang.srt.model_executor")
    module(
        "sglang.srt.model_executor.forward_batch_info",
        ForwardBatch=types.SimpleNamespace,
        ForwardMode=Mode,
    )
    module("sglang.srt.runtime_context", LoRABatchLayout=object)
    settings = types.SimpleNamespace(SGLANG_LORA_DENSE_CONFIG_DIR=Setting(None))
    module("sglang.srt.environ", envs=settings)
    package("sglang.srt.utils")
    module(
        "sglang.srt.utils.common",
        empty_device_cache=not_here,
        direct_register_custom_op=lambda **_: None,
    )
    module("sglang.srt.utils.hf_transformers_utils", AutoConfig=object)


class LmHead:
    """sglang's part of a backend for lm_head, which the race has not."""

    def init_lm_head_config(self) -> None:
        pass


class Platform:
    """vllm.platforms.current_platform"""

    def is_cuda(self) -> bool:
        return torch.cuda.is_available()

    def has_device_capability(self, at_least: int) -> bool:
        return 10 * major_capability() >= at_least

    def is_device_capability(self, exactly: int) -> bool:
        return 10 * major_capability() == exactly


def register_nothing(**_: Any) -> None:
    """vllm then calls its functions themselves, as where torch has no custom operators."""
    raise AttributeError


def on_device(data: Any, device: Any = None, dtype: Any = None) -> torch.Tensor:
    return torch.tensor(data, dtype=dtype, device=device)


def logger_of(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    for level in ("debug", "info", "warning"):
        setattr(logger, f"{level}_once", lambda *_, **__: None)
    return logger


def install_vllm() -> None:
    module(
        "vllm.envs",
        VLLM_BATCH_INVARIANT=False,
        VLLM_TUNED_CONFIG_FOLDER=None,
        VLLM_LORA_ENABLE_DUAL_STREAM=False,
        VLLM_LORA_DISABLE_PDL=False,
    )
    module("vllm.logger", init_logger=logger_of)
    module("vllm.platforms", current_platform=Platform())
    module("vllm.triton_utils", triton=triton, tl=triton.language, HAS_TRITON=True)
    module(
        "vllm.utils.torch_utils",
        async_tensor_h2d=on_device,
        direct_register_custom_op=register_nothing,
    )


def install(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Makes the peers importable whose files are there: {package: its fetched.json}."""
    found = {}
    install_records()
    for name, parts in PACKAGES.items():
        facts = folder / name / "fetched.json"
        if not facts.exists():
            continue
        found[name] = json.loads(facts.read_text(encoding="utf-8"))
        root = folder / name / name
        package(name, root)
        for part in parts:
            package(f"{name}.{part}", root.joinpath(*part.split(".")))
        {"sglang": install_sglang, "vllm": install_vllm}[name]()
    return found
