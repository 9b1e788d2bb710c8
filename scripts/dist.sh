# `./atoll dist`: all that Atoll is at run time in one archive, with a Java of its own. Sourced by the launcher.

# What a file's time is in the archive: of the commit, so that two builds of one differ by nothing but Java's start-up cache.
dist_time() { git -C "$root" log -1 --format=%ct 2>/dev/null || echo 1767225600; }

dist_version() { sed -n 's:^    <version>\(.*\)</version>:\1:p' "$root/pom.xml" | head -n 1; }

dist_architecture() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) fail "gVisor does not run on $(uname -m) (expected: x86_64 or aarch64)" ;;
  esac
}

# dist [--image RECIPE]… [FOLDER]: writes atoll-VERSION-linux-ARCHITECTURE.tar.gz there.
dist() {
  local target=. recipe name work file
  while [[ $# -gt 0 ]]; do
    case $1 in
      --image)
        [[ $# -ge 2 && -f $root/images/recipes/$2/recipe.json ]] || fail "--image '${2:-}' (expected: one of $(cd "$root/images/recipes" && echo *))"
        first_images+=("$2")
        shift
        ;;
      -*) fail "unknown: $1 (expected: --image RECIPE, and a folder)" ;;
      *) target=$1 ;;
    esac
    shift
  done
  mapfile -t first_images < <(printf '%s\n' "${first_images[@]}" | LC_ALL=C sort -u)
  require_root
  install_packages
  require_jdk
  require_go
  make_user
  build_all
  mkdir -p "$target" "$cache/dist"
  target=$(cd "$target" && pwd)
  name=atoll-$(dist_version)-linux-$(dist_architecture)
  # One at a time: what lies here was left by one that was killed.
  exec 9>"$cache/dist/.lock"
  await_lock 9
  rm -rf "$cache"/dist/.work.*
  work=$(mktemp -d "$cache/dist/.work.XXXXXX")
  # The start-up cache is made as the server's user.
  chmod 0755 "$work"
  step "archive: files" dist_files "$work/$name"
  step "archive: Java runtime" link_java "$work/$name/java"
  step "archive: licences" python3 "$root/deploy/dist/notice.py" "$root" "$work/$name"
  step "archive: server's start-up cache" dist_train "$work/$name"
  file=$target/$name.tar.gz
  step "archive: packing" dist_pack "$work" "$name" "$file"
  rm -rf "$work"
  exec 9>&-
  say "$file ($(($(stat -c %s "$file") >> 20)) MiB)"
}

dist_files() { # STAGE
  local stage=$1 recipe image
  mkdir -p "$stage"/{bin,images-built,deploy} "$stage"/{node,runsc,server}
  cp -r "$root/atoll" "$root/LICENSE" "$root/scripts" "$stage/"
  rm "$stage/scripts/test-launcher.sh"
  cp -r "$root/deploy/systemd" "$stage/deploy/"
  cp "$root/docs/install.md" "$stage/INSTALL.md"
  cp "$root/docs/backup.md" "$stage/BACKUP.md"
  ln -s ../atoll "$stage/bin/atoll"
  # To build the other recipes by, where the tools for that are.
  mkdir "$stage/images"
  cp -r "$root/images/build.sh" "$root/images/recipes" "$stage/images/"
  cp -r "$node" "$stage/node/"
  cp -r "$runsc" "$stage/runsc/"
  mkdir "$stage/agent"
  cp "$agent_image" "$stage/agent/"
  mkdir "$stage/server/$(basename "$server")"
  cp -r "$server/atoll-server.jar" "$server/lib" "$stage/server/$(basename "$server")/"
  for recipe in "${first_images[@]}"; do
    image=$("$root/images/build.sh" --where "$recipe")
    cp --sparse=always "$image" "${image%.erofs}.json" "$stage/images-built/"
  done
  # Where a recipe has two binaries for one architecture, the one for the newer processors is taken if this machine is one.
  for recipe in "${first_images[@]}"; do
    jq -r '.binaries[]?.cpu_flag | select(. != "")' "$root/images/recipes/$recipe/recipe.json"
  done | sort -u | while read -r flag; do if grep -qw -m1 "$flag" /proc/cpuinfo; then echo "$flag"; fi; done >"$stage/images-built/processor"
  printf '%s %s\n' "$(dist_version)" "$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)" >"$stage/VERSION"
  # Sourced by the launcher, which knows its root.
  cat >"$stage/builds" <<BUILDS
JAVA_HOME=\$root/java
runsc=\$root/runsc/$(basename "$runsc")
node=\$root/node/$(basename "$node")
server=\$root/server/$(basename "$server")
agent_image=\$root/agent/$(basename "$agent_image")
BUILDS
}

# Java takes a start-up cache only for files of the size and time that it was made with, wherever they lie.
dist_train() { # STAGE
  local server=$1/server/$(basename "$server") JAVA_HOME=$1/java
  find "$1" -exec touch -h -d "@$(dist_time)" {} +
  train_server
}

dist_pack() { # WORK NAME FILE
  chmod -R u+rwX,go+rX,go-w "$1/$2"
  tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(dist_time)" --format=gnu --sparse -cf - "$2" | gzip -n "-${ATOLL_DIST_LEVEL:-6}" >"$3.new"
  mv "$3.new" "$3"
}
