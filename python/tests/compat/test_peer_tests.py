"""bench/peers/tests/peer_tests.py on small test files in place of those of other projects."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
from frameworks import TORCH_WANTED

pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="HEDDLE_TEST_TORCH=0")
TOOL = pathlib.Path(__file__).parents[3] / "bench/peers/tests/peer_tests.py"
CONTROLLERS = "core/inference/text_generation_controllers"
MTP_TESTS = f"tests/unit_tests/{CONTROLLERS.partition('/')[2]}/test_mtp_utils.py"

MEGATRON = """
import pytest
import torch
from megatron.core.inference.text_generation_controllers import mtp_utils_pytorch, mtp_utils_triton

def test_whose_they_are():
    assert mtp_utils_pytorch.ORIGIN == "theirs"
    assert mtp_utils_triton.__name__ == "heddle.compat.megatron.mtp_utils"
    assert torch.zeros(2, device="cuda").device.type == "cpu"

def test_that_fails():
    assert torch.ones(2).tolist() == [1.0, 2.0]

@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU")
def test_that_is_skipped():
    raise AssertionError
"""
LORAX = """
import torch
from lorax_server.utils import punica
from lorax_server.utils.ops.sgmv_shrink import sgmv_shrink

def test_layer_above_the_kernels():
    assert punica.ORIGIN == "theirs" and punica._kernels.__name__ == "heddle.compat.punica_kernels"
    assert sgmv_shrink.__module__ == "heddle.compat.lorax.ops"

def test_of_a_graph():
    x, y, w = torch.ones(1, 4).to("cuda:0"), torch.zeros(1, 4).cuda(), torch.ones(4)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        punica._kernels.rms_norm(y, x, w, 0.0)
    torch.cuda.synchronize()
    graph.replay()
    assert torch.equal(x, y)
"""
PUNICA = """
import torch
import punica.ops
from punica import KvPool

def test_starts_and_stacked_weights():
    weights = torch.arange(24.0, device="cuda").reshape(2, 1, 3, 4)
    x, starts = torch.ones(3, 4, device="cuda"), torch.tensor([0, 1, 3], dtype=torch.int32)
    addresses = torch.tensor([w.data_ptr() for w in weights])
    want = torch.stack([weights[i, 0] @ x[0] for i in (0, 1, 1)])
    for call in (
        lambda y: punica.ops.kernels.dispatch_bgmv(y, x, weights, torch.tensor([0, 1, 1]), 0, 1.0),
        lambda y: punica.ops.kernels.sgmv_shrink(y, x, addresses, starts, None, 0),
    ):
        y = torch.zeros(3, 3)
        call(y)
        assert torch.equal(y, want) and KvPool == "theirs"

def test_cuda_graph():
    raise AssertionError
"""
VLLM = """
from unittest.mock import patch
import pytest
from vllm.lora.ops.bgmv_expand import bgmv_expand, _bgmv_expand_kernel
from vllm.triton_utils.libentry import LibEntry
from vllm.utils import seed_everything
from .utils import ORIGIN

@pytest.mark.parametrize("case", range(1200))
def test_many(case):
    seed_everything(case)
    with patch("vllm.lora.ops.bgmv_expand._bgmv_expand_kernel", LibEntry(_bgmv_expand_kernel)):
        assert bgmv_expand.__module__ == "heddle.compat.lorax.ops" and ORIGIN == "theirs"
"""
FILES = {
    f"megatron/{MTP_TESTS}": MEGATRON,
    f"megatron/megatron/{CONTROLLERS}/mtp_utils_pytorch.py": "ORIGIN = 'theirs'",
    "lorax/server/tests/utils/test_sgmv.py": LORAX,
    "lorax/server/tests/conftest.py": "import lorax_server.server",
    "lorax/server/lorax_server/utils/punica.py": "import punica_kernels as _kernels, loguru\n"
    "from lorax_server.utils.ops.bgmv_shrink import bgmv_shrink\nORIGIN = 'theirs'",
    "punica/src/punica/utils/__init__.py": "__all__ = ['KvPool']\nKvPool = 'theirs'",
    "punica/src/punica/ops/__init__.py": "import punica.ops._kernels as kernels",
    **{f"punica/tests/test_{name}.py": PUNICA for name in ("bgmv", "flashinfer", "rms_norm")},
    **{f"punica/tests/test_{name}.py": PUNICA for name in ("sgmv", "sgmv_cutlass")},
    "vllm/tests/lora/__init__.py": "",
    "vllm/tests/lora/utils.py": "from vllm.lora.lora import LoRALayerWeights\nORIGIN = 'theirs'",
    **{f"vllm/tests/lora/test_punica_{name}.py": VLLM for name in ("sizes", "variation")},
}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Checkouts, each in a folder of its name, of what the tool takes of the projects."""
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), "--device", "cpu", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def cells(output: str) -> list[list[str]]:
    """The rows of the table, without the seconds."""
    rows = [line.strip("| ").split(" | ") for line in output.splitlines() if line.startswith("| ")]
    return [row[:-1] for row in rows[2:]]


def test_a_failed_case_is_told(folder: pathlib.Path) -> None:
    before = sorted(path for path in folder.rglob("*"))
    done = run("--megatron", folder / "megatron")
    row = ["Megatron-LM", MTP_TESTS, "`mtp_utils_triton`", "cpu", "1", "1", "1", "0"]
    assert cells(done.stdout) == [row], done.stdout + done.stderr
    assert f"{MTP_TESTS} on cpu: failed test_that_fails" in done.stdout and done.returncode == 1
    assert sorted(path for path in folder.rglob("*")) == before


def test_all_others_in_one_table(folder: pathlib.Path) -> None:
    places = [x for name in ("lorax", "punica", "vllm") for x in (f"--{name}", folder / name)]
    done = run(*places, "--every", 100)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = cells(done.stdout)
    assert [row[0] for row in rows] == ["LoRAX"] + ["Punica"] * 5 + ["vLLM 0.6"] * 2
    assert {tuple(row[4:]) for row in rows if row[0] == "LoRAX"} == {("2", "0", "0", "0")}
    assert {tuple(row[4:]) for row in rows if row[0] == "Punica"} == {("1", "0", "0", "1")}
    assert {tuple(row[4:]) for row in rows if row[0] == "vLLM 0.6"} == {("12", "0", "0", "1188")}


def test_a_file_that_cannot_be_imported_is_no_success(folder: pathlib.Path) -> None:
    (folder / "megatron" / MTP_TESTS).write_text("import a_module_that_is_not_there")
    done = run("--megatron", folder / "megatron")
    assert done.returncode == 1 and "a_module_that_is_not_there" in done.stdout


def test_folders_that_lack_something_are_named(folder: pathlib.Path) -> None:
    (folder / "lorax/server/tests/utils/test_sgmv.py").unlink()
    for arguments, said in [
        ((), "no folder is given"),
        (("--lorax", folder / "lorax"), "not there: .*test_sgmv.py"),
        (("--megatron", folder / "megatron", "--device", "tpu"), "unknown devices: tpu"),
    ]:
        done = run(*arguments)
        assert done.returncode == 2
        assert re.search(said, done.stderr)
