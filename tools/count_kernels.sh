#!/usr/bin/env bash
# The budget of CUDA kernels: at most 24 per op and architecture, every instance of a template counted. An op is the stem of X_cuda.cu
# (compiled for all architectures) and X_sm90.cu (for 9.0a alone).
#
# tools/count_kernels.sh ARCHIVE           prints the counts of a library's ops, fails above the budget
# tools/count_kernels.sh --self-test NVCC  checks the checker on kernels within the budget and above it
#
# The toolkit's wheels have no cuobjdump, so the count is that of the host stubs, one per kernel, that nvcc leaves in an object.
set -euo pipefail
budget=24

count() {  # count ARCHIVE
  nm "$1" | awk -v budget=$budget '
    /\.cu\.o:$/ {
      member = $1; sub(/\.cu\.o:$/, "", member)
      is_sm90 = member ~ /_sm90$/
      op = member; sub(/_(cuda|sm90)$/, "", op)
      ops[op]; members[member]
    }
    /:$/ { in_cuda = /\.cu\.o:$/ }
    in_cuda && match($0, /__device_stub__[A-Za-z0-9_$]+/) {
      stub = substr($0, RSTART, RLENGTH); sub(/E(5__tmp|8__handle)$/, "", stub)
      if (seen[member, stub]++) next
      members[member]++
      if (is_sm90) sm90[op]++; else portable[op]++
    }
    END {
      for (member in members) if (!members[member]) { print member ": a CUDA file without kernels"; failed = 1 }
      for (op in ops) {
        total = portable[op] + sm90[op]
        printf "%-32s %3d portable  %3d on sm_90a%s\n", op, portable[op], total, (total > budget ? "  ABOVE " budget : "")
        if (total > budget) failed = 1
      }
      exit failed
    }' | sort
}

self_test() {  # self_test NVCC
  local nvcc=$1
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  archive() {  # archive NAME COUNT...: kernels in x_cuda.cu and, if a second count is given, in x_sm90.cu
    local suffix=cuda kernels name=$1
    for kernels in "${@:2}"; do
      { echo 'template <int N> __global__ void kernel(int* p) { p[N] = N; }'
        echo 'void launch(int* p) {'
        for i in $(seq "$kernels"); do echo "kernel<$i><<<1, 1>>>(p);"; done
        echo '}'; } >"$folder/x_$suffix.cu"
      "$nvcc" -arch=sm_90a -O1 -c "$folder/x_$suffix.cu" -o "$folder/x_$suffix.cu.o"
      ar q "$folder/$name.a" "$folder/x_$suffix.cu.o" 2>/dev/null
      suffix=sm90
    done
  }
  archive within 20 4
  archive above 20 5
  archive none 0
  count "$folder/within.a" | grep -qx 'x  *20 portable  *24 on sm_90a'
  for wrong in above none; do
    if count "$folder/$wrong.a" >/dev/null; then echo "$wrong.a was accepted"; exit 1; fi
  done
  echo "self-test: 1 archive accepted, 2 refused"
}

if [ "$1" = --self-test ]; then self_test "$2"; else count "$1"; fi
