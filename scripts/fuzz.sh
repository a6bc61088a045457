#!/usr/bin/env bash
# Fuzzes every target of engine/fuzz for so many seconds (default 60), from its corpus: scripts/fuzz.sh [SECONDS]
#
# The flags are those of `cargo fuzz run --sanitizer none`, which the stable compiler takes. What is found new goes into a
# folder that is thrown away; a stream that fails is kept as engine/fuzz/artifacts/TARGET-HASH.
set -euo pipefail
cd "$(dirname "$0")/../engine/fuzz"
seconds=${1:-60}
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1"
cargo --quiet build --release --locked --target "$host"
mkdir -p artifacts
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
for corpus in corpus/*/; do
  target=$(basename "$corpus")
  mkdir "$found/$target"
  if ! "target/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=70000 \
    -artifact_prefix="artifacts/$target-" "$found/$target" "$corpus" >"$found/log" 2>&1; then
    tail -n 40 "$found/log"
    exit 1
  fi
  echo "$target: $(grep '^Done' "$found/log"), $(ls "$found/$target" | wc -l) streams that reach something new"
done
