#!/usr/bin/env bash
# tools/format.sh: formats all C++ of the tree in place. With --check it changes nothing and fails where it would.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v clang-format-14 >/dev/null || { echo "clang-format-14 is missing: tools/bootstrap installs it" >&2; exit 1; }
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run --Werror)
find include src apps tests examples -type f \( -name '*.h' -o -name '*.cpp' \) -print0 |
  xargs -0 -P "$(nproc)" -n 16 clang-format-14 "${mode[@]}"
