#!/usr/bin/env bash
# Prints the servers that the latest changes touch, as patterns for `wsbench check`: what is not committed, what this branch has
# beyond main, and the commits of the four hours before the last one (on main itself). Every variant of each; the default variants only
# where that is more than eight servers.
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
  every=$([ ${#names[@]} -gt 8 ] || echo "@*")
  for name in "${names[@]}"; do echo "$name$every"; done
}
