#!/usr/bin/env bash
# tools/fuzz.sh SECONDS [NAME...]: runs the libFuzzer targets (all, or those named, e.g. "gguf") for SECONDS each, from the
# inputs in tests/corpus/NAME. New inputs stay in build-fuzz/corpus/NAME; an input that fails is build-fuzz/NAME-crash-*.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=$1
shift
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for program in build-fuzz/fuzz_*; do
    [ -f "$program" ] && [ -x "$program" ] && names+=("${program#build-fuzz/fuzz_}")
  done
fi
[ ${#names[@]} -gt 0 ] || { echo "no fuzz targets are built" >&2; exit 1; }

failed=()
for name in "${names[@]}"; do
  echo "--- fuzz_$name for $seconds s"
  mkdir -p "build-fuzz/corpus/$name"
  "build-fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/$name-" "build-fuzz/corpus/$name" "tests/corpus/$name" || failed+=("$name")
done
echo "$((${#names[@]} - ${#failed[@]})) passed, ${#failed[@]} failed ${failed[*]:-}"
[ ${#failed[@]} -eq 0 ]
