#!/usr/bin/env bash
# check_size.sh FILE BYTES: prints the size of the file and fails where it is not below BYTES.
set -euo pipefail
bytes=$(stat -c %s "$1")
echo "$(basename "$1"): $bytes bytes, the limit is $2"
[ "$bytes" -lt "$2" ]
