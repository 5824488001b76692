#!/usr/bin/env bash
# missing_packages_test.sh SOURCE: where packages are missing, the configuration ends with one sentence that names them as Debian does.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1" >&2; cat "$work/log" >&2; exit 1; }

# refused WORD... -- CMAKE_ARGUMENT...: the configuration fails, in one sentence that has all the words, once.
refused() {
  local words=()
  while [ "$1" != -- ]; do words+=("$1"); shift; done
  shift
  rm -rf "$work/build"
  if cmake -S "$source" -B "$work/build" -DHEDDLE_CUDA=OFF "$@" >"$work/log" 2>&1; then fail "it was configured: $*"; fi
  [ "$(grep -c 'heddle needs' "$work/log")" = 1 ] || fail "not one sentence: $*"
  for word in "${words[@]}"; do
    grep 'heddle needs' "$work/log" | grep -qF -- "$word" || fail "the sentence does not say $word"
  done
}

# in_list PACKAGE...: what the sentence names is what tools/bootstrap installs.
in_list() {
  for package in "$@"; do grep -qE "^build +$package\$" "$source/tools/packages.txt" || fail "$package is not in packages.txt"; done
}

packages=(libhwy-dev libdlpack-dev libboost1.81-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libxxhash-dev libcli11-dev libspdlog-dev libedit-dev
  libbenchmark-dev libgtest-dev)
disabled=()
for name in HWY Boost nlohmann_json CLI11 spdlog benchmark GTest; do disabled+=("-DCMAKE_DISABLE_FIND_PACKAGE_$name=ON"); done
export PKG_CONFIG_LIBDIR=/nowhere
refused "${packages[@]}" "apt-get install ${packages[*]}" -- "${disabled[@]}" -DHEDDLE_DLPACK=
in_list "${packages[@]}" pkg-config

# The Python module needs less.
refused "needs Highway 1.0.3, DLPack, Boost 1.81, PCRE2 10.42, utf8proc 2.6, xxHash 0.8 (missing or too old)" \
  "apt-get install libhwy-dev libdlpack-dev libboost1.81-dev libpcre2-dev libutf8proc-dev libxxhash-dev\`, then run pip again" -- \
  -DSKBUILD=2 "${disabled[@]}" -DHEDDLE_DLPACK=

# Of tools/build, and so of make, it is the last line.
mkdir "$work/tree"
(cd "$source" && cp -r CMake* apps cmake examples include python src tests tools "$work/tree")
if "$work/tree/tools/build" ci >"$work/log" 2>&1; then fail "it was built"; fi
grep -q "^heddle needs PCRE2 .*libpcre2-dev" <(tail -1 "$work/log") || fail "the last line is another"
unset PKG_CONFIG_LIBDIR

refused "Highway 1.0.3" libhwy-dev -- -DCMAKE_DISABLE_FIND_PACKAGE_HWY=ON
if grep 'heddle needs' "$work/log" | grep -qE 'pcre|spdlog'; then fail "it names what is there"; fi
echo "the sentence: $(grep 'heddle needs' "$work/log")"
