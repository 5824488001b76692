#!/usr/bin/env bash
# bench/peers/run_all.sh: measures heddle and its peers in turns on this machine, writes bench/results/cpu_model.json.
#
# Needs build/heddle-bench, which `make bench` builds, and the environment of install.sh; takes some ten minutes, on a machine that
# does nothing else.
#   PEERS=FOLDER    the environment of the peers (build/peers)
#   THREADS=N       threads of every program (2)
#   ROUNDS=N        how often all are measured, in turns (3); every round adds samples
#   PREFIX=COMMAND  put in front of every measurement, for example "taskset -c 0,1"
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PEERS:-build/peers}/bin/python
threads=${THREADS:-2}
prefix=${PREFIX:-}
model=$(tools/fetch_model)
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

adapters=()
for folder in examples/adapters/*/; do
  adapters+=(--adapter "$(basename "$folder")=$folder")
done

peers() {  # peers ROUND PART
  echo "round $1: $2" >&2
  $prefix "$python" bench/peers/peers.py "$2" --model "$model" --adapters examples/adapters --threads "$threads" \
    --samples 3 --json "$parts/$1-$2.json"
}

for round in $(seq "${ROUNDS:-3}"); do
  peers "$round" bandwidth
  peers "$round" llama
  echo "round $round: heddle" >&2
  $prefix build/heddle-bench model --model "$model" --threads "$threads" --samples 3 "${adapters[@]}" \
    --json "$parts/$round-heddle.json"
  peers "$round" transformers
  peers "$round" peft
done
python3 bench/peers/summarize.py "$parts"/*.json --threads "$threads" --out bench/results/cpu_model.json
