"""What the tests of heddle.LLM share: the model's file, and one LLM with the example adapters."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from llm_cases import ADAPTERS, ROOT

import heddle


@pytest.fixture(scope="session")
def model() -> str:
    """The model of the demo, fetched if need be."""
    command = [ROOT / "tools" / "fetch_model"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@pytest.fixture(scope="session")
def llm(model: str) -> Iterator[heddle.LLM]:
    """Everything that the tests ask, two prompts at a time; a test that changes its adapters puts them back."""
    with heddle.LLM(model, ADAPTERS, max_batch=2, num_threads=2) as made:
        yield made
