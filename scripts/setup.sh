#!/usr/bin/env bash
# Installs what wsbench needs and finds missing: `tools` for running it, `test` for its own tests, `catalogue` for every server.
# What the distribution has is installed from its packages; Go, which it has only too old, from the Go project's own toolchain
# module, by checksum; Rust and JDK 25 are named with the command to run. A server's missing toolchain is no failure: that server
# is skipped, and `wsbench list servers` says why. Bun and Deno come from npm, as the build of their servers.
set -euo pipefail

GO=1.26.8
GO_SHA256=30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7
PREFIX=${PREFIX:-/usr/local}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

install_packages() {
  command -v apt-get >/dev/null || { echo "install these yourself: $*"; return; }
  echo "installing $*"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# A module's zip keeps no executable bits.
install_go() {
  [ "$(uname -sm)" = "Linux x86_64" ] || { echo "Go is missing, its servers will be skipped: https://go.dev/dl"; return; }
  [ ! -e "$PREFIX/go" ] || { echo "$PREFIX/go exists and is not on the PATH: add $PREFIX/go/bin"; return; }
  local name="v0.0.1-go$GO.linux-amd64" folder
  folder=$(mktemp -d)
  echo "installing Go $GO in $PREFIX/go"
  curl -fsS -o "$folder/go.zip" "https://proxy.golang.org/golang.org/toolchain/@v/$name.zip"
  echo "$GO_SHA256  $folder/go.zip" | sha256sum --check --quiet
  python3 -m zipfile -e "$folder/go.zip" "$folder"
  as_root mkdir -p "$PREFIX/bin"
  as_root mv "$folder/golang.org/toolchain@$name" "$PREFIX/go"
  as_root chmod -R +x "$PREFIX/go/bin" "$PREFIX/go/pkg/tool"
  as_root ln -sf "$PREFIX/go/bin/go" "$PREFIX/bin/go"
  rm -rf "$folder"
}

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need_python() { python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv); }
has_jdk() { grep -qs "^JAVA_VERSION=\"$1" /usr/lib/jvm/*/release /opt/*/release /usr/local/*/release "${JAVA_HOME:-/none}/release"; }

case "${1:-}" in
  tools)
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "needs Python 3.11 or newer: apt-get install python3"; exit 1; }
    need_python
    need cc gcc
    need javac openjdk-17-jdk-headless
    need mvn maven
    need node nodejs
    need npm npm
    ;;
  test)
    need g++ g++
    need chromium chromium
    need ab apache2-utils
    need ssh openssh-client
    need dropbear dropbear-bin
    ;;
  catalogue)
    need_python
    need gcc gcc
    need g++ g++
    need make make
    need javac openjdk-17-jdk-headless
    need mvn maven
    need node nodejs
    need npm npm
    need pkg-config pkg-config
    need curl curl
    pkg-config --exists libwebsockets 2>/dev/null || missing+=(libwebsockets-dev)
    [ -e /usr/include/boost/beast/version.hpp ] || missing+=(libboost1.81-dev)
    ;;
  *)
    echo "usage: scripts/setup.sh tools|test|catalogue"; exit 2 ;;
esac
[ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"

if [ "$1" = catalogue ]; then
  command -v go >/dev/null || install_go
  has_jdk 25 || echo "JDK 25 is missing, variants with virtual threads or +jdk25 will be skipped: https://adoptium.net/installation/linux (temurin-25-jdk)"
fi
if [ "$1" != test ] && ! command -v cargo >/dev/null; then
  echo "the engine needs Rust 1.88 or newer (Debian's is too old): curl https://sh.rustup.rs -sSf | sh"
  exit 1
fi
