"""What an installed package must be and do; it needs nothing but the package."""

from __future__ import annotations

import array
import importlib.metadata
import pathlib
import re
import sys

import heddle
from heddle import ops


def floats(*values: float) -> memoryview:
    """A matrix of one row, without NumPy."""
    return memoryview(array.array("f", values)).cast("B").cast("f", (1, len(values)))


package = pathlib.Path(heddle.__file__).parent
assert package.is_relative_to(sys.prefix), package
assert (package / "py.typed").exists() and (package / "_core.pyi").exists()
(name,) = importlib.metadata.packages_distributions()["heddle"]
assert name in ("heddle-lora", "heddle-lora-cu13"), name
distribution = importlib.metadata.distribution(name)
assert distribution.version == heddle.__version__, distribution.version
assert not {"numpy", "torch"} & sys.modules.keys()

x, y, weight = floats(3, 4), floats(0, 0), memoryview(array.array("f", (1, 1)))
ops.rms_norm(y, x, weight, epsilon=0.0)
assert all(abs(a - b / 12.5**0.5) < 1e-6 for a, b in zip(y.tolist()[0], (3, 4))), y.tolist()
try:
    ops.rms_norm(y, x, weight[:1])
except ValueError as error:
    assert "is 1, expected" in str(error), error
else:
    raise AssertionError("a weight of another width was taken")

# The engine is there, too.
try:
    heddle.LLM("/nonexistent.gguf")
except ValueError as error:
    assert "/nonexistent.gguf" in str(error), error
else:
    raise AssertionError("a model that is not there was loaded")

# A wheel for other systems brings the libraries that these may lack.
tag = re.search("^Tag: (.*)$", distribution.read_text("WHEEL") or "", re.MULTILINE)
assert tag, distribution.read_text("WHEEL")
if "manylinux" in tag[1]:
    files = [*package.glob("_core.*.so"), *package.parent.glob("heddle_program/*/*")]
    # The section of kernels, on machines without a GPU, too; once, however many programs there are.
    kernels = [file for file in files if file.is_file() and b".nv_fatbin" in file.read_bytes()]
    assert len(kernels) == (name == "heddle-lora-cu13"), (name, kernels)
    maps = pathlib.Path("/proc/self/maps").read_text()
    for library in ("hwy", "pcre2", "utf8proc"):
        paths = set(re.findall(rf"/\S*lib{library}\S*", maps))
        assert paths and all(path.startswith(sys.prefix) for path in paths), (library, paths)
print(f"{name} {distribution.version} from a wheel for {tag[1]}, Python {sys.version.split()[0]}")
