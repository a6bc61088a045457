#!/usr/bin/env bash
# Puts each mended fault of engine/tests/put_back back into a copy of the engine, one at a time, and prints the first seed of
# the simulation that finds it: scripts/put_back.sh [NAME...]. SEEDS (20000) are tried at most.
#
# The first line of a patch says what the fault was. A patch with a line `Found by:` is found by those arguments of
# `cargo test`. Fails if nothing finds a fault, or if a patch no longer applies or compiles.
set -euo pipefail
cd "$(dirname "$0")/../engine"
seeds=${SEEDS:-20000} at_once=500
faults=$PWD/tests/put_back
# Kept, so that a fault is soon built.
copy=$PWD/target/put_back
export CARGO_TARGET_DIR=$copy/target CARGO_INCREMENTAL=1 CARGO_PROFILE_CHECKED_DEBUG=0 RUST_BACKTRACE=0
mkdir -p "$copy"
failed=0
[ $# -gt 0 ] || set -- $(cd "$faults" && ls -- *.patch | sed 's/\.patch$//')
test_of() { cargo --quiet test --profile checked --locked "$@" 2>&1; }

for name in "$@"; do
  fault=$faults/$name.patch
  rm -rf "$copy/engine" && mkdir "$copy/engine" && cp -r Cargo.toml Cargo.lock src tests benches "$copy/engine/"
  found_by=$(sed -n 's/^Found by: //p' "$fault")
  if ! (cd "$copy/engine" && patch --quiet --strip=0 --fuzz=2 <"$fault"); then
    result="DOES NOT APPLY"
  elif ! (cd "$copy/engine" && cargo --quiet test --profile checked --locked ${found_by:---lib} --no-run) >"$copy/log" 2>&1; then
    result="DOES NOT COMPILE: $(grep -m1 '^error' "$copy/log")"
  elif [ -n "$found_by" ]; then
    # shellcheck disable=SC2086
    (cd "$copy/engine" && test_of $found_by) >"$copy/log" && result="NOT FOUND" || result="cargo test $found_by"
  else
    result="NOT FOUND in $seeds seeds"
    for ((first = 0; first < seeds; first += at_once)); do
      if ! (cd "$copy/engine" && FIRST_SEED=$first SEEDS=$at_once test_of --lib -- simulation::every) >"$copy/log"; then
        result=$(sed -n 's/^SEED=\([0-9]*\) make simulate: \(.*\)/seed \1: \2/p' "$copy/log" | head -n 1)
        result=${result:-"FAILED without a seed: $copy/log"}
        break
      fi
    done
  fi
  printf '%-28s %s\n' "$name" "$result"
  [[ $result == seed* || $result == cargo* ]] || failed=1
done
exit $failed
