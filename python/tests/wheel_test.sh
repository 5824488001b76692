#!/usr/bin/env bash
# wheel_test.sh SOURCE BUILD PYTHON: `pip wheel` uses the objects of the build folder and leaves it as it was, and the wheel
# works in an environment that has nothing but NumPy besides.
set -euo pipefail
source=$1 build=$2 python=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

before=$(stat -c %Y "$build/libheddle.a")
tests=$(ctest --test-dir "$build" -N | tail -1)
"$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
  --config-settings build-dir="$build" --wheel-dir "$folder" "$source"
[ "$(stat -c %Y "$build/libheddle.a")" = "$before" ] || { echo "the library was built again"; exit 1; }
[ "$(ctest --test-dir "$build" -N | tail -1)" = "$tests" ] || { echo "the build folder lost its tests"; exit 1; }

"$python" -m venv "$folder/clean"
"$folder/clean/bin/python" -m pip install --quiet --disable-pip-version-check --retries 10 \
  "$(grep '^numpy==' "$source/python/requirements-test.txt")" "$folder"/heddle_lora-*.whl
cd "$folder"
"$folder/clean/bin/python" - <<'PYTHON'
import importlib.metadata
import pathlib
import sys

import heddle

assert pathlib.Path(heddle.__file__).is_relative_to(sys.prefix), heddle.__file__
assert importlib.metadata.version("heddle-lora") == heddle.__version__, heddle.__version__
assert heddle.has_cuda() in (True, False)
assert not {"numpy", "torch"} & sys.modules.keys()
package = pathlib.Path(heddle.__file__).parent
assert (package / "py.typed").exists() and (package / "_core.pyi").exists()

import numpy as np

x = np.array([[3.0, 4.0]], np.float32)
y = np.empty_like(x)
heddle.ops.rms_norm(y, x, np.ones(2, np.float32), epsilon=0.0)
assert np.allclose(y, x / np.sqrt(12.5)), y
print(f"heddle {heddle.__version__} from a wheel")
PYTHON
