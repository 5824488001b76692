#!/usr/bin/env bash
# bench/peers/run_all.sh: measures heddle and its peers in turns on this machine, writes bench/results/cpu_model.json.
#
# Needs build/heddle-bench, which `make bench` builds, and the environment of install.sh; takes some ten minutes, on a machine that
# does nothing else. Models with random weights are made before the first run, in a minute or two.
#   PEERS=FOLDER    the environment of the peers (build/peers)
#   THREADS=N       threads of every program (2)
#   ROUNDS=N        how often all are measured, in turns (3); every round adds samples
#   PREFIX=COMMAND  put before every measurement, for example "taskset -c 0,1"
#   BENCH=PROGRAM   heddle-bench (build/heddle-bench)
#   BEFORE=PROGRAM  heddle-bench of an earlier commit, measured next to it in every round, and BEFORE_COMMIT=HASH
#   OUT=FILE        what is written (bench/results/cpu_model.json)
set -euo pipefail
cd "$(dirname "$0")/../.."
peers=${PEERS:-build/peers}
bench=${BENCH:-build/heddle-bench}
threads=${THREADS:-2}
prefix=${PREFIX:-}
model=$(tools/fetch_model)
qwen2=$peers/random-qwen2
"$peers/bin/python" bench/peers/random_qwen2.py "$qwen2"
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
summary=()

adapters_of() {  # adapters_of FOLDER: sets `adapters` to options of heddle-bench
  adapters=()
  for folder in "$1"/*/; do
    adapters+=(--adapter "$(basename "$folder")=$folder")
  done
}

peer() {  # peer ROUND FAMILY PART OPTION...: adds a part whose names begin with FAMILY
  echo "round $1: $2$3" >&2
  local json=$parts/$1-${2//\//-}$3.json
  $prefix "$peers/bin/python" bench/peers/peers.py "$3" --threads "$threads" --json "$json" "${@:4}"
  summary+=("$2=$json")
}

heddle() {  # heddle ROUND FAMILY PROGRAM OPTION...
  echo "round $1: $2heddle" >&2
  local json=$parts/$1-${2//\//-}heddle.json
  $prefix "$3" model --threads "$threads" --json "$json" "${@:4}"
  summary+=("$2=$json")
}

examples() {  # examples ROUND FAMILY PROGRAM: the model and the adapters of the examples
  adapters_of examples/adapters
  heddle "$1" "$2" "$3" --model "$model" --samples 3 "${adapters[@]}"
}

for round in $(seq "${ROUNDS:-3}"); do
  peer "$round" "" bandwidth --model "$model" --samples 3
  peer "$round" "" llama --model "$model" --samples 3
  # Before and after change places from round to round: a machine may get slower or faster meanwhile.
  ((round % 2)) && examples "$round" "" "$bench"
  [ -z "${BEFORE:-}" ] || examples "$round" before/ "$BEFORE"
  ((round % 2)) || examples "$round" "" "$bench"
  peer "$round" "" transformers --model "$model" --samples 3
  peer "$round" "" peft --model "$model" --adapters examples/adapters --samples 3
  for type in q4_0 bf16; do
    few=(--model "$qwen2/$type.gguf" --samples 2 --tokens 16)
    peer "$round" "qwen2_$type/" llama "${few[@]}" --adapters "$qwen2/adapters"
    adapters_of "$qwen2/adapters"
    heddle "$round" "qwen2_$type/" "$bench" "${few[@]}" "${adapters[@]}"
  done
done
python3 bench/peers/summarize.py "${summary[@]}" --threads "$threads" --before "${BEFORE_COMMIT:-}" \
  --out "${OUT:-bench/results/cpu_model.json}"
