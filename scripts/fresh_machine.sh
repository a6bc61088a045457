#!/usr/bin/env bash
# What a new machine makes of this checkout: a minimal Debian in a folder, a clone of what is committed, an ordinary user with sudo,
# and a command.
#
#   scripts/fresh_machine.sh [OPTIONS] bookworm|trixie [COMMAND]     (default: make quick && make test)
#
#   --wheel         no clone: dist/*.whl, installed in an empty virtual environment, and the command's script alone
#   --if-possible   where it may not be done, says so and ends with 0
#   --keep          leaves the folder there, and says where it is
#
# Needs root, debootstrap and Linux's namespaces. The folder is under TMPDIR (/tmp). What it starts ends with it.
set -euo pipefail
cd "$(dirname "$0")/.."

wheel='' if_possible='' keep=''
while [[ ${1:-} == --* ]]; do
  case "$1" in
    --wheel) wheel=1 ;;
    --if-possible) if_possible=1 ;;
    --keep) keep=1 ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
release=${1:-}
command=${2:-make quick && make test}
case "$release" in bookworm|trixie) ;; *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;; esac

cannot() {
  echo "no fresh $release here: $1"
  [ -n "$if_possible" ] && exit 0
  exit 1
}
if [ "$(id -u)" != 0 ]; then
  sudo -n true 2>/dev/null || cannot "this needs root, or sudo without a password"
  exec sudo env "PATH=$PATH:/usr/sbin:/sbin" "$0" ${wheel:+--wheel} ${if_possible:+--if-possible} ${keep:+--keep} "$release" "$command"
fi
[ ! -e /etc/wsbench-fresh ] || cannot "this is a fresh machine already"
command -v debootstrap >/dev/null || cannot "debootstrap is missing: apt-get install debootstrap"
unshare --mount --pid --fork true 2>/dev/null || cannot "this kernel or container allows no namespaces"

root=$(mktemp -d "${TMPDIR:-/tmp}/wsbench-$release-XXXXXX")
chmod 755 "$root"
if [ -n "$keep" ]; then
  echo "in $root"
else
  trap 'rm -rf --one-file-system "$root"' EXIT
fi
mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -1 || true)
packages=python3,sudo,ca-certificates
[ -n "$wheel" ] && packages+=,python3-venv || packages+=,git,make
began=$SECONDS
debootstrap --variant=minbase --include="$packages" "$release" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 ||
  { tail -5 "$root.log"; rm -f "$root.log"; cannot "debootstrap failed"; }
rm -f "$root.log"
# Updates and security, as Debian's installer sets them up.
url=$(awk '$1 == "deb" { print $2; exit }' "$root/etc/apt/sources.list")
url=${url%/}
printf 'deb %s main\n' "$url $release" "$url $release-updates" "$url-security $release-security" >"$root/etc/apt/sources.list"

# The network as this machine has it, its own certificates included; services of packages do not start.
cp /etc/resolv.conf "$root/etc/resolv.conf"
echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts"
cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
chroot "$root" update-ca-certificates >/dev/null 2>&1
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
touch "$root/etc/wsbench-fresh"
chroot "$root" useradd --create-home --shell /bin/bash user
echo 'user ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/user"
if [ -n "$wheel" ]; then
  mkdir -p "$root/home/user/wsbench/scripts"
  cp dist/*.whl "$root/home/user/"
  cp scripts/first_load.sh "$root/home/user/wsbench/scripts/"
  chroot "$root" su user -c 'python3 -m venv ~/venv'
  command="~/venv/bin/pip install --quiet ~/*.whl && export PATH=~/venv/bin:\$PATH && $command"
else
  git clone --quiet . "$root/home/user/wsbench"
fi
chroot "$root" chown -R user:user /home/user
echo "a fresh $release after $((SECONDS - began)) s, $(du -sm "$root" | cut -f1) MB"

began=$SECONDS
status=0
environment=(HOME=/home/user USER=user PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 ${CI:+CI=$CI})
for name in PIP_CERT PIP_DEFAULT_TIMEOUT http_proxy https_proxy no_proxy; do
  [ -z "${!name:-}" ] || environment+=("$name=${!name}")
done
# In namespaces of its own: what is mounted or started in it is gone when the command has ended. Its root is no chroot, in which
# a user may have no namespaces, and `ip netns exec` fails.
unshare --mount --pid --fork --kill-child bash -c '
  cd "$1"; shift
  mount --bind . . && cd "$PWD"
  mount -t proc proc proc
  mount --rbind /sys sys
  mount --rbind /dev dev
  mount -t tmpfs run run
  pivot_root . mnt && cd / && umount -l /mnt
  exec sudo -u user "$@"
' fresh "$root" env -i "${environment[@]}" bash -c "cd ~/wsbench && $command" || status=$?
echo "\`$command\` on a fresh $release ended with $status after $((SECONDS - began)) s, $(du -smx "$root" | cut -f1) MB"
exit "$status"
