#!/usr/bin/env bash
# Tests the archive of `./atoll dist` on a Debian stable that has neither JDK nor Go, curl nor jq: a root of mmdebstrap's, in namespaces of its own, without a
# network. Nothing is left of it.
#
#   test.sh                  makes the archive and tests it
#   test.sh --archive FILE   tests that one
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command=dist-test
source "$here/../../scripts/common.sh"
source "$root/scripts/dist.sh"

archive=
if [[ ${1:-} == --archive && $# -eq 2 ]]; then archive=$2; elif [[ $# -gt 0 ]]; then fail "unknown: $* (expected: --archive FILE)"; fi
require_root
install_packages

name=dist-test-$$
folder=$(mktemp -d "${TMPDIR:-/tmp}/atoll-dist-test.XXXXXX")
namespaces=
left_mounts() { { grep -F -- "$folder" /proc/self/mountinfo || true; } | cut -d' ' -f5; }
left_processes() { { grep -lzF -- "/opt/$name" /proc/[0-9]*/cmdline 2>/dev/null || true; } | cut -d/ -f3 | { grep -vxF -e $$ -e "$BASHPID" || true; }; }
left_groups() { if [[ -s $folder/instance ]]; then find /sys/fs/cgroup -depth -type d -path "*/atoll-$(<"$folder/instance")*" 2>/dev/null || true; fi; }
clean_up() {
  local item
  # With its first process all of a process namespace ends.
  if [[ -n $namespaces ]]; then kill -KILL "$namespaces" 2>/dev/null || true; wait "$namespaces" 2>/dev/null || true; fi
  for item in $(left_groups); do rmdir "$item" 2>/dev/null || true; done
  rm -rf --one-file-system "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Debian stable as mmdebstrap makes it: packages that are required and no others.
debian() {
  local options=(--mode=root --format=tar --variant=required --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' stable)
  # That one alone: those of corrections say until when they are good, which a mirror that stands still does not keep.
  local mirror='deb http://deb.debian.org/debian stable main'
  local tar
  tar=$cache/dist-test/$(printf '%s\n' "${options[@]}" | sha256sum | cut -c1-32).tar
  if [[ ! -f $tar || -n $(find "$tar" -mtime +14) ]]; then
    mkdir -p "$cache/dist-test"
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
      env TMPDIR="$folder" mmdebstrap "${options[@]}" "$tar.new" "$mirror" >"$folder/mmdebstrap.log" 2>&1 || { tail -n 20 "$folder/mmdebstrap.log" >&2; fail "mmdebstrap failed"; }
    mv "$tar.new" "$tar"
  fi
  echo "$tar"
}

if [[ -z $archive ]]; then
  # Packed quickly: it is unpacked once.
  ATOLL_DIST_LEVEL=1 "$root/atoll" dist "$folder"
  archive=$(echo "$folder"/atoll-*.tar.gz)
fi
mkdir -p "$folder/root"
base=$(debian)
tar -C "$folder/root" -xpf "$base"
mkdir -p "$folder/root/opt/$name" "$folder/root/test"
cp "$here/inside.sh" "$folder/root/test/"
ln "$archive" "$folder/root/test/archive.tar.gz" 2>/dev/null || cp "$archive" "$folder/root/test/archive.tar.gz"

# The machine's control groups are what sandboxes are limited by; all else is the root's own.
status=0
unshare --mount --pid --net --fork --kill-child --propagation private bash -euc '
  root=$1
  ip link set lo up
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=0755 run "$root/run"
  cd "$root"
  pivot_root . mnt
  umount -l /mnt
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 bash /test/inside.sh "$2"
' bash "$folder/root" "/opt/$name" &
namespaces=$!
wait "$namespaces" || status=$?
namespaces=
cp "$folder/root/var/lib/atoll/instance" "$folder/instance" 2>/dev/null || true

left=$(left_processes; left_mounts; left_groups)
clean_up
trap - EXIT
[[ -z $left ]] || { echo "FAIL left: $left"; status=1; }
[[ ! -e $folder ]] || { echo "FAIL left: $folder"; status=1; }
[[ $status -eq 0 ]] || fail "the archive does not do what it should (status $status)"
echo "ok   nothing is left"
