"""Lists of adapters with scales against PEFT, which has them active together or joins them into one adapter."""

from __future__ import annotations

import contextlib
import pathlib
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from adapter_kinds import WRONG_SCALE, with_adapters
from family_models import VOCAB
from frameworks import TORCH_WANTED
from test_adapter_kinds import IS_WHOLE, MODELS, logits_of, make_base
from test_families import TOLERANCE, error_of, one_thread, run, seed_of_run

pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")
_ = one_thread  # a fixture of every test here

PARTS = {"a": "LoRA", "b": "LoRA", "c": "lora_bias", "d": "head", "e": "embedding"}  # kinds, by the name of an adapter
LISTS = [{"a": 1.0, "b": 1.0}, {"a": 0.25, "b": 1.5}, {"c": -0.5, "a": 2.0}, {"d": 0.5, "e": 2.0, "b": 1.0}, {"e": 0.5},
         {"c": 0.25}, {"d": -1.0, "c": 1.0}, {name: 0.5 for name in PARTS}]

List = dict[str, float]


class Joined:
    """A model with all adapters of PARTS in PEFT, and the rows that heddle computed with lists of them."""

    def __init__(self, name: str, folder: pathlib.Path, seed: int) -> None:
        base, path = make_base(name, folder, seed)
        self.model, options = with_adapters(base, PARTS, folder, seed)
        numbers = random.Random(seed)
        self.lists: list[List] = [*LISTS, {}]
        self.tokens = [[numbers.randrange(3, VOCAB) for _ in range(7 + 3 * i)] for i in range(len(self.lists))]
        rows: list[dict[str, Any]] = []
        for tokens, scales in zip(self.tokens, self.lists):
            entries = [{"name": part, "scale": scale} for part, scale in scales.items()]
            rows.append({"tokens": tokens, "adapter": None} | ({"adapters": entries} if entries else {}))
        rows += [{"tokens": tokens, "adapter": "a"} for tokens in self.tokens[:2]]
        self.got = run(path, rows, "--steps", "3", *options)["rows"]

    @contextlib.contextmanager
    def active(self, scales: List) -> Iterator[Any]:
        """PEFT with these adapters, each times its scale."""
        layers = [module for module in self.model.modules() if hasattr(module, "set_scale")]
        if not scales:
            with self.model.disable_adapter():
                yield self.model
            return
        self.model.base_model.set_adapter(list(scales))
        for layer in layers:
            for part, scale in scales.items():
                layer.set_scale(part, scale)
        yield self.model
        for layer in layers:
            for part in scales:
                layer.set_scale(part, 1.0)

    def error(self, i: int, scales: List) -> float:
        with self.active(scales) as model:
            return error_of(self.got[i]["logits"], logits_of(model, self.tokens[i])[0].tolist())


@pytest.fixture(scope="module", params=MODELS if IS_WHOLE else ["llama", "gemma2"])
def joined(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Joined:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Joined(request.param, tmp_path_factory.mktemp(request.param), seed_of_run())


def test_logits_are_pefts_with_all_of_a_list_active(joined: Joined) -> None:
    for i, scales in enumerate(joined.lists):
        assert joined.error(i, scales) <= TOLERANCE, scales


def test_mistakes_are_seen(joined: Joined) -> None:
    for i, scales in enumerate(LISTS):
        for part, scale in scales.items():
            assert joined.error(i, scales | {part: scale * WRONG_SCALE}) > TOLERANCE, (scales, part)


def test_logits_are_those_of_one_adapter_that_peft_joins(joined: Joined) -> None:
    """add_weighted_adapter takes adapters of the same modules."""
    for i, scales in enumerate(LISTS[:2]):
        joined.model.add_weighted_adapter(list(scales), list(scales.values()), f"joined{i}", combination_type="cat")
        assert joined.error(i, {f"joined{i}": 1.0}) <= TOLERANCE, scales


def test_rows_keep_their_bits(joined: Joined) -> None:
    """Alone, in other chunks and pages: rows with lists, of the base model, and of one adapter."""
    assert all(got["same_bits_alone"] for got in joined.got)
