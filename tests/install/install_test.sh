#!/usr/bin/env bash
# install_test.sh SOURCE BUILD: installs the build into an empty prefix, then builds and runs examples/cpp and examples/c against
# nothing but that prefix, once found by CMake and once by pkg-config. Every header of the source tree must have been installed.
# HEDDLE_MODEL names the model that the engine's example runs.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What `make install` builds has neither tests nor benches in it.
cmake --build "$build" --target heddle_installed
ninja -C "$build" -t commands heddle_installed >"$work/commands"
if grep -oE '[a-z0-9_/]+_(test|bench)\.(cpp|cu)\.o|libheddle_testing' "$work/commands"; then
  echo "make install would build that" >&2
  exit 1
fi

cmake --install "$build" --prefix "$work/prefix" >/dev/null
diff <(cd "$source/include" && find . -name '*.h' | sort) \
     <(cd "$work/prefix/include" && find . -name '*.h' ! -path ./heddle/config.h | sort)

libraries=$(dirname "$(find "$work/prefix" -name libheddle.a)")
for file in "$libraries"/*.a "$libraries"/*.so "$work"/prefix/bin/*; do  # and all that is installed
  [ -e "$file" ] || continue
  grep -qE -- "(-o|qc) $(basename "$(readlink -f "$file")") " "$work/commands" ||
    { echo "make install does not build $file" >&2; exit 1; }
done
flags() { PKG_CONFIG_PATH="$libraries/pkgconfig" pkg-config "$@"; }

# built_by_cmake LANGUAGE: builds a copy of the examples, so that nothing of the tree is in reach of their includes.
built_by_cmake() {
  cp -r "$source/examples/$1" "$work/$1"
  cmake -S "$work/$1" -B "$work/$1/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
  cmake --build "$work/$1/build"
}

# run_example PROGRAM: without arguments; the engine's with the model and two adapters, whose answers are known.
run_example() {
  if [ "$(basename "$1")" != engine ]; then
    "$1"
    return
  fi
  "$1" "$HEDDLE_MODEL" opposite="$source/examples/adapters/opposite" slug="$source/examples/adapters/slug" >"$work/answers"
  cat "$work/answers"
  grep -qx 'opposite (stop): COLD, SMALL, SLOW' "$work/answers"
  grep -q '^slug (stop): ' "$work/answers"
  grep -q '^base (length): ' "$work/answers"
  ! "$1" "$HEDDLE_MODEL" nothing=/nonexistent 2>"$work/error" || { echo "an adapter that is not there was loaded"; exit 1; }
  grep -q '^/nonexistent/adapter_config.json' "$work/error"
}

built_by_cmake cpp
for program in "$work"/cpp/*.cpp; do
  name=$(basename "$program" .cpp)
  echo "--- $name, found by CMake"
  run_example "$work/cpp/build/$name"
  echo "--- $name, found by pkg-config"
  mkdir -p "$work/pkg"
  c++ -std=c++20 "$program" -o "$work/pkg/$name" $(flags heddle --cflags --libs)
  run_example "$work/pkg/$name"
done

built_by_cmake c
for program in "$work"/c/*.c; do
  name=$(basename "$program" .c)
  [ "$name" = engine ] && package=heddle_c_engine || package=heddle_c
  echo "--- $name in C, found by CMake"
  run_example "$work/c/build/$name"
  echo "--- $name in C, found by pkg-config"
  cc -std=c11 -Wall -Wextra -pedantic -Werror "$program" -o "$work/$name" $(flags $package --cflags --libs) -lm
  LD_LIBRARY_PATH="$libraries" run_example "$work/$name"
  [ "$name" != engine ] || continue
  echo "--- $name in C, linked statically"
  cc -std=c11 "$program" -o "$work/$name" $(flags heddle_c --cflags) \
    "$libraries/libheddle_c.a" "$libraries/libheddle.a" $(flags libhwy --libs) -lstdc++ -lm -pthread
  "$work/$name"
done

# shows LIBRARY HEADER...: it shows the functions of its headers and no other symbol.
shows() {
  local library=$1
  shift
  echo "--- $library shows the functions of $* and nothing else"
  diff <(nm -D --defined-only "$libraries/$library" | awk '{print $3}' | sort) \
       <(cd "$work/prefix/include/heddle" && grep -ohE '\bheddle_[a-z0-9_]+\(' "$@" | tr -d '(' | sort -u)
}
shows libheddle_c.so c_api.h c_linear_site.h
shows libheddle_c_engine.so c_engine.h

if [ -x "$build/heddle" ]; then
  echo "--- the installed program"
  heddle=$work/prefix/bin/heddle
  "$heddle" --help >/dev/null
  diff <("$heddle" man) "$work/prefix/share/man/man1/heddle.1"
  diff <("$heddle" completion bash) "$work/prefix/share/bash-completion/completions/heddle"
  diff <("$heddle" completion zsh) "$work/prefix/share/zsh/site-functions/_heddle"
  diff <("$heddle" completion fish) "$work/prefix/share/fish/vendor_completions.d/heddle.fish"
fi
