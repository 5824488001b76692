#!/usr/bin/env bash
# clean_install.sh PYTHON WHEEL: installs the wheel, without an index, into an environment of PYTHON that has nothing else, not even pip,
# and uses it there.
set -euo pipefail
python=$1 wheel=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$python" -m venv --without-pip "$folder/clean"
"$python" -m pip --python "$folder/clean/bin/python" install --quiet --disable-pip-version-check \
  --no-index "$wheel"
cd "$folder"
"$folder/clean/bin/python" -I "$here/installed_package.py"
if [ -e "$folder"/clean/lib/python*/site-packages/heddle_program/bin/heddle ]; then
  "$folder/clean/bin/python" -I "$here/installed_program.py"
fi
