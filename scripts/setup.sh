#!/usr/bin/env bash
# Installs what wsbench needs and finds missing: `tools` for running it, `test` for its own tests. What the distribution has is
# installed from its packages; what it has only too old is named with the command to run. A server's missing toolchain is no
# failure: that server is skipped, and `wsbench list servers` says why.
set -euo pipefail

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

install_packages() {
  command -v apt-get >/dev/null || { echo "install these yourself: $*"; return; }
  echo "installing $*"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }

case "${1:-}" in
  tools)
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "needs Python 3.11 or newer: apt-get install python3"; exit 1; }
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    need cc gcc
    need javac openjdk-17-jdk-headless
    need mvn maven
    need node nodejs
    need npm npm
    ;;
  test)
    need chromium chromium
    need ab apache2-utils
    ;;
  *)
    echo "usage: scripts/setup.sh tools|test"; exit 2 ;;
esac
[ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"

if [ "$1" = tools ]; then
  command -v go >/dev/null || echo "Go is missing, its servers will be skipped: install Go 1.26 or newer from https://go.dev/dl"
  if ! command -v cargo >/dev/null; then
    echo "the engine needs Rust 1.88 or newer (Debian's is too old): curl https://sh.rustup.rs -sSf | sh"
    exit 1
  fi
fi
