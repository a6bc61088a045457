#!/usr/bin/env bash
# The engine of a wheel for arm64, once, in qemu-user: an echo of two seconds against the reference server of this machine. It proves
# that it runs and counts right, and says nothing of its speed.
#
#   scripts/foreign_engine.sh dist/wsbench-0.2.0-py3-none-manylinux_2_28_aarch64.whl
#
# Needs qemu-user-static and libc6-arm64-cross; without them it says so and ends with 0.
set -euo pipefail
wheel=$(realpath "${1:?the wheel}")
cd "$(dirname "$0")/.."
if ! command -v qemu-aarch64-static >/dev/null || [ ! -d /usr/aarch64-linux-gnu ]; then
  echo "the engine of ${wheel##*/} was not tried: apt-get install qemu-user-static libc6-arm64-cross"
  exit 0
fi
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
python3 -m zipfile -e "$wheel" "$folder"
engine=$folder/wsbench/shipped/wsbench-engine
chmod +x "$engine"
printf '#!/bin/sh\nexec qemu-aarch64-static -L /usr/aarch64-linux-gnu %s "$@"\n' "$engine" >"$folder/engine"
chmod +x "$folder/engine"
port=$(python3 -c 'import socket; probe = socket.create_server(("127.0.0.1", 0)); print(probe.getsockname()[1])')
.venv/bin/wsbench build reference >/dev/null
.venv/bin/wsbench start reference --port "$port" >"$folder/start.log" 2>&1 &
server=$!
for _ in $(seq 100); do
  grep -q "$port" "$folder/start.log" && break
  sleep 0.1
done
cd "$folder"
ENGINE=$folder/engine URL=ws://127.0.0.1:$port/echo "$OLDPWD/.venv/bin/python" - <<'EOF'
import os, sys
from pathlib import Path

from wsbench import cli
from wsbench.engine import program

program.binary = lambda: Path(os.environ["ENGINE"])
sys.argv = ["wsbench", "load", os.environ["URL"], "-c", "4", "-t", "2", "--warmup", "0.5", "--json", "--no-pin"]
sys.stdout = open("load.json", "w")
cli.carried_out(sys.argv[1:])
EOF
python3 - "${wheel##*/}" <<'EOF'
import json, sys
ledger = json.load(open("load.json"))["ledger"]
assert ledger["answered"] == ledger["sent"] > 0 and ledger["failed"] == 0, ledger
print(f"{sys.argv[1]}: its engine sent {ledger['sent']:,} messages and read {ledger['answered']:,} replies in qemu-user")
EOF
