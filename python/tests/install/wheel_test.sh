#!/usr/bin/env bash
# wheel_test.sh SOURCE BUILD PYTHON: `pip wheel` uses the objects of the build folder and leaves it as it was, and the wheel, which has the
# programs, too, works in a clean environment.
set -euo pipefail
source=$1 build=$2 python=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

before=$(stat -c %Y "$build/libheddle.a")
tests=$(ctest --test-dir "$build" -N | tail -1)
"$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
  --config-settings build-dir="$build" --config-settings cmake.define.HEDDLE_WHEEL_PROGRAMS=ON \
  --config-settings "build.targets=heddle_python;heddle_python_stub;heddle_program;heddle_serve_program" --wheel-dir "$folder" "$source"
[ "$(stat -c %Y "$build/libheddle.a")" = "$before" ] || { echo "the library was built again"; exit 1; }
[ "$(ctest --test-dir "$build" -N | tail -1)" = "$tests" ] || { echo "the build folder lost its tests"; exit 1; }
"$(dirname "$0")/clean_install.sh" "$python" "$folder"/heddle_lora-*.whl
