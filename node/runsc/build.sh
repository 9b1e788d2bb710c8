#!/usr/bin/env bash
# Builds runsc, its sentry and its prewarmer from the pinned gVisor module.
#
#   build.sh [OUTDIR]   builds what is missing, prints the folder that holds it
#   build.sh --where    prints that folder without building
#
# The result is kept under ${ATOLL_CACHE:-/var/cache/atoll}/runsc/<hash>, where
# the hash covers everything the binaries are made of. OUTDIR, where given,
# becomes a symbolic link to it.
#   <hash>/{runsc,VERSION,WORKER,gvisor-bin/gvisor_sentry,gvisor-bin/gvisor-sentry-prewarmer}
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${ATOLL_CACHE:-/var/cache/atoll}/runsc
go=${GO:-go}
module=gvisor.dev/gvisor

fail() { echo "runsc build: $*" >&2; exit 1; }

# A snapshot is restored only by the build that made it, so the name depends on
# contents alone: not on where the clone lies, who builds, or file times.
input_hash() {
  {
    (cd "$here" && find go.mod go.sum build.sh cmd tools patches go-patches prewarmer -type f ! -name '*_test.go' -print0 |
      LC_ALL=C sort -z | xargs -0 sha256sum)
    (cd "$here" && "$go" env GOVERSION GOARCH GOAMD64 GOARM64)
  } | sha256sum | cut -c1-32
}

command -v "$go" >/dev/null || fail "Go is missing (remedy: install the version named in node/runsc/go.mod from https://go.dev/dl)"
hash=$(input_hash)
target=$cache/$hash
version=atoll-${hash:0:12}

link_outdir() {
  if [[ -n ${1:-} ]]; then ln -sfn "$target" "$1"; fi
  echo "$target"
}

if [[ ${1:-} == --where ]]; then echo "$target"; exit 0; fi
if [[ -f $target/VERSION ]]; then link_outdir "${1:-}"; exit 0; fi

command -v gcc >/dev/null || fail "gcc is missing (remedy: apt-get install gcc)"
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
if [[ -f $target/VERSION ]]; then link_outdir "${1:-}"; exit 0; fi

# Only the holder of the lock builds: whatever lies here was left by a crash.
rm -rf "$cache"/.work.*
work=$(mktemp -d "$cache/.work.XXXXXX")
trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT

step() { printf 'runsc build: %s (%d s)\n' "$*" "$SECONDS" >&2; }

export GOWORK=off CGO_ENABLED=0
mkdir "$work/atoll"
cp -r "$here"/{go.mod,go.sum,cmd,tools} "$work/atoll/"
chmod -R u+w "$work/atoll"
cd "$work/atoll"

step "downloading gVisor's module"
"$go" mod download "$module" >&2
source=$("$go" list -m -f '{{.Dir}}' "$module")
cp -r "$source" "$work/gvisor"
chmod -R u+w "$work/gvisor"
"$go" run ./tools/patch "$work/gvisor" "$here"/patches/*.patch >&2
"$go" mod edit -replace "$module=../gvisor"

# Go's own source is changed for these builds alone, by an overlay.
goroot=$("$go" env GOROOT)
install -D -m 0644 "$goroot/src/runtime/proc.go" "$work/go/src/runtime/proc.go"
"$go" run ./tools/patch "$work/go" "$here"/go-patches/*.patch >&2
runtime=$("$go" list -f '{{.Dir}}' runtime)
printf '{"Replace": {"%s/proc.go": "%s/go/src/runtime/proc.go"}}\n' "$runtime" "$work" >"$work/overlay.json"

step "compiling the seccomp programs"
"$go" run ./tools/seccompgen "$work/gvisor/runsc/boot/filter/filter_precompiled.go" >&2

step "compiling runsc and the sentry"
out=$work/out
mkdir -p "$out/gvisor-bin"
ldflags="-s -w -buildid= -X $module/runsc/version.version=$version"
"$go" build -trimpath -buildvcs=false -overlay "$work/overlay.json" -ldflags "$ldflags" -o "$out/runsc" ./cmd/runsc
"$go" build -trimpath -buildvcs=false -overlay "$work/overlay.json" -ldflags "$ldflags" -o "$out/gvisor-bin/gvisor_sentry" ./cmd/gvisor_sentry
gcc -std=c11 -Wall -Wextra -Werror -Os -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables \
  -fno-unwind-tables -fno-pie -no-pie -static -nostdlib -nostartfiles \
  -Wl,--build-id=none -Wl,--gc-sections -Wl,-s -Wl,-n -Wl,-z,noexecstack \
  -o "$out/gvisor-bin/gvisor-sentry-prewarmer" "$here/prewarmer/prewarmer.c"

[[ $("$out/runsc" --version | head -1) == "runsc version $version" ]] || fail "the built runsc does not say version $version"
# The version of the protocol that "runsc worker" speaks.
echo 1 >"$out/WORKER"
echo "$version" >"$out/VERSION"
chmod -R a+rX,go-w "$out"
sync -f "$out"
rm -rf "$target"
mv "$out" "$target"
sync -f "$cache"
step "done: $target"
link_outdir "${1:-}"
