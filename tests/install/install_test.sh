#!/usr/bin/env bash
# install_test.sh SOURCE BUILD: installs the build into an empty prefix, then builds and runs examples/cpp against nothing
# but that prefix, once found by CMake and once by pkg-config. Every header of the source tree must have been installed.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
diff <(cd "$source/include" && find . -name '*.h' | sort) \
     <(cd "$work/prefix/include" && find . -name '*.h' ! -path ./heddle/config.h | sort)

cp -r "$source/examples/cpp" "$work/example"  # so that nothing of the tree is in reach of its includes
cmake -S "$work/example" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build"
for program in "$work/example"/*.cpp; do
  name=$(basename "$program" .cpp)
  echo "--- $name, found by CMake"
  "$work/build/$name"
  echo "--- $name, found by pkg-config"
  pkg_config=(env PKG_CONFIG_PATH="$(dirname "$(find "$work/prefix" -name heddle.pc)")" pkg-config heddle)
  c++ -std=c++20 "$program" -o "$work/$name" $("${pkg_config[@]}" --cflags --libs)
  "$work/$name"
done

if [ -x "$build/heddle" ]; then
  echo "--- the installed program"
  "$work/prefix/bin/heddle" --help >/dev/null
fi
