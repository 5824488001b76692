#!/usr/bin/env bash
# tools/format.sh: formats all C++, CUDA and C of the tree in place. With --check it changes nothing, and fails with the lines
# that it would change.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v clang-format-14 >/dev/null || { echo "clang-format-14 is missing: tools/bootstrap installs it" >&2; exit 1; }
sources() { find include src python apps tests examples -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.c' -o -name '*.cu' \) -print0; }

if [ "${1:-}" = --check ]; then
  sources | xargs -0 -P "$(nproc)" -n 16 clang-format-14 --dry-run -Werror || { echo "run make format" >&2; exit 1; }
else
  sources | xargs -0 -P "$(nproc)" -n 16 clang-format-14 -i
fi
