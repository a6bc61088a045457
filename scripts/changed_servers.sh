#!/usr/bin/env bash
# Prints the servers that the latest changes touch, as patterns for `wsbench check`: what is not committed, what this branch has
# beyond main, and the commits of the four hours before the last one (on main itself). Every variant of each. Where that is more than eight
# servers the whole catalogue has changed, which is what `make check-all` is for: it says so and prints none.
set -euo pipefail
cd "$(dirname "$0")/.."
git rev-parse --verify --quiet HEAD >/dev/null 2>&1 || exit 0

main=$(git rev-parse --verify --quiet origin/main || git rev-parse --verify --quiet main || git rev-parse HEAD)
hours_before=$(($(git log -1 --format=%ct) - 4 * 3600))
{
  git status --porcelain -uall -- servers | cut -c4-
  git diff --name-only "$(git merge-base HEAD "$main")" HEAD -- servers
  git log --since="@$hours_before" --name-only --format= -- servers
} | sed -n 's|^"\{0,1\}servers/\([^/]*\)/.*|\1|p' | sort -u | while read -r name; do
  [ ! -e "servers/$name/server.toml" ] || echo "$name"
done | {
  mapfile -t names
  if [ ${#names[@]} -gt 8 ]; then
    echo "${#names[@]} servers have changed: make check-all holds all of them against the contract" >&2
    exit 0
  fi
  for name in "${names[@]}"; do echo "$name@*"; done
}
