#!/usr/bin/env bash
# The first thing a user does with a new installation: which one is it, what is missing, a server, a load, its numbers.
# Installs what the reference server's build needs, with root or sudo.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v wsbench >/dev/null || PATH="$PWD/.venv/bin:$PATH"
port=$(python3 -c 'import socket; probe = socket.create_server(("127.0.0.1", 0)); print(probe.getsockname()[1])')
folder=$(mktemp -d)
cd "$folder"
wsbench --version
wsbench list experiments >/dev/null
wsbench build --install reference
wsbench start reference --port "$port" >start.log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server || true; rm -rf "$folder"' EXIT
for _ in $(seq 100); do
  grep -q "$port" start.log && break
  sleep 0.1
done
# An INVALID measurement ends with 4: a machine that is shared may have too little to give.
wsbench load "ws://127.0.0.1:$port/echo" -c 10 -t 2 --warmup 0.5 --json >load.json || [ $? = 4 ]
python3 - load.json <<'EOF'
import json, sys
found = json.load(open(sys.argv[1]))
rate = found["metrics"]["messages_per_s"]["value"]
assert rate > 0, found
print(f"{rate:,.0f} messages/s, {found['verdict']['kind']}")
EOF
