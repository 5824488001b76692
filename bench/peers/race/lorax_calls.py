"""LoRAX's LoRA kernels in Triton, from a checkout of LoRAX that LORAX_SOURCE names."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable

import torch
from cells import Arrays, Cell
from stub_modules import module, package

PEER = "LoRAX"
FOLDER = "server/lorax_server/utils/ops"


def install(source: pathlib.Path) -> dict[str, str]:
    """Makes the kernels importable: what fetched.json says of other peers."""
    folder = source / FOLDER
    if not (folder / "bgmv_shrink.py").is_file():
        raise FileNotFoundError(f"LORAX_SOURCE has no {FOLDER}/bgmv_shrink.py")
    for name in ("lorax_server", "lorax_server.utils"):
        package(name)
    package("lorax_server.utils.ops", folder)
    # Its cache of compiled kernels looks into an older Triton; Triton's own does the same.
    module("lorax_server.utils.ops.libentry", libentry=lambda: lambda kernel: kernel)
    return {"package": "lorax", "version": version_of(source)}


def version_of(checkout: pathlib.Path) -> str:
    """Its commit, "unknown" where it is a plain folder, perhaps in a checkout of something else."""
    command = ["git", "-C", str(checkout), "rev-parse", "--show-prefix", "--short", "HEAD"]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    prefix, _, commit = run.stdout.partition("\n")
    return commit.strip() or "unknown" if run.returncode == 0 and not prefix else "unknown"


class LoRAX:
    """One cell, as LoRAX's PunicaWrapper calls the kernels: slice by slice."""

    def __init__(self, cell: Cell, arrays: Arrays) -> None:
        from lorax_server.utils.ops.bgmv_expand_slice import bgmv_expand_slice
        from lorax_server.utils.ops.bgmv_shrink import bgmv_shrink
        from lorax_server.utils.ops.sgmv_expand_slice import sgmv_expand_slice
        from lorax_server.utils.ops.sgmv_shrink import sgmv_shrink

        self.decode = bgmv_shrink, bgmv_expand_slice
        self.prompts = sgmv_shrink, sgmv_expand_slice
        self.cell, self.arrays = cell, arrays
        self.ids = arrays.ids.long()
        slots = torch.arange(cell.adapters, device=arrays.device)
        lengths = torch.tensor(arrays.lengths, device=arrays.device)
        self.segments = (arrays.starts.long(), lengths, slots, cell.adapters, max(arrays.lengths))
        for i in range(arrays.num_sets):
            arrays.apart(i)  # not while a graph is captured
        slices = len(cell.out_features)
        self.buffer = torch.empty(slices, cell.tokens, cell.rank, device=arrays.device)

    def call_with(self, _: None) -> Callable[[int], None]:
        cell, arrays, buffer = self.cell, self.arrays, self.buffer

        def call(i: int) -> None:
            a, b = arrays.apart(i)
            buffer.zero_()
            for s, width in enumerate(cell.out_features):
                place = cell.offsets[s], width
                if cell.is_prefill:
                    shrink, expand = self.prompts
                    shrink(arrays.x[i], a[s], buffer[s], *self.segments, 1.0)
                    expand(buffer[s], b[s], arrays.y[i], *self.segments, *place, True)
                else:
                    shrink, expand = self.decode
                    shrink(arrays.x[i], a[s], buffer[s], self.ids, 1.0)
                    expand(buffer[s], b[s], arrays.y[i], self.ids, *place, True)

        return call
