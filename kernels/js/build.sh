#!/bin/sh
# Bundles src/ into ../bun/kernel.js, ../node/kernel.js and ../deno/kernel.js, and what Node and Deno lack into transform.cjs and
# hooks.cjs, with the pinned Bun from npm. Leaves no node_modules behind. ATOLL_CACHE names a folder for the packages.
set -eu
cd "$(dirname "$0")"
work=${ATOLL_CACHE:+$ATOLL_CACHE/kernels-js}
if [ -n "$work" ]; then mkdir -p "$work"; else work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT; fi
rm -rf "$work/src"
cp -r package.json src "$work"
npm install --prefix "$work" --ignore-scripts --no-audit --no-fund --no-package-lock >/dev/null
# The table of all browsers, which is never asked: targets are not chosen by it.
cat >"$work/node_modules/browserslist/index.js" <<'STUB'
module.exports = () => {
  throw new Error("no browsers here");
};
STUB
set -- "$work"/node_modules/@oven/bun-*/bin/bun
here=$PWD
cd "$work"
for runtime in bun node deno; do
  case $runtime in
    bun) options=--target=bun ;;
    node) options="--target=node --format=cjs" ;;
    deno) options="--target=node --format=esm" ;;
  esac
  "$1" build src/kernel.js $options --conditions=atoll-$runtime --minify --outfile="$here/../$runtime/kernel.js"
done
for part in transform hooks; do
  "$1" build "src/transform/$part.js" --target=node --format=cjs --minify --external '*/transform.cjs' --outfile="$here/$part.cjs"
done
