#!/usr/bin/env bash
# tools/tidy.sh [BASE]: runs clang-tidy, with the checks of .clang-tidy, over the .cpp files that have changed since the branch left
# BASE (default: main), committed or not. HEDDLE_BUILD_DIR (default: build-dev, which is configured for it) has how each is compiled.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v clang-tidy-14 >/dev/null || { echo "clang-tidy-14 is missing: tools/bootstrap check installs it" >&2; exit 1; }
commands=${HEDDLE_BUILD_DIR:-build-dev}/compile_commands.json
[ -n "${HEDDLE_BUILD_DIR:-}" ] || cmake --preset dev -DHEDDLE_BUILD_SERVER=ON >/dev/null  # where each source is compiled alone

base=${1:-main}
[ -n "${1:-}" ] || git rev-parse --quiet --verify "$base^{commit}" >/dev/null || base=HEAD  # a clone of another branch alone
since=$(git merge-base "$base" HEAD)
mapfile -t changed < <({ git diff --name-only --diff-filter=d "$since" -- '*.cpp'; git ls-files --others --exclude-standard -- '*.cpp'; } | sort)

# Standard headers that clang 14 cannot read with g++ 12's library: <ranges>' subrange.
unreadable=apps/heddle/help/describe.cpp
files=()
for file in "${changed[@]}"; do
  if [ "$file" = "$unreadable" ] || ! grep -qF "\"file\": \"$PWD/$file\"" "$commands"; then
    echo "left out, $commands or clang 14 does not compile it: $file"
  else
    files+=("$file")
  fi
done
[ ${#files[@]} -gt 0 ] || { echo "no C++ source to check has changed since $base ($(git rev-parse --short "$since"))"; exit 0; }

echo "clang-tidy: ${#files[@]} files changed since $base ($(git rev-parse --short "$since"))"
# What only clang's compiler warns of is g++'s business.
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 1 clang-tidy-14 -p "$(dirname "$commands")" --quiet --extra-arg=-Wno-error ||
  { echo "clang-tidy objects to the lines above; where it is wrong: // NOLINT(name of the check)" >&2; exit 1; }
