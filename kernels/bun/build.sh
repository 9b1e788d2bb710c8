#!/bin/sh
# Bundles src/ into kernel.js, with the pinned Bun from npm. Leaves no node_modules behind.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r package.json src "$work"
npm install --prefix "$work" --ignore-scripts --no-audit --no-fund --no-package-lock >/dev/null
set -- "$work"/node_modules/@oven/bun-*/bin/bun
(cd "$work" && "$1" build src/kernel.js --target=bun --minify --outfile=kernel.js)
cp "$work/kernel.js" kernel.js
