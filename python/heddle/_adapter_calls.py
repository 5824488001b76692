"""The calls of `heddle.LLM` by which adapters come and go."""

from __future__ import annotations

import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

from heddle import _core
from heddle._adapters import BASE, Running, arrays_of, check_name, config_json, switches
from heddle._hints import hinted


class AdapterCalls:
    """Adapters by name."""

    _engine: _core.Engine
    _adapter_dir: pathlib.Path | None

    @property
    def adapters(self) -> list[str]:
        """The names of the adapters; of those of `adapter_dir`, the ones that are in use or in memory."""
        return self._engine.adapter_names()

    @hinted
    def add_adapter(
        self, name: str, folder: str | os.PathLike[str], *, replace: bool = False,
        running: Running = "finish",
    ) -> None:
        """Loads an adapter; prompts that run go on meanwhile.

        Args:
            name: What prompts call it.
            folder: As PEFT saves it, or a GGUF file of llama.cpp.
            replace: Where the name is taken, the new adapter replaces it for all prompts that
                follow.
            running: With `replace`, prompts that were given before "finish" with the weights that
                they began with, or "switch" to the new ones (`Answer.adapter_switches`).

        Raises:
            ValueError: It does not fit the model, or the name is taken. Nothing has changed then.
        """
        switch = switches(running, replace)
        path = os.fspath(folder)
        if name == BASE:
            raise ValueError(f"{path}: the name {name} means the model without an adapter")
        if self._adapter_dir is not None and not replace:
            check_name(name, pathlib.Path(path), self._adapter_dir)
        for what in self._engine.add_adapter(name, path, replace, switch):
            warnings.warn(what, stacklevel=3)

    @hinted
    def load_adapter(
        self, name: str, tensors: Mapping[str, Any], config: Any, *, replace: bool = True,
        running: Running = "finish",
    ) -> _core.AdapterReceipt:
        """Loads an adapter from memory, without a file: of a trainer, say. Prompts that run go on
        meanwhile.

            weights = peft.get_peft_model_state_dict(model)
            llm.load_adapter("policy", weights, model.peft_config["default"])

        The tensors are copied before it returns, so they may change then. Those of a GPU are copied
        by way of host memory, in the order of the stream that their framework works on now.

        Args:
            name: What prompts call it.
            tensors: By the names that PEFT gives them; f32, f16 or bf16, all on one device: torch
                tensors, NumPy arrays, or what else speaks DLPack.
            config: What adapter_config.json would hold: a peft.LoraConfig, a mapping, or its text.
            replace: Where the name is taken, it is replaced for all prompts that follow.
            running: As that of `add_adapter`.

        Returns:
            Its receipt, without norms: `adapter_receipt` has them when they are computed. Answers
            have its digest as `adapter_digest`.

        Raises:
            ValueError: It does not fit the model, or the name is taken. Nothing has changed then.
            NotImplementedError: Of a kind that heddle does not run.
        """
        if name == BASE:
            raise ValueError(f"the name {name} means the model without an adapter")
        switch = switches(running, replace)
        names, arrays = arrays_of(tensors)
        loaded = self._engine.load_adapter(name, config_json(config), names, arrays, replace, switch)
        for what in loaded[0]:
            warnings.warn(what, stacklevel=3)
        return loaded[1]

    @hinted
    def adapter_receipt(self, name: str, *, norms: bool = True) -> _core.AdapterReceipt | None:
        """What came of an adapter that was loaded (docs/adapter_receipts.md): the tensors that were
        given and applied, the sites with rank, scale and type, the digest of the content, and how
        large the change is next to the weights that it changes. `str` of it is one line.

        Args:
            name: Of the adapter.
            norms: Waits until the norms are computed; else those that are known are in it, perhaps
                none.

        Returns:
            None for one of `adapter_dir` whose weights were not loaded yet.

        Raises:
            ValueError: No adapter has that name; or norms of an adapter of `adapter_dir` are asked
                for, and its files have changed.
        """
        return self._engine.adapter_receipt(name, norms)

    @hinted
    def keep_versions(self, name: str, count: int) -> None:
        """From here on so many older versions, 0 to 64, stay in memory when the name is replaced;
        prompts may name them `"NAME@VERSION"`, counted from 1."""
        self._engine.keep_versions(name, count)

    @hinted
    def roll_back_adapter(self, name: str, version: int, *, running: Running = "finish") -> None:
        """The name stands for an older version that was kept; `running` as in `add_adapter`."""
        self._engine.roll_back_adapter(name, version, switches(running))

    @hinted
    def remove_adapter(self, name: str) -> None:
        """Removes an adapter; prompts that were given before finish with it.

        Raises:
            ValueError: No adapter has that name.
        """
        if not self._engine.remove_adapter(name):
            raise ValueError(f'unknown adapter "{name}"')
