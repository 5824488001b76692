#!/usr/bin/env bash
# bench/peers/run_chats.sh: measures conversations with heddle's server, with and without its prefix cache, and with llama.cpp's in turns,
# writes bench/results/chats_cpu.json.
#
# Needs build/heddle and build/heddle-serve, which `make serve` builds, and the folder of install_server.sh; takes a quarter of an hour, on
# a machine that does nothing else.
#   PEERS=FOLDER    the folder of install_server.sh (build/peers-server)
#   THREADS=N       threads of each server (2), the number of cores
#   ROUNDS=N        how often all are measured, in turns (2)
#   WAIT=SECONDS    how long each waits, at most, for a load average below 1 (0)
#   BESIDES=TEXT    what else ran on the machine, for the record
#   PREFIX=COMMAND  put before every measurement, for example "taskset -c 0,1"
#   HEDDLE=PROGRAM  heddle (build/heddle)
#   OUT=FILE        what is written (bench/results/chats_cpu.json)
#   OPTIONS=WORDS   of chats_cpu.py measure, for example "--users 2 --turns 3" for a trial
set -euo pipefail
cd "$(dirname "$0")/../.."
peers=${PEERS:-build/peers-server}
model=$(tools/fetch_model)
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

for round in $(seq "${ROUNDS:-2}"); do
  # A machine may get slower or faster meanwhile. The bound of turn ten is of heddle alone, which so gets more of the rounds.
  servers=(heddle heddle-no-cache heddle llama.cpp heddle)
  ((round % 2)) || servers=(heddle llama.cpp heddle heddle-no-cache heddle)
  for i in "${!servers[@]}"; do
    server=${servers[i]}
    echo "round $round: $server" >&2
    # shellcheck disable=SC2086  # several words
    ${PREFIX:-} python3 bench/peers/chats_cpu.py measure "$server" --model "$model" --threads "${THREADS:-2}" --wait "${WAIT:-0}" \
      --heddle "${HEDDLE:-build/heddle}" --peers "$peers" --json "$parts/$round-$i.json" ${OPTIONS:-}
  done
done
python3 bench/peers/chats_cpu.py join "$parts"/*.json --peers "$peers" --besides "${BESIDES:-nothing that is known of}" \
  --out "${OUT:-bench/results/chats_cpu.json}"
