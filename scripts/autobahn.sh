#!/usr/bin/env bash
# Installs Autobahn|Testsuite 25.10.1 into .autobahn/, for `wsbench check --autobahn`. It runs on Python 2.7 only: `$PYTHON2`, or a
# python2.7 on the path, or one of pyenv's.
set -euo pipefail
cd "$(dirname "$0")/.."

for python in "${PYTHON2:-}" python2.7 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/2.7.*/bin/python2.7; do
  if [ -n "$python" ] && "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (2, 7))' 2>/dev/null; then break; fi
  python=
done
[ -n "$python" ] || { echo "no Python 2.7 here: PYTHON2=/path/to/python2.7 $0, or the same cases by: pip install -e '.[autobahn]'"; exit 1; }

rm -rf .autobahn
mkdir .autobahn
"$python" -m pip install --quiet --target .autobahn/virtualenv virtualenv==20.15.1
PYTHONPATH=.autobahn/virtualenv "$python" -m virtualenv --quiet .autobahn
.autobahn/bin/pip install --quiet autobahntestsuite==25.10.1
.autobahn/bin/wstest --autobahnversion
