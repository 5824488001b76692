#!/usr/bin/env bash
# source_install.sh PYTHON TOOLS: installs the checkout, without build isolation, and an sdist of it, with, into clean environments of
# PYTHON, and uses the package there. No index is asked: folder TOOLS has the wheels that the build needs, as
# `pip download -d TOOLS scikit-build-core nanobind` brings them. CMAKE_ARGS=-DHEDDLE_CUDA=OFF leaves out the CUDA kernels.
set -euo pipefail
python=$1 tools=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PIP_NO_INDEX=1 PIP_FIND_LINKS=$tools PIP_DISABLE_PIP_VERSION_CHECK=1

# into ENVIRONMENT ARGUMENT...: pip install of the arguments. The environment is made without pip, which Debian's Python may not bring.
into() {
  local environment=$folder/$1
  shift
  [ -d "$environment" ] || "$python" -m venv --without-pip "$environment"
  "$python" -m pip --python "$environment/bin/python" install --quiet "$@"
}

cd "$here/../../.."
into with_tools scikit-build-core nanobind
into with_tools --no-build-isolation --config-settings build-dir="$folder/build" .
echo "--- the checkout, with $("$folder/with_tools/bin/python" -c 'import nanobind; print("nanobind", nanobind.__version__)')"
"$folder/with_tools/bin/python" -I "$here/installed_package.py"

"$folder/with_tools/bin/python" -c 'import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])' "$folder" >/dev/null
into clean "$folder"/heddle_lora-*.tar.gz
echo "--- $(cd "$folder"; du -h heddle_lora-*.tar.gz), with build isolation"
"$folder/clean/bin/python" -I "$here/installed_package.py"
