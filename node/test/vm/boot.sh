#!/usr/bin/env bash
# Boots Debian's stock cloud kernel, which has cgroup v2 as most users' machines do, under QEMU's software emulation, and runs one command there as root.
#
#   boot.sh ROOT COMMAND [ARGUMENT...]
#
# ROOT is a folder that becomes the machine's root file system (busybox is added). The command's output comes on stdout, its exit status is this script's.
# ATOLL_VM_MEMORY (3G) and ATOLL_VM_SECONDS (600) bound the machine. No network, no disk: all is in memory and gone afterwards.
set -euo pipefail

root=$1
shift
cache=${ATOLL_CACHE:-/var/cache/atoll}/vm
memory=${ATOLL_VM_MEMORY:-3G}
seconds=${ATOLL_VM_SECONDS:-600}

for tool in qemu-system-x86_64 busybox cpio; do
  command -v $tool >/dev/null || { echo "boot.sh: $tool is missing: apt-get install qemu-system-x86 busybox-static cpio" >&2; exit 2; }
done

work=$(mktemp -d -t atoll-vm-XXXXXX)
trap 'rm -rf "$work"' EXIT

# The kernel: the package that linux-image-cloud-amd64 stands for today, unpacked once.
package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
kernel=$cache/$package/vmlinuz
if [ ! -e "$kernel" ]; then
  (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$package" && dpkg-deb -x "$package"_*.deb unpacked)
  mkdir -p "$cache/$package"
  cp "$work"/unpacked/boot/vmlinuz-* "$work/vmlinuz"
  mv "$work/vmlinuz" "$kernel"
  rm -rf "$work/unpacked" "$work"/*.deb
fi

# The initramfs carries the root under /image. It is copied to a tmpfs that becomes the root, since pivot_root, which runsc needs, fails on an initramfs.
mkdir -p "$work/ram/bin" "$work/ram/image" "$work/ram/new"
cp "$(command -v busybox)" "$work/ram/bin/busybox"
cp -a "$root/." "$work/ram/image/"
mkdir -p "$work/ram/image/"{bin,proc,sys,dev,tmp,run,var,etc,root}
cp "$(command -v busybox)" "$work/ram/image/bin/busybox"
printf '%q ' "$@" > "$work/ram/image/command"
cat > "$work/ram/init" <<'INIT'
#!/bin/busybox sh
bb=/bin/busybox
$bb mount -t tmpfs -o size=90% tmpfs /new
$bb cp -a /image/. /new/
$bb rm -rf /image
exec $bb switch_root /new /bin/busybox sh /start
INIT
cat > "$work/ram/image/start" <<'START'
/bin/busybox --install -s /bin
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp ATOLL_IN_VM=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /dev/pts && mount -t tmpfs tmpfs /dev/shm && mount -t devpts devpts /dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
chmod 1777 /tmp
ip link set lo up
sh /command
echo "vm: exit status $?"
poweroff -f
START
chmod +x "$work/ram/init"
(cd "$work/ram" && find . -print0 | cpio --null -o -H newc 2>/dev/null | gzip -1) > "$work/initramfs"
rm -rf "$work/ram"

timeout "$seconds" qemu-system-x86_64 -cpu max -accel tcg,thread=multi -m "$memory" -smp 2 -nographic -no-reboot -net none \
  -kernel "$kernel" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1 mitigations=off" </dev/null \
  | tr -d '\r' | sed -u '1,/Booting from ROM/d' | tee "$work/console" || true
status=$(sed -n 's/^.*vm: exit status \([0-9]*\)$/\1/p' "$work/console" | tail -n 1)
[ -n "$status" ] || { echo "boot.sh: the machine did not come to the command's end within $seconds s" >&2; exit 3; }
exit "$status"
