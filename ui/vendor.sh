#!/usr/bin/env bash
# Fetches the browsers' libraries from npm, checks them, and puts their built files with their licences into the folder that is served. No Node needed
# to build Atoll: what this wrote is committed. To change a version: change it and its hash here, run this, look at the pages.
set -euo pipefail

target=$(dirname "$(readlink -f "$0")")/src/main/resources/atoll/ui/static/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# vendor PACKAGE VERSION SHA256-OF-THE-TARBALL FILE-IN-IT=NAME-HERE...
vendor() {
  local package=$1 version=$2 hash=$3 pair
  shift 3
  curl -fsSL -o "$work/package.tgz" "$registry/$package/-/${package##*/}-$version.tgz"
  echo "$hash  $work/package.tgz" | sha256sum -c --quiet
  rm -rf "$work/package"
  tar -xzf "$work/package.tgz" -C "$work"
  for pair in "$@" "LICENSE=${package##*/}.LICENSE.txt"; do
    # Comments that point to source maps, which are not here.
    sed '/^\/\/# sourceMappingURL=/d; s/\/\/# sourceMappingURL=[^ ]*$//' "$work/package/${pair%%=*}" >"$target/${pair#*=}"
  done
}

registry=$(npm config get registry 2>/dev/null || echo https://registry.npmjs.org)
registry=${registry%/}
mkdir -p "$target"
vendor htmx.org 2.0.4 a34988d1b9f005a458d593aa8d7486537cb878b8ac3b82703db1268983123ecc dist/htmx.min.js=htmx.min.js
vendor idiomorph 0.7.3 a2226c5292ca71304a4a3e24a2a8672244984e69441a5f2d6759041a7feff0e8 dist/idiomorph-ext.min.js=idiomorph-ext.min.js
vendor uplot 1.6.32 4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d dist/uPlot.iife.min.js=uplot.min.js dist/uPlot.min.css=uplot.min.css
vendor @xterm/xterm 5.5.0 bd954fa721872170188cc5d7e83e88db3c83c9a18a4e8d24c2783d26491f59d2 lib/xterm.js=xterm.js css/xterm.css=xterm.css
vendor @xterm/addon-fit 0.10.0 917ac44972453d5eed52edc1e50260c76398ce48cf2290c2e60671102bba0b33 lib/addon-fit.js=xterm-fit.js
