#!/usr/bin/env bash
# bench/peers/install.sh [FOLDER]: makes a virtual environment with the peers, pinned by requirements.txt.
#
# FOLDER is build/peers by default. llama.cpp is built from source for this CPU, as its users get it by default
# (GGML_NATIVE, with AVX-512 where there is any), which takes some ten minutes on two cores. torch from the package
# index brings its CUDA libraries along, about 5 GB on disk; only its CPU part is used here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../build/peers}

python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check --upgrade pip
CMAKE_ARGS="-DGGML_NATIVE=ON" "$folder/bin/pip" install --disable-pip-version-check \
  --no-binary llama-cpp-python --requirement "$here/requirements.txt"
g++ -std=c++20 -O3 -march=native -pthread "$here/read_bandwidth.cpp" -o "$folder/bin/read_bandwidth"
echo "the peers are in $folder"
