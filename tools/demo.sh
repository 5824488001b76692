#!/usr/bin/env bash
# Answers examples/demo.jsonl in one batch: eight prompts with an adapter of their own each, and one with none.
set -euo pipefail
cd "$(dirname "$0")/.."

adapters=()
for folder in examples/adapters/*/; do
  adapters+=(--adapter "$(basename "$folder")=$folder")
done
exec build/heddle generate "${adapters[@]}" --prompts examples/demo.jsonl "$@"
