"""Merges of adapters against PEFT's add_weighted_adapter, which draws what heddle draws."""

from __future__ import annotations

import json
import pathlib
import random
import warnings
from typing import Any
from unittest import mock

import numpy as np
import pytest
from adapter_kinds import with_adapters
from family_models import VOCAB
from frameworks import TORCH_WANTED
from test_adapter_kinds import IS_WHOLE, logits_of, make_base
from test_families import TOLERANCE, error_of, one_thread, run, seed_of_run

pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")
_ = one_thread  # a fixture of every test here

Merge = dict[str, Any]

PARTS = {"a": "LoRA", "b": "LoRA", "c": "LoRA", "d": "embedding", "e": "embedding"}  # kinds, by the name of an adapter
THREE = {"a": 1.0, "b": 0.5, "c": -0.75}
MERGES: dict[str, Merge] = {
    "ties": {"method": "ties", "density": 0.4},
    "ties by frequency": {"method": "ties", "density": 0.7, "majority_sign_method": "frequency"},
    "all of them": {"method": "ties", "density": 1.0},
    "dare_linear": {"method": "dare_linear", "density": 0.6, "seed": 5},
    "dare_ties": {"method": "dare_ties", "density": 0.6, "seed": -1},
    "dare_ties by frequency": {"method": "dare_ties", "density": 0.6, "majority_sign_method": "frequency", "seed": 1 << 40},
    "magnitude_prune": {"method": "magnitude_prune", "density": 0.3},
    "embeddings": {"method": "ties", "density": 0.5},
    "drawn embeddings": {"method": "dare_linear", "density": 0.5},
}


def parts_of(name: str) -> dict[str, float]:
    return {"d": 1.0, "e": 0.5} if "embeddings" in name else THREE


def mask(seed: int, tensor: int, place: int, count: int, density: float) -> Any:
    """docs/adapter_merges.md: word i % 4 of philox4x32-10 at counter i // 4, below the density."""
    low = np.uint64(0xFFFFFFFF)
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    words = [block & low, block >> np.uint64(32), np.full_like(block, tensor), np.full_like(block, place)]
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        words = [b >> np.uint64(32) ^ words[1] ^ np.uint64(keys[0]), b & low,
                 a >> np.uint64(32) ^ words[3] ^ np.uint64(keys[1]), a & low]
        keys = [keys[0] + 0x9E3779B9 & 0xFFFFFFFF, keys[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return (np.stack(words, axis=1).reshape(-1)[:count] < density * 2**32).astype(np.float32)


def draws_of(seed: int, num_parts: int, density: float) -> Any:
    """In place of torch.bernoulli, which PEFT calls for A of each adapter and for B of each, module by module."""
    calls = iter(range(1 << 20))

    def bernoulli(shares: Any) -> Any:
        import torch

        tensor, place = divmod(next(calls), num_parts)
        return torch.from_numpy(mask(seed, tensor, place, shares.numel(), density)).view(shares.shape)

    return bernoulli


class Merged:
    """A model with all adapters of PARTS and their merges in PEFT, and the rows that heddle computed with these."""

    def __init__(self, name: str, folder: pathlib.Path, seed: int) -> None:
        base, path = make_base(name, folder, seed)
        self.model, options = with_adapters(base, PARTS, folder, seed)
        numbers = random.Random(seed)
        self.tokens = {merge: [numbers.randrange(3, VOCAB) for _ in range(9)] for merge in MERGES}
        for merge, given in MERGES.items():
            entries = [{"name": part, "scale": scale} for part, scale in parts_of(merge).items()]
            options += ["--merge", f"{merge}={json.dumps(given | {'adapters': entries})}"]
            self.add(merge, parts_of(merge), given)
        rows = [{"tokens": tokens, "adapter": merge} for merge, tokens in self.tokens.items()]
        self.got = dict(zip(MERGES, run(path, rows, "--steps", "3", *options)["rows"], strict=True))

    def add(self, name: str, parts: dict[str, float], given: Merge) -> None:
        with mock.patch("torch.bernoulli", draws_of(given.get("seed", 0), len(parts), given["density"])):
            self.model.add_weighted_adapter(
                list(parts), list(parts.values()), name, combination_type=given["method"], density=given["density"],
                majority_sign_method=given.get("majority_sign_method", "total"))

    def error(self, merge: str, adapter: str) -> float:
        self.model.base_model.set_adapter([adapter])
        return error_of(self.got[merge]["logits"], logits_of(self.model, self.tokens[merge])[0].tolist())


@pytest.fixture(scope="module", params=["llama", "gemma2", "qwen3"] if IS_WHOLE else ["llama", "gemma2"])
def merged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Merged:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Merged(request.param, tmp_path_factory.mktemp(request.param), seed_of_run())


@pytest.mark.parametrize("merge", MERGES)
def test_logits_are_pefts(merged: Merged, merge: str) -> None:
    assert merged.error(merge, merge) <= TOLERANCE


def test_mistakes_are_seen(merged: Merged) -> None:
    """Other weights, densities, signs and seeds."""
    def mistakes(given: Merge) -> dict[str, Merge]:
        found = {"density": given | {"density": given["density"] * 0.8}}
        if "ties" in given["method"]:
            sign = given.get("majority_sign_method", "total")
            found["sign"] = given | {"majority_sign_method": "frequency" if sign == "total" else "total"}
        if "dare" in given["method"]:
            found["seed"] = given | {"seed": given.get("seed", 0) + 1}
        return found

    for merge in ("ties", "dare_ties", "magnitude_prune"):
        for what, wrong in mistakes(MERGES[merge]).items():
            merged.add(f"{merge}, other {what}", THREE, wrong)
            assert merged.error(merge, f"{merge}, other {what}") > TOLERANCE, (merge, what)
        merged.add(f"{merge}, other weight", THREE | {"b": 0.6}, MERGES[merge])
        assert merged.error(merge, f"{merge}, other weight") > TOLERANCE, merge


def test_rows_keep_their_bits(merged: Merged) -> None:
    """Alone, in other chunks and pages."""
    assert all(got["same_bits_alone"] for got in merged.got.values())
