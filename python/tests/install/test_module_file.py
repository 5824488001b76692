"""The file of the module shows one symbol, and its errors pass, before and after torch.

So also where the module has a C++ library of its own; torch brings another into the process.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import frameworks
import pytest

BUILD = pathlib.Path(os.environ["HEDDLE_BUILD_DIR"])
# The folder with the package as it is installed, and that with a C++ library inside of the module.
PACKAGES = [BUILD / "python", BUILD / "python_static"]
each_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda folder: folder.name)

# Errors of the library, of two kinds, and of the arguments; each is an exception of C++ on its way.
CHECK = """
import numpy


def check(arrays):
    import heddle
    from heddle import ops

    x, weight = arrays.ones((2, 4), dtype=arrays.float32), arrays.ones(4, dtype=arrays.float32)
    ops.rms_norm(x, x, weight)
    assert abs(float(x[1, 3]) - 1) < 1e-4
    for call in (
        lambda: ops.rms_norm(x, x, weight[:3]),
        lambda: ops.rms_norm(x, x, arrays.ones(4, dtype=arrays.float64)),
        lambda: ops.rms_norm(x, x, weight, epsilon="small"),
        lambda: ops.rms_norm(x, x, "weight"),
    ):
        try:
            call()
        except Exception as error:
            print(type(error).__name__, end=" ")
    print("of", arrays.__name__, flush=True)
"""
RAISED = "ValueError NotImplementedError TypeError TypeError of "


def module_in(package: pathlib.Path) -> pathlib.Path:
    """The file of the module in the package of this folder."""
    (module,) = package.glob("heddle/_core.*.so")
    return module


def output_of(*command: str | pathlib.Path) -> str:
    """What the command prints; it must succeed."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def lines_of(code: str, *arguments: str | pathlib.Path) -> list[str]:
    """What a new process prints that runs the code after CHECK."""
    command = [sys.executable, "-c", CHECK + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout.splitlines()


@each_package
def test_the_init_function_is_the_only_symbol(package: pathlib.Path) -> None:
    symbols = output_of("nm", "-D", "--defined-only", module_in(package))
    assert [line.split()[2] for line in symbols.splitlines()] == ["PyInit__core"]


def test_the_other_package_has_a_cpp_library_of_its_own() -> None:
    needed = output_of("readelf", "-d", module_in(PACKAGES[1]))
    assert "(NEEDED)" in needed
    assert "libstdc++" not in needed


@each_package
def test_errors_before_torch(package: pathlib.Path) -> None:
    code = "import sys\nsys.path.insert(0, sys.argv[1])\ncheck(numpy)\n"
    expected = [RAISED + "numpy"]
    if frameworks.TORCH_WANTED:
        code += "import torch\ncheck(torch)\ncheck(numpy)"
        expected += [RAISED + "torch", RAISED + "numpy"]
    assert lines_of(code, package) == expected


def test_errors_after_torch() -> None:
    if not frameworks.TORCH_WANTED:
        pytest.skip("skipped: HEDDLE_TEST_TORCH=0")
    # To import torch takes seconds, so it is done once, and each package has a child.
    code = """
import os, sys, torch
for package in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        sys.path.insert(0, package)
        check(torch)
        check(numpy)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"{package} ended with {status}"
"""
    assert lines_of(code, *PACKAGES) == [RAISED + "torch", RAISED + "numpy"] * len(PACKAGES)
