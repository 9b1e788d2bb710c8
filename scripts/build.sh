# What `./atoll up` and `./atoll test` build. Each part lies in the cache under a hash of what it is made of, and is put there
# by a rename, so a part that is there is whole. Sourced by the launcher.

runsc_folder() { "$root/node/runsc/build.sh" --where; }

node_hash() {
  { hash_of node/go.mod node/go.sum node/cmd node/internal node/gen kernels/go; runsc_folder; "$GO" env GOVERSION GOARCH; } | sha256sum | cut -c1-32
}

server_hash() {
  local module paths=()
  for module in $(modules); do paths+=("$module/pom.xml" "$module/src/main"); done
  { hash_of pom.xml .mvn proto "${paths[@]}"; sed -n 's/^JAVA_VERSION=//p' "$JAVA_HOME/release"; } | sha256sum | cut -c1-32
}

modules() { sed -n 's:.*<module>\(.*\)</module>.*:\1:p' "$root/pom.xml"; }

# Whether nothing is missing. Sets runsc, node, server, agent_image.
all_built() {
  runsc=$(runsc_folder)
  node=$cache/node/$(node_hash)
  agent_image=$(agent_path)
  server=$cache/server/$(server_hash)
  [[ -z $java_runtime && -f $runsc/VERSION && -d $node && -s $agent_image && -e $server/server.aot && -z $(missing_images) ]] || return 1
  agent_image=$(<"$agent_image")
  [[ -f $agent_image ]]
}

agent_path() { echo "$cache/agent/$(hash_of kernels images/build-agent.sh | cut -c1-16)-$(basename "$node" | cut -c1-16).path"; }

# Under the lock 9: builds what is missing. Sets runsc, node, server, agent_image.
build_all() {
  mkdir -p "$cache" "$cache/images"
  chmod 0755 "$cache"
  exec 9>"$cache/.lock-up"
  # Where all is there, nobody else's building is waited for.
  if all_built; then
    touch "$node" "$server" "$agent_image"
    if [[ $command == up ]]; then remember_installation; fi
    if flock -n 9; then prune_cache; fi
    exec 9>&-
    return 0
  fi
  flock -n 9 || { say "  waiting for another './atoll' that is building"; await_lock 9; }

  # Images are made of downloads and runsc of compiling, so they go side by side.
  local images
  mapfile -t images < <(missing_images)
  if [[ ${#images[@]} -gt 0 ]]; then begin_step "images: ${images[*]}" build_images "${images[@]}"; fi

  runsc=$(runsc_folder)
  if [[ ! -f $runsc/VERSION ]]; then step "runsc from its pinned Go module" "$root/node/runsc/build.sh"; fi

  node=$cache/node/$(node_hash)
  if [[ ! -d $node ]]; then step "engine, agent and CLI" build_node "$node"; fi

  agent_image=$(agent_path)
  if [[ ! -s $agent_image || ! -f $(<"$agent_image") ]]; then step "agent image" build_agent "$agent_image"; fi
  agent_image=$(<"$agent_image")

  server=$cache/server/$(server_hash)
  if [[ ! -d $server ]]; then step "server" build_server "$server"; fi
  if [[ -n $java_runtime ]]; then make_java_runtime; fi
  # Once per build; the server starts without it too, only slower.
  if [[ ! -e $server/server.aot ]]; then step "server's start-up cache" train_server; fi

  if [[ ${#images[@]} -gt 0 ]]; then end_step "images: ${images[*]}"; fi
  if [[ $command == up ]]; then remember_installation; fi
  prune_cache
  exec 9>&-
}

# For `build --java-runtime FOLDER`: what the server needs of Java, a fifth of a JDK. Its start-up cache is good with this one only.
make_java_runtime() {
  step "Java runtime" link_java "$java_runtime"
  export JAVA_HOME=$java_runtime
}

link_java() {
  local target=$1 used modules jars=("$server"/lib/*.jar)
  used=$("$JAVA_HOME/bin/jdeps" --print-module-deps --ignore-missing-deps --multi-release "$minimum_jdk" \
    --class-path "$(IFS=:; echo "${jars[*]}")" "$server/atoll-server.jar" "${jars[@]}" 2>/dev/null | tail -n 1)
  [[ $used == *java.base* ]] || { echo "jdeps named no modules: $used"; return 1; }
  # Looked up by name at run time, so jdeps cannot see it.
  modules=$used,jdk.management
  rm -rf "$target"
  mkdir -p "$(dirname "$target")"
  "$JAVA_HOME/bin/jlink" --add-modules "$modules" --strip-debug --no-header-files --no-man-pages --output "$target"
}

# --- Brought along ----------------------------------------------------------------------------------------------------------

# What `up` starts: built here, or named by the file $ATOLL_BUILDS where builds are brought along, as in a tarball or the container image.
ready_builds() {
  if [[ -z ${ATOLL_BUILDS:-} ]]; then
    install_packages
    require_jdk
    require_go
    make_user
    build_all
    return
  fi
  brought_builds
  export JAVA_HOME
  make_user
  if [[ -d $root/images-built ]]; then unpacked_images; else images_there; fi
}

# Sets JAVA_HOME, runsc, node, server, agent_image.
brought_builds() {
  [[ -r $ATOLL_BUILDS ]] || fail "ATOLL_BUILDS: no file $ATOLL_BUILDS (remedy: './atoll build' writes one; or unset it)"
  # shellcheck source=/dev/null
  source "$ATOLL_BUILDS"
}

images_there() {
  local missing
  missing=$(missing_images | tr '\n' ' ')
  [[ -z $missing ]] || fail "what is brought along was built for another processor: no sandbox image of ${missing}for this one (remedy: build on this machine: 'docker compose build')"
}

# Of a tarball: its images join those that are built here, by a link where that can be.
unpacked_images() {
  local wanted image name file
  [[ $root != *[[:space:]]* ]] || fail "'$root' has a blank in it (remedy: unpack into another folder, such as /opt)"
  setpriv --reuid atoll --regid atoll --clear-groups test -r "$server/atoll-server.jar" ||
    fail "the user atoll cannot read $root (remedy: unpack into another folder, such as /opt)"
  wanted=$(<"$root/images-built/processor")
  [[ -z $wanted ]] || grep -qw -m1 "$wanted" /proc/cpuinfo ||
    fail "this tarball was built for processors with $wanted (remedy: './atoll dist' in a clone of Atoll on a machine like this one)"
  install -d -m 0755 "$cache" "$cache/images"
  for image in "$root"/images-built/*.json; do
    name=$(basename "$image" .json)
    [[ ! -f $cache/images/$name.json ]] || continue
    # The .json is the last one: an image without it is not there.
    for file in "$name.erofs" "$name.json"; do
      ln -f "$root/images-built/$file" "$cache/images/.$file.new" 2>/dev/null || cp --reflink=auto "$root/images-built/$file" "$cache/images/.$file.new"
      mv "$cache/images/.$file.new" "$cache/images/$file"
    done
  done
}

# Builds, starts nothing, and writes the file for ATOLL_BUILDS.
build() {
  require_root
  install_packages
  require_jdk
  require_go
  make_user
  build_all
  printf 'JAVA_HOME=%q runsc=%q node=%q server=%q agent_image=%q\n' "$JAVA_HOME" "$runsc" "$node" "$server" "$agent_image" >"$cache/builds.new"
  mv "$cache/builds.new" "$cache/builds"
  say "Built; $cache/builds names what."
}

# Builds that nothing has used for a while. Sandboxes keep what they hold open.
prune_cache() {
  touch "$node" "$server" "$agent_image"
  find "$cache/node" "$cache/server" -mindepth 1 -maxdepth 1 -mtime +14 -exec rm -rf {} +
  find "$cache/agent" -maxdepth 1 -type f -mtime +14 -delete
  find "$cache/log" -type f -mtime +14 -delete
  # Of a restore that was killed.
  find "$cache/images" -maxdepth 1 -name '.restoring-*' -mtime +1 -delete
  # Debian's part of an image, which build.sh keeps for a day.
  if [[ -d $cache/debian ]]; then find "$cache/debian" -type f -mtime +1 -delete; fi
  local recipe file
  for recipe in "$root"/images/recipes/*/; do
    recipe=$(basename "$recipe")
    touch -c "$("$root/images/build.sh" --where "$recipe")"
    for file in "$cache/images/$recipe"-????????????????????????????????.erofs; do
      if [[ -n $(find "$file" -mtime +14 2>/dev/null) ]] && ! is_needed "${file%.erofs}.json"; then rm -f "${file%.erofs}.json" "$file"; fi
    done
  done
}

# Whether a sandbox or a snapshot, of any installation that was started from this cache, is of the image that METADATA describes.
is_needed() { # METADATA
  local digest folder
  digest=$(sed -En 's/^ *"digest": *"(sha256:)?([0-9a-f]{64})".*/\2/p' "$1" 2>/dev/null | head -n 1)
  [[ -n $digest ]] || return 1
  while read -r folder; do
    if grep -rqsF --include='*.json' "$digest" "$folder/boxes" "$folder/snapshots"; then return 0; fi
  done < <(cat "$cache/installations" 2>/dev/null || true; echo "$data")
  return 1
}

# Their sandboxes and snapshots need images of this cache.
remember_installation() (
  local folder
  exec 7>"$cache/.lock-installations"
  flock 7
  {
    echo "$data"
    while read -r folder; do
      if [[ $folder != "$data" && -d $folder ]]; then echo "$folder"; fi
    done < <(cat "$cache/installations" 2>/dev/null)
  } >"$cache/installations.new"
  mv "$cache/installations.new" "$cache/installations"
)

# What there is to begin with; the engine builds the others when they are first asked for.
first_images=(typescript-bun python)

missing_images() {
  local recipe image
  for recipe in "${first_images[@]}"; do
    image=$("$root/images/build.sh" --where "$recipe")
    [[ -f ${image%.erofs}.json ]] || echo "$recipe"
  done
}

build_images() {
  local recipe
  for recipe in "$@"; do "$root/images/build.sh" "$recipe" || return; done
}

build_node() {
  local target=$1 version
  version=$(<"$runsc/VERSION")
  rm -rf "$cache"/node/.work.*
  mkdir -p "$cache/node/.work.$$"
  (cd "$root/node" && CGO_ENABLED=0 GOWORK=off "$GO" build -trimpath -buildvcs=false -o "$cache/node/.work.$$/" \
    -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$version -X atoll/node/internal/engine.Version=$(basename "$target" | cut -c1-12)" ./cmd/...)
  GO=$GO "$root/kernels/go/build.sh" "$cache/node/.work.$$/atoll-go-kernel"
  chmod -R a+rX,go-w "$cache/node/.work.$$"
  sync -f "$cache/node"
  mv "$cache/node/.work.$$" "$target"
}

build_agent() {
  local path
  path=$("$root/images/build-agent.sh" "$node/atoll-agent")
  echo "$path" >"$1.new"
  mv "$1.new" "$1"
}

# In a copy without the tests, so that the clone may be read-only, stays as it is, and nothing in it ends up owned by root.
build_server() {
  local target=$1 work=$cache/server/.work.$$ module paths=(pom.xml .mvn proto)
  rm -rf "$cache"/server/.work.*
  mkdir -p "$work/source" "$work/out/lib"
  for module in $(modules); do paths+=("$module"); done
  tar -C "$root" --exclude=target --exclude=src/test -cf - "${paths[@]}" | tar -C "$work/source" --no-same-owner -xf -
  (cd "$work/source" && mvn -B -ntp -DskipTests -Dspotless.check.skip=true package)
  cp "$work/source/server/target/atoll-server.jar" "$work/out/"
  cp "$work"/source/server/target/lib/*.jar "$work/out/lib/"
  chmod -R a+rX,go-w "$work/out"
  sync -f "$work"
  mv "$work/out" "$target"
  rm -rf "$work"
}

# A virtual environment with pinned packages; prints its folder.
venv_with() { # REQUIREMENTS_FILE...
  local hash target
  hash=$({ cat "$@"; python3 -c 'import sys; print(sys.executable, sys.version)'; } | sha256sum | cut -c1-32)
  target=$cache/venv/$hash
  if [[ ! -f $target/.complete ]]; then
    rm -rf "$target"
    mkdir -p "$cache/venv"
    local arguments=() file
    for file in "$@"; do arguments+=(-r "$file"); done
    step "Python packages for the tests" make_venv "$target" "${arguments[@]}" >&2
  fi
  echo "$target"
}

make_venv() {
  python3 -m venv "$1" && "$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}" && touch "$1/.complete"
}
