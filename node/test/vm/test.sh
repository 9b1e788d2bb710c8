#!/usr/bin/env bash
# Runs the engine's tests on Debian's stock cloud kernel, which has cgroup v2, in one emulated machine (boot.sh).
#
#   test.sh          limits, live change, out of memory, take-over, clean-up: what has to do with the kernel
#   test.sh --all    all tests of the packages that touch it, which takes about a quarter of an hour
#
# The engine is started in the hierarchy's root, as a service in a group of its own, and in a container with its own cgroup namespace (place/).
# ATOLL_RUNSC, ATOLL_AGENT_IMAGE and GO are taken as the launcher exports them. What is built here is removed at the end.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../../.." && pwd)
fail() { echo "vm tests: $*" >&2; exit 2; }

all=no
case $* in
  "") ;;
  --all) all=yes ;;
  *) fail "'$*' (usage: test.sh [--all])" ;;
esac

missing=()
for tool in qemu-system-x86_64 busybox cpio; do command -v $tool >/dev/null || missing+=("$tool"); done
[[ ${#missing[@]} -eq 0 ]] || fail "missing: ${missing[*]} (remedy: apt-get install qemu-system-x86 busybox-static cpio)"
go=${GO:-$(command -v go || echo /usr/local/go/bin/go)}
[[ -x $go ]] || fail "no Go (remedy: install it, or set GO)"
export GO=$go PATH=$(dirname "$go"):$PATH
runsc=${ATOLL_RUNSC:-$("$repository/node/runsc/build.sh" --where)}
[[ -f $runsc/VERSION ]] || fail "no runsc build in $runsc (remedy: ./atoll up builds it)"
image=$("$repository/images/build.sh" --where python)
[[ -f $image && -f ${image%.erofs}.json ]] || fail "no Python image at $image (remedy: ./atoll up builds it)"

work=$(mktemp -d -t atoll-vm-test-XXXXXX)
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
root=$work/root
mkdir -p "$root"/etc "$root"/opt/atoll/{images,tests}

# Links where the cache is on the same file system, else copies.
put() { cp -al "$1" "$2" 2>/dev/null || cp -a "$1" "$2"; }
put "$runsc" "$root/opt/atoll/runsc"
put "$image" "$root/opt/atoll/images/"
put "${image%.erofs}.json" "$root/opt/atoll/images/"
printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\natoll:x:999:\n' >"$root/etc/group"

packages=(internal/cgroup test/vm)
if [[ $all == yes ]]; then packages+=(internal/driver/gvisor internal/driver/drivertest internal/box internal/reap internal/net internal/engine cmd/atoll-engine); fi
export CGO_ENABLED=0 GOWORK=off
(
  cd "$repository/node"
  "$go" build -trimpath -buildvcs=false -ldflags "-s -w" -o "$work/" ./cmd/atoll-engine ./cmd/atoll-agent ./test/vm/place
  for package in "${packages[@]}"; do
    # Writes nothing for a package without tests.
    "$go" test -c -trimpath -tags cgroup2 -ldflags "-s -w" -o "$root/opt/atoll/tests/$(basename "$package")" "./$package"
  done
)
mv "$work/atoll-engine" "$work/place" "$root/opt/atoll/"
if [[ -n ${ATOLL_AGENT_IMAGE:-} ]]; then
  put "$ATOLL_AGENT_IMAGE" "$root/opt/atoll/agent.erofs"
else
  (cd "$repository/kernels/go" && CGO_ENABLED=0 GOWORK=off "$go" build -trimpath -buildvcs=false -ldflags "-s -w" -o "$work/atoll-go-kernel" .)
  "$repository/images/build-agent.sh" "$work/atoll-agent" "$root/opt/atoll/agent.erofs" >/dev/null
fi

# Lines "place package [test]"; in one package a single test may be asked for, to save time.
if [[ $all == no ]]; then
  cat >"$root/opt/atoll/plan" <<'PLAN'
host cgroup
host vm TestSandboxOnThisKernel
service vm TestSandboxOfAKilledEngineGoesWithItsInstance
container vm TestSandboxOfAKilledEngineGoesWithItsInstance
PLAN
else
  for place in host service container; do printf '%s\n' "$place cgroup" "$place vm"; done >"$root/opt/atoll/plan"
  for package in "${packages[@]:2}"; do
    if [[ -e $root/opt/atoll/tests/$(basename "$package") ]]; then echo "host $(basename "$package")"; fi
  done >>"$root/opt/atoll/plan"
fi

cat >"$root/opt/atoll/run" <<'RUN'
set -o pipefail
cd /opt/atoll
export ATOLL_CACHE=$PWD ATOLL_ENGINE=$PWD/atoll-engine ATOLL_RUNSC=$PWD/runsc ATOLL_AGENT_IMAGE=$PWD/agent.erofs ATOLL_TEST_PATIENCE=10
failed=0
while read -r place package name; do
  echo "== $package, engine in the place of a $place"
  mkdir -p /tmp/in && cd /tmp/in
  # Each in a shell of its own, which the group it is put in takes along.
  /opt/atoll/place $place /opt/atoll/tests/$package -test.v ${name:+-test.run "^$name\$"} </dev/null | tee /tmp/said || failed=1
  if grep -q 'no tests to run' /tmp/said; then
    echo "FAIL: there is no test $name (remedy: correct the plan in test.sh)"
    failed=1
  fi
done </opt/atoll/plan
echo "== what is left of the tests"
left=$(ls -d /run/atoll-* /sys/fs/cgroup/atoll-* /sys/fs/cgroup/*/atoll-* 2>/dev/null; grep -h atoll- /proc/self/mountinfo; ps -o pid,args | grep '[r]unsc-')
[ -z "$left" ] && echo nothing || { echo "$left"; failed=1; }
exit $failed
RUN

export ATOLL_VM_SECONDS=${ATOLL_VM_SECONDS:-$([[ $all == yes ]] && echo 5400 || echo 600)}
"$here/boot.sh" "$root" sh /opt/atoll/run &
machine=$!
status=0
wait "$machine" || status=$?
machine=
exit $status
