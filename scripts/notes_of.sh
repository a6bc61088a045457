#!/usr/bin/env bash
# The section of CHANGELOG.md on a version, without its heading: scripts/notes_of.sh 0.2.0. Fails if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?the version, such as 0.2.0}
awk -v version="$version" '
  /^## / { inside = $2 == version; found = found || inside; next }
  inside { print }
  END { exit !found }
' CHANGELOG.md
