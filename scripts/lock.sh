#!/usr/bin/env bash
# Writes requirements/*.txt anew: every Python package that the two README commands install, with version and checksums,
# for each Python that is allowed. What is locked stays as it is; `scripts/lock.sh --upgrade` takes the newest.
# Needs uv (`pip install uv`).
set -euo pipefail
cd "$(dirname "$0")/.."
unset PIP_FIND_LINKS UV_FIND_LINKS
compile() {
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
    --custom-compile-command scripts/lock.sh --output-file "requirements/$1.txt" "${@:2}"
}
lock() { compile "$1" pyproject.toml requirements/build.in "${@:2}"; }
lock tool --extra report "$@"
lock docs --extra docs --constraint requirements/tool.txt "$@"
lock test --extra report --extra cluster --extra test --constraint requirements/tool.txt "$@"
compile wheel requirements/wheel.in --constraint requirements/test.txt "$@"
