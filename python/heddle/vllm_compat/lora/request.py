"""In place of `vllm.lora.request`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LoRARequest"]


@dataclass(frozen=True)
class LoRARequest:
    """An adapter: its name, a number above 0 of its own, and where it is.

    As in vLLM two of one name are equal. Unlike there, name, number and path belong together:
    another path or number under a name that was used before is an error, unless `load_inplace`.

    Raises:
        ValueError: The number is not above 0, or there is no path.
        NotImplementedError: `tensorizer_config_dict` is given.
    """

    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    """A folder as PEFT saves it, or a name in the local Hugging Face cache."""
    base_model_name: str | None = None
    """For the reader alone, as in vLLM."""
    tensorizer_config_dict: Mapping[str, Any] | None = None
    load_inplace: bool = False
    """The adapter is read anew and replaces the one of its name for all prompts that follow."""

    def __post_init__(self) -> None:
        if self.lora_int_id < 1:
            raise ValueError(f"lora_int_id is {self.lora_int_id}, expected a number above 0")
        if not self.lora_path:
            raise ValueError(f"lora_path of {self.lora_name!r} is empty, expected a folder")
        if self.tensorizer_config_dict is not None:
            raise NotImplementedError("tensorizer_config_dict: heddle reads safetensors and GGUF")

    @property
    def name(self) -> str:
        """The same as `lora_name`."""
        return self.lora_name

    @property
    def adapter_id(self) -> int:
        """The same as `lora_int_id`."""
        return self.lora_int_id

    @property
    def path(self) -> str:
        """The same as `lora_path`."""
        return self.lora_path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoRARequest) and self.lora_name == other.lora_name

    def __hash__(self) -> int:
        return hash(self.lora_name)
