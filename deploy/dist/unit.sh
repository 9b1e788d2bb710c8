#!/usr/bin/env bash
# Tests the unit with a systemd that is the first process of namespaces of its own, in a Debian bookworm of mmdebstrap's, the oldest that the archive of
# `./atoll dist` is for. Nothing is left of it.
#
#   unit.sh                  makes the archive and tests the unit in it
#   unit.sh --archive FILE   takes that one
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command=unit-test
source "$here/../../scripts/common.sh"
source "$root/scripts/dist.sh"

archive=
if [[ ${1:-} == --archive && $# -eq 2 ]]; then archive=$2; elif [[ $# -gt 0 ]]; then fail "unknown: $* (expected: --archive FILE)"; fi
require_root
install_packages

folder=$(mktemp -d "${TMPDIR:-/tmp}/atoll-unit-test.XXXXXX")
name=atoll-unit-test-$$
namespaces=
# systemd's own hierarchies of control groups; sandboxes are limited by the others, which are the machine's.
own_groups() { local base; for base in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do if [[ -e $base/cgroup.procs ]]; then echo "$base/$name"; fi; done; }
if [[ -z $(own_groups) ]]; then fail "there is no hierarchy of control groups for another systemd here (expected: cgroup v1 with name=systemd)"; fi
left_mounts() { { grep -F -- "$folder" /proc/self/mountinfo || true; } | cut -d' ' -f5; }
left_groups() {
  { if [[ -s $folder/instance ]]; then find /sys/fs/cgroup -depth -type d -path "*/atoll-$(<"$folder/instance")*" 2>/dev/null || true; fi
    find $(own_groups) -depth -type d 2>/dev/null || true; } | sort -ru
}
clean_up() {
  local item limit=$((SECONDS + 30))
  # With its first process all of a process namespace ends.
  if [[ -n $namespaces ]]; then kill -KILL "$namespaces" 2>/dev/null || true; wait "$namespaces" 2>/dev/null || true; fi
  namespaces=
  until [[ -z $(left_groups) ]] || ((SECONDS > limit)); do
    for item in $(left_groups); do rmdir "$item" 2>/dev/null || true; done
  done
  rm -rf --one-file-system "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

debian() {
  local options=(--mode=root --format=tar --variant=required --include=systemd --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' bookworm)
  # That one alone, see deploy/dist/test.sh.
  local mirror='deb http://deb.debian.org/debian bookworm main'
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
tar -C "$folder/root" -xpf "$(debian)"
mkdir -p "$folder/root/test" "$folder/root/opt/atoll"
cp "$here/unit-inside.sh" "$folder/root/test/"
tar -C "$folder/root/opt/atoll" --strip-components 1 -xzf "$archive"
# What of a machine's start would reach the kernel, which is not its own.
for unit in systemd-sysctl systemd-modules-load systemd-binfmt systemd-remount-fs systemd-random-seed systemd-udevd systemd-udev-trigger kmod-static-nodes systemd-pcrphase systemd-pcrphase-sysinit; do
  ln -s /dev/null "$folder/root/etc/systemd/system/$unit.service"
done
for unit in proc-sys-fs-binfmt_misc.automount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount dev-hugepages.mount; do
  ln -s /dev/null "$folder/root/etc/systemd/system/$unit"
done

for group in $(own_groups); do mkdir "$group"; done
status=0
unshare --mount --pid --net --ipc --uts --fork --kill-child --propagation private bash -euc '
  root=$1
  shift
  for group; do echo $$ >"$group/cgroup.procs"; done
  ip link set lo up
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount -t tmpfs -o mode=0755 dev "$root/dev"
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  for device in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 0666 "$root/dev/${device%:*}" c 1 "${device#*:}"; done
  mknod -m 0666 "$root/dev/tty" c 5 0
  mount -t tmpfs -o mode=0755 run "$root/run"
  cd "$root"
  pivot_root . mnt
  umount -l /mnt
  exec env -i container=atoll-test PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 /lib/systemd/systemd --log-target=null --show-status=no
' bash "$folder/root" $(own_groups) </dev/null >"$folder/systemd.log" 2>&1 &
namespaces=$!
first=
until first=$(cat "/proc/$namespaces/task/$namespaces/children" 2>/dev/null | tr -d ' ') && [[ -n $first && $(cat "/proc/$first/comm" 2>/dev/null) == systemd ]]; do
  kill -0 "$namespaces" 2>/dev/null || { cat "$folder/systemd.log"; fail "systemd did not start"; }
  read -rt 0.1 <> <(:) || true
done
nsenter --target "$first" --mount --pid --net --ipc --uts --root --wd \
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 bash /test/unit-inside.sh </dev/null || status=$?
if [[ $status -ne 0 ]]; then cat "$folder/systemd.log"; fi
cp "$folder/root/var/lib/atoll/instance" "$folder/instance" 2>/dev/null || true
# What is left of the sandboxes; systemd's own groups go with it.
left=$(left_mounts; left_groups | grep -vF "/$name" || true)
clean_up
trap - EXIT
left+=$(left_groups)
[[ -z $left ]] || { echo "FAIL left: $left"; status=1; }
[[ ! -e $folder ]] || { echo "FAIL left: $folder"; status=1; }
[[ $status -eq 0 ]] || fail "the unit does not do what it should (status $status)"
echo "ok   nothing is left"
