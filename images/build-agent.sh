#!/usr/bin/env bash
# Packs the agent and the kernels into the read-only image that every sandbox has at /.atoll.
#
#   build-agent.sh AGENT_BINARY [OUT.erofs]
#
# Prints the image's path. Without OUT it is ${ATOLL_CACHE:-/var/cache/atoll}/agent/<sha256>.erofs.
#   /.atoll/bin/atoll-agent        the static agent
#   /.atoll/kernels/<name>/...     the kernels' files, without tests; atoll-go-kernel, which lies beside the agent's binary
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kernels=$here/../kernels
cache=${ATOLL_CACHE:-/var/cache/atoll}/agent

fail() { echo "agent image: $*" >&2; exit 1; }

agent=${1:-} out=${2:-}
[[ -f $agent ]] || fail "no agent binary at '$agent' (usage: build-agent.sh AGENT_BINARY [OUT.erofs])"
go_kernel=$(dirname "$agent")/atoll-go-kernel
[[ -f $go_kernel ]] || fail "no Go kernel at '$go_kernel' (expected: beside the agent; remedy: ./atoll build)"
command -v mkfs.erofs >/dev/null || fail "mkfs.erofs is missing (remedy: apt-get install erofs-utils)"

umask 022
mkdir -p "$cache"
work=$(mktemp -d "$cache/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
# What a killed run left; a run takes a second, so an hour is long enough not to touch another's.
find "$cache" -maxdepth 1 -name '.work.*' -mmin +60 -exec rm -rf {} +

root=$work/root
mkdir "$root"
install -D -m 0755 "$agent" "$root/bin/atoll-agent"
mkdir "$root/kernels"
for kernel in "$kernels"/*/; do
  kernel=$(basename "$kernel")
  tar -C "$kernels" --sort=name -cf - --exclude='*test*' --exclude='__pycache__' --exclude='.*' --exclude='node_modules' --exclude='src' --exclude='package*.json' --exclude='*.go' --exclude='go.mod' --exclude='go.sum' \
    "$kernel" | tar -C "$root/kernels" --no-same-owner -xf -
done
install -D -m 0755 "$go_kernel" "$root/kernels/go/atoll-go-kernel"
# Byte code for the Pythons of this machine, which are often of the same version as an image's: a kernel then starts 50 ms earlier. A
# Python of another version does not look at it and compiles the source. Unchecked: nothing ever changes in this image.
for python in /usr/bin/python3.*; do
  [[ $python =~ /python3\.[0-9]+$ && -x $python ]] || continue
  "$python" -I -m compileall -q --invalidation-mode unchecked-hash -d /.atoll/kernels/python "$root/kernels/python" ||
    echo "agent image: $python compiles no byte code for the kernel; it is left out" >&2
done
chmod -R u+rwX,go=rX "$root"
chown -R 0:0 "$root"

mkfs.erofs -Enoinline_data -x-1 --all-root -T1767225600 -Ua7011a70-0000-4000-8000-000000000002 "$work/image" "$root" >/dev/null
chmod 0644 "$work/image"
[[ -n $out ]] || out=$cache/$(sha256sum <"$work/image" | cut -d' ' -f1).erofs
if ! cmp -s "$work/image" "$out"; then
  # Beside the target first: only within one file system is a rename atomic.
  cp "$work/image" "$out.new.$$"
  sync "$out.new.$$"
  mv "$out.new.$$" "$out"
  sync "$(dirname "$out")"
fi
echo "$out"
