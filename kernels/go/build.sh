#!/usr/bin/env bash
# Builds the Go kernel: build.sh OUT. The interpreter's module is changed for it by patches/, each with its reason.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "$1")
go=${GO:-go}
module=github.com/traefik/yaegi
export CGO_ENABLED=0 GOWORK=off

work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
cd "$here"
"$go" mod download "$module"
cp -r "$("$go" list -m -f '{{.Dir}}' "$module")" "$work/yaegi"
chmod -R u+w "$work/yaegi"
(cd "$here/../../node/runsc/tools/patch" && "$go" run . "$work/yaegi" "$here"/patches/*.patch) >&2
# In a copy, with a path that is the same everywhere: it stands in the binary.
mkdir "$work/kernel"
cp -r go.mod go.sum ./*.go generics "$work/kernel/"
cd "$work/kernel"
"$go" mod edit -replace "$module=../yaegi"
"$go" build -trimpath -buildvcs=false -ldflags "-s -w" -o "$out" .
