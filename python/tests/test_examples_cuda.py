"""The examples in examples/python that need a GPU."""

from __future__ import annotations

import re

import torch_on_gpu  # noqa: F401 - leaves this file out where there is no GPU
from test_examples import run_example


def test_a_graph_replays_with_other_rows_and_another_adapter() -> None:
    lines = run_example("cuda_graph")
    assert len(lines) == 3
    for replay, line in enumerate(lines):
        assert re.fullmatch(rf"replay {replay}: relative error \S+", line), line
