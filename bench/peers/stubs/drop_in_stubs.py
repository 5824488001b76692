"""A plugin of pytest for bench/peers/tests/peer_tests.py: puts the drop-ins where the tests of other projects look for their own kernels.

What a test compares with stays the project's own: its reference code, and its PyTorch functions next to the kernels.
"""

import importlib.util
import json
import logging
import os
import pathlib
from typing import NamedTuple

from stub_modules import load, module, package

CONTROLLERS = "megatron.core.inference.text_generation_controllers"
MANY_CASES = 1000


class Suite(NamedTuple):
    """Test files of one project, and what of it heddle takes the place of."""

    option: str
    title: str
    ours: str
    files: tuple
    devices: tuple = ("cpu", "cuda")


MTP_TESTS = "tests/unit_tests/inference/text_generation_controllers/test_mtp_utils.py"
SUITES = {
    "megatron": Suite("megatron", "Megatron-LM", "`mtp_utils_triton`", (MTP_TESTS,)),
    "megatron_pytorch": Suite("megatron", "Megatron-LM", "`mtp_utils_pytorch`", (MTP_TESTS,), ("cuda",)),
    "lorax": Suite("lorax", "LoRAX", "`punica_kernels`", ("server/tests/utils/test_sgmv.py",)),
    "punica": Suite("punica", "Punica", "`punica.ops._kernels`",
                    tuple(f"tests/test_{name}.py" for name in ("bgmv", "flashinfer", "rms_norm", "sgmv", "sgmv_cutlass"))),
    "vllm": Suite("vllm", "vLLM 0.6", "`vllm.lora.ops`", tuple(f"tests/lora/test_punica_{name}.py" for name in ("sizes", "variation"))),
}


def use_megatron(folder, theirs="mtp_utils_pytorch"):
    """One of the two modules is heddle's, the other, which it is compared with, Megatron's."""
    from heddle import compat

    compat.install("megatron")
    load(f"{CONTROLLERS}.{theirs}", folder / CONTROLLERS.replace(".", "/") / f"{theirs}.py")


def use_megatron_pytorch(folder):
    use_megatron(folder, theirs="mtp_utils_triton")


def use_lorax(folder):
    """LoRAX's own layer above the kernels, without the server around it."""
    from heddle import compat

    if importlib.util.find_spec("loguru") is None:
        module("loguru", logger=logging.getLogger("lorax"))
    compat.install("lorax")
    import lorax_server.utils

    lorax_server.utils.__path__ = [str(folder / "server/lorax_server/utils")]


def use_punica(folder):
    """Punica's own extension has one array of starts where LoRAX's has starts and ends, and stacked weights where that has addresses."""
    import torch

    from heddle.compat import punica_kernels as ours

    def addresses(weights):
        return weights.data_ptr() + torch.arange(len(weights), device=weights.device) * (weights.stride(0) * weights.element_size())

    def dispatch_bgmv(y, x, weights, indices, layer_idx, scale):
        ours.dispatch_bgmv(y, x, addresses(weights), indices, layer_idx, scale)

    def sgmv_cutlass(y, x, w_ptr, starts, tmp, layer_idx):
        ours.sgmv_cutlass(y, x, w_ptr, starts[:-1], starts[1:], tmp, layer_idx)

    def sgmv_shrink(y, x, w_ptr, starts, tmp, layer_idx):
        ours.sgmv_shrink(y, x, w_ptr, starts[:-1], starts[1:], tmp, layer_idx)

    punica = package("punica", folder / "src/punica")
    kernels = {name: getattr(ours, name) for name in ours.__all__}
    module("punica.ops._kernels", **kernels | {f.__name__: f for f in (dispatch_bgmv, sgmv_cutlass, sgmv_shrink)})
    import punica.utils

    for name in punica.utils.__all__:
        setattr(punica, name, getattr(punica.utils, name))


def use_vllm(folder):
    """The six functions that LoRAX took over. The tests wrap Triton kernels within the modules; here they find none to call."""
    import torch

    from heddle.compat.lorax import ops

    def kept(kernel):
        return kernel

    for name in ("vllm", "vllm.lora", "vllm.lora.ops", "vllm.triton_utils"):
        package(name)
    for name in ops.__all__:
        module(f"vllm.lora.ops.{name}", **{name: getattr(ops, name), f"_{name}_kernel": None})
    module("vllm.lora.lora", LoRALayerWeights=None, PackedLoRALayerWeights=None)
    module("vllm.triton_utils.libentry", LibEntry=kept)
    module("vllm.utils", seed_everything=torch.manual_seed)


def use_cpu():
    """What is asked to be on a GPU is on the CPU, and a graph runs what it is to capture, once."""
    import torch
    from torch.overrides import TorchFunctionMode

    def moved(value):
        text = value if isinstance(value, str) else value.type if isinstance(value, torch.device) else ""
        return "cpu" if text.partition(":")[0] == "cuda" else value

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is torch.Tensor.cuda:
                return args[0]
            return function(*map(moved, args), **{name: moved(value) for name, value in (kwargs or {}).items()})

    class Graph:
        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def replay(self):
            pass

    torch.cuda.is_available = lambda: True
    torch.cuda.synchronize = torch.set_default_device = lambda *_: None
    torch.cuda.CUDAGraph = torch.cuda.graph = Graph
    OnCpu().__enter__()


class Report:
    """Counts the cases and writes them down at the end."""

    def __init__(self, device, every):
        self.device, self.every = device, every
        self.counts = {"passed": 0, "failed": [], "skipped": 0, "left_out": 0}

    def pytest_collection_modifyitems(self, config, items):
        """On the CPU nothing replays a graph: a test of nothing else is left out."""
        step = self.every if len(items) > MANY_CASES else 1
        kept = [item for item in items[::step] if self.device != "cpu" or "cuda_graph" not in item.name]
        self.counts["left_out"] = len(items) - len(kept)
        items[:] = kept

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.counts["failed"].append(report.nodeid.rpartition("::")[2])
        elif report.skipped:
            self.counts["skipped"] += 1
        elif report.when == "call":
            self.counts["passed"] += 1

    def pytest_sessionfinish(self):
        pathlib.Path(os.environ["HEDDLE_PEER_REPORT"]).write_text(json.dumps(self.counts))


def pytest_configure(config):
    settings = json.loads(os.environ["HEDDLE_PEER"])
    globals()[f"use_{settings['suite']}"](pathlib.Path(settings["folder"]))
    if settings["device"] == "cpu":
        use_cpu()
    config.pluginmanager.register(Report(settings["device"], settings["every"]))
