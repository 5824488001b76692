#!/usr/bin/env bash
# The budget of CUDA kernels: how many a family of ops may have, every instance of a template counted. It is 24, or the number in
# src/ops/<family>/kernel_budget.txt, which is exact: one above what the family has is an error, too.
#
# tools/count_kernels.sh OBJECT...         prints the counts of the objects' families, fails where one is not within its budget
# tools/count_kernels.sh --at-most OBJECT...  fails where one is above it: for a build with a choice of instances
# tools/count_kernels.sh --self-test NVCC  checks the checker on kernels within the budget and above it
#
# An object's path ends with that of its source, as in .../src/ops/lora/pairs/pairs_cuda.cu.o. The toolkit's wheels have no cuobjdump,
# so the count is that of the host stubs, one per kernel, that nvcc leaves in an object.
set -euo pipefail
default=24
at_most=
if [ "${1:-}" = --at-most ]; then
  at_most=1
  shift
fi

count() {  # count SOURCES OBJECT...: SOURCES is the folder of the families
  local sources=$1 object family kernels budget failed=0
  declare -A total
  for object in "${@:2}"; do
    kernels=$(nm "$object" | grep -oE '__device_stub__[A-Za-z0-9_$]+' | sed -E 's/E(5__tmp|8__handle)$//' | sort -u | wc -l) || true
    family=${object##*src/ops/}
    family=${family%%/*}
    family=${family:-cuda}  # of src/cuda
    if [ "$kernels" -eq 0 ]; then
      echo "$object: a CUDA file without kernels"
      failed=1
    fi
    total[$family]=$((${total[$family]:-0} + kernels))
  done
  for family in $(printf '%s\n' "${!total[@]}" | sort); do
    budget=$default
    [ ! -f "$sources/$family/kernel_budget.txt" ] || budget=$(cat "$sources/$family/kernel_budget.txt")
    printf '%-12s %3d kernels, budget %d\n' "$family" "${total[$family]}" "$budget"
    if [ "${total[$family]}" -gt "$budget" ]; then
      echo "  too many"
      failed=1
    elif [ -z "$at_most" ] && [ "$budget" -gt $default ] && [ "${total[$family]}" -lt "$budget" ]; then
      echo "  fewer than its budget: lower src/ops/$family/kernel_budget.txt"
      failed=1
    fi
  done
  return $failed
}

self_test() {  # self_test NVCC
  local nvcc=$1
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  sources=$folder/src/ops
  family() {  # family NAME COUNT...: a folder with an object for each count, of so many kernels
    local kernels file at=$sources/$1
    mkdir -p "$at"
    for kernels in "${@:2}"; do
      file=$at/with_${kernels}_cuda.cu
      { echo 'template <int N> __global__ void kernel(int* p) { p[N] = N; }'
        echo 'void launch(int* p) {'
        for i in $(seq "$kernels"); do echo "kernel<$i><<<1, 1>>>(p);"; done
        echo '}'; } >"$file"
      "$nvcc" -arch=sm_90a -O1 -c "$file" -o "$file.o"
    done
  }
  family within 20 4
  family above 20 5
  family none 0
  family large 25
  count "$sources" "$sources"/within/*.o | grep -qx 'within  *24 kernels, budget 24'
  echo 25 >"$sources/large/kernel_budget.txt"
  count "$sources" "$sources"/large/*.o | grep -qx 'large  *25 kernels, budget 25'
  echo 26 >"$sources/large/kernel_budget.txt"
  for wrong in above none large; do
    if count "$sources" "$sources/$wrong"/*.o >/dev/null; then echo "$wrong was accepted"; exit 1; fi
  done
  echo "self-test: 2 families accepted, 3 refused"
}

if [ "$1" = --self-test ]; then self_test "$2"; else count "$(dirname "$0")/../src/ops" "$@"; fi
