#!/usr/bin/env bash
# Boots Debian's stock cloud kernel, which has cgroup v2 as most users' machines do, and runs one command there as root.
#
#   boot.sh ROOT COMMAND [ARGUMENT...]
#
# ROOT is a folder that becomes the machine's root file system (busybox is added). The command's output comes on stdout, its exit status is this script's.
# QEMU emulates the machine, with or without KVM, so that it is the same one everywhere. ATOLL_VM_MEMORY (3G) and ATOLL_VM_SECONDS (600) bound it. No network,
# no disk: all is in memory and gone afterwards.
set -euo pipefail

root=$1
shift
cache=${ATOLL_CACHE:-/var/cache/atoll}/vm
memory=${ATOLL_VM_MEMORY:-3G}
seconds=${ATOLL_VM_SECONDS:-600}

missing=()
for tool in qemu-system-x86_64 busybox cpio; do command -v $tool >/dev/null || missing+=("$tool"); done
[[ ${#missing[@]} -eq 0 ]] || { echo "boot.sh: missing: ${missing[*]} (remedy: apt-get install qemu-system-x86 busybox-static cpio)" >&2; exit 2; }

work=$(mktemp -d -t atoll-vm-XXXXXX)
machine=
leave() {
  if [[ -n $machine ]]; then
    kill -TERM "$machine" 2>/dev/null || true
    wait "$machine" || true
  fi
  rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The kernel: the package that linux-image-cloud-amd64 stands for today, unpacked once.
package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
kernel=$cache/$package/vmlinuz
if [[ -z $package || ! -e $kernel ]]; then
  [[ -n $package ]] || { echo "boot.sh: apt knows no linux-image-cloud-amd64 (remedy: apt-get update, on Debian)" >&2; exit 2; }
  (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$package" && dpkg-deb -x "$package"_*.deb unpacked)
  mkdir -p "$cache/$package"
  cp "$work"/unpacked/boot/vmlinuz-* "$kernel.new.$$"
  mv "$kernel.new.$$" "$kernel"
  rm -rf "$work/unpacked" "$work"/*.deb
fi

mkdir -p "$work/ram"/{bin,proc,sys,dev,tmp,run,var,etc,root,new}
cp "$(command -v busybox)" "$work/ram/bin/busybox"
printf '%q ' "$@" >"$work/ram/command"
# The initramfs is the root, mounted once more on top of itself: pivot_root, which runsc needs, fails on the first mount of all.
cat >"$work/ram/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount --bind / /new
cd /new
/bin/busybox mount --move . /
exec /bin/busybox chroot . /bin/busybox sh /start
INIT
cat >"$work/ram/start" <<'START'
/bin/busybox --install -s /bin
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp ATOLL_IN_VM=1
cd /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /dev/pts && mount -t tmpfs tmpfs /dev/shm && mount -t devpts devpts /dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for folder in /run /tmp; do mount -t tmpfs -o size=90% tmpfs $folder; done
chmod 1777 /tmp
ip link set lo up
echo "vm: begins"
sh /command
echo "vm: exit status $?"
poweroff -f
START
chmod +x "$work/ram/init"

# Not compressed, and as two archives one after the other: packing, unpacking and copying would take longer than all else.
pack() { (cd "$1" && find . -print0 | cpio --null --quiet -R 0:0 -o -H newc); }
{ pack "$root"; pack "$work/ram"; } >"$work/initramfs"

mkfifo "$work/console"
timeout --foreground "$seconds" qemu-system-x86_64 -cpu max -accel tcg,thread=multi -m "$memory" -smp 2 -nographic -no-reboot -net none \
  -kernel "$kernel" -initrd "$work/initramfs" -append "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off" </dev/null >"$work/console" &
machine=$!
tee "$work/output" <"$work/console" | sed -u -e '1,/vm: begins/d' -e '/^vm: exit status/,$d' -e 's/\r//g' &
# In the background, since a trap waits for what runs in front.
wait $!
status=$(sed -n 's/^vm: exit status \([0-9]*\)\r*$/\1/p' "$work/output" | tail -n 1)
wait "$machine" || true
machine=
if [[ -z $status ]]; then
  grep -q 'vm: begins' "$work/output" || tail -n 20 "$work/output" >&2
  echo "boot.sh: the machine did not come to the command's end within $seconds s" >&2
  exit 3
fi
exit "$status"
