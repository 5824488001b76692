#!/usr/bin/env bash
# bench/peers/run_server.sh: measures heddle's server and llama.cpp's in turns, writes bench/results/server_cpu.json.
#
# Needs build/heddle and build/heddle-serve, which `make serve` builds, and the folder of install_server.sh; takes a quarter of an hour, on
# a machine that does nothing else.
#   PEERS=FOLDER    the folder of install_server.sh (build/peers-server)
#   THREADS=N       threads of each server (2), the number of cores; one less where the client has a core for itself
#   ROUNDS=N        how often all are measured, in turns (2)
#   PREFIX=COMMAND  put before every measurement, for example "taskset -c 0,1"
#   HEDDLE=PROGRAM  heddle (build/heddle)
#   OUT=FILE        what is written (bench/results/server_cpu.json)
set -euo pipefail
cd "$(dirname "$0")/../.."
peers=${PEERS:-build/peers-server}
model=$(tools/fetch_model)
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

cell() {  # cell ROUND NAME ADAPTERS CLIENTS OPTION...: both servers
  servers=(heddle llama.cpp)
  (($1 % 2)) || servers=(llama.cpp heddle)  # a machine may get slower or faster meanwhile
  for server in "${servers[@]}"; do
    echo "round $1: $server, $2, $3 adapters, $4 clients" >&2
    ${PREFIX:-} python3 bench/peers/server_cpu.py measure "$server" --adapters "$3" --clients "$4" "${@:5}" --model "$model" \
      --heddle "${HEDDLE:-build/heddle}" --peers "$peers" --json "$parts/$1-$2-$3-$4-$server.json"
  done
}

for round in $(seq "${ROUNDS:-2}"); do
  for adapters in 8 1; do
    for clients in 1 8 32; do
      cell "$round" together "$adapters" "$clients" --threads "${THREADS:-2}"
    done
  done
  cell "$round" apart 8 8 --threads $((${THREADS:-2} - 1)) --apart
done
python3 bench/peers/server_cpu.py join "$parts"/*.json --peers "$peers" --out "${OUT:-bench/results/server_cpu.json}"
