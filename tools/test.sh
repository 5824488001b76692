#!/usr/bin/env bash
# Runs the tests of the release build (everything) and of the sanitized build (what needs no model), and ends with one
# line for both: "N passed, N failed". A test that did not run counts as failed. A test program counts as one test; the tests in
# it that need a GPU are skipped where there is none, and their number is shown.
set -uo pipefail
cd "$(dirname "$0")/.."

reports=()
run() {  # run FOLDER TITLE
  reports+=("$PWD/$1/test_report.xml")
  rm -f "${reports[-1]}"
  echo "--- $2"
  ctest --test-dir "$1" --output-on-failure --parallel "$(nproc)" --output-junit "${reports[-1]}" \
    --test-output-size-passed 1000000
}

if ! compgen -G "build/python/heddle/_core.*.so" >/dev/null; then
  echo "the Python module is not built: its tests could not run" >&2
  exit 1
fi
run build-asan "tests under the address and undefined-behaviour sanitizers"
sanitized=$?
run build "tests of the release build"
release=$?

total=$(cat "${reports[@]}" | grep -c '<testcase ')
passed=$(cat "${reports[@]}" | grep '<testcase ' | grep -c 'status="run"')
skipped=$(cat "${reports[@]}" | awk '/\[  SKIPPED \] [0-9]+ tests?, listed below/ { n += $4 } END { print n + 0 }')
[ "$skipped" -eq 0 ] || echo "$skipped tests within these programs were skipped: no CUDA device"
[ "${HEDDLE_TEST_TORCH:-1}" != 0 ] || echo "tests with torch and PEFT left out: HEDDLE_TEST_TORCH=0"
echo "$passed passed, $((total - passed)) failed"
[ "$sanitized" -eq 0 ] && [ "$release" -eq 0 ] && [ "$total" -gt 0 ] && [ "$passed" -eq "$total" ]
