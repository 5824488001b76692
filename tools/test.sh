#!/usr/bin/env bash
# tools/test.sh test|ci: runs the tests of `make test`, those of the sanitized build and those of the release build that need no torch,
# or what `make ci` adds to them. Then it prints the CPU seconds of all stages, and ends with one line: "N passed, N failed". A test that
# did not run counts as failed. A test program counts as one test; the tests in it that need a GPU are skipped where there is none, and
# their number is shown.
set -uo pipefail
cd "$(dirname "$0")/.."

target=$1
seconds=build/cpu_seconds.jsonl
reports=()
outcome=0
run() {  # run FOLDER TITLE CTEST_ARGUMENT...
  reports+=("$PWD/$1/test_report.xml")
  rm -f "${reports[-1]}"
  echo "--- $2"
  tools/cpu_time "$seconds" "$2" ctest --test-dir "$1" --output-on-failure --parallel "$(nproc)" --output-junit "${reports[-1]}" \
    --test-output-size-passed 1000000 --no-tests=error "${@:3}" || outcome=1
}

if ! compgen -G "build/python/heddle/_core.*.so" >/dev/null; then
  echo "the Python module is not built: its tests could not run" >&2
  exit 1
fi
if [ "$target" = test ]; then
  limit=3300
  run build-asan "tests with sanitizers"
  HEDDLE_TEST_TORCH=0 run build "tests of the release build" -LE '^ci$'
else
  limit=6000
  run build "tests of make ci" -L '^(ci|python)$'
fi

total=$(cat "${reports[@]}" | grep -c '<testcase ')
passed=$(cat "${reports[@]}" | grep '<testcase ' | grep -c 'status="run"')
skipped=$(cat "${reports[@]}" | awk '/\[  SKIPPED \] [0-9]+ tests?, listed below/ { n += $4 } END { print n + 0 }')
[ "$skipped" -eq 0 ] || echo "$skipped tests within these programs were skipped: no CUDA device"
[ "$target" = test ] || [ "${HEDDLE_TEST_TORCH:-1}" != 0 ] || echo "tests with torch and PEFT left out: HEDDLE_TEST_TORCH=0"
tools/cpu_time --yardstick "$seconds"
tools/cpu_time --table "$seconds" --limit "${HEDDLE_CPU_LIMIT:-$limit}" || outcome=1
echo "$passed passed, $((total - passed)) failed"
[ "$outcome" -eq 0 ] && [ "$total" -gt 0 ] && [ "$passed" -eq "$total" ]
