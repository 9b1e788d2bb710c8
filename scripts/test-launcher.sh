#!/usr/bin/env bash
# Tests the launcher without building or starting anything: its messages, and that it never ends a process that is not its own.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
passed=0 failed=0
folder=$(mktemp -d "${TMPDIR:-/tmp}/atoll-launcher-test.XXXXXX")
bystander= holder=
clean_up() {
  [[ -z $bystander ]] || kill "$bystander" 2>/dev/null || true
  [[ -z $holder ]] || kill "$holder" 2>/dev/null || true
  rm -rf "$folder" /run/atoll-0badcafe
}
trap clean_up EXIT
unset ATOLL_URL ATOLL_API_KEY ATOLL_DATA_DIR
export ATOLL_CACHE=$folder/cache
# For the tests that run as another user, who may not reach this clone.
chmod 0755 "$folder"
mkdir "$folder/clone"
cp -r "$root/atoll" "$root/scripts" "$folder/clone/"

check() { # NAME EXPECTED GOT
  if [[ $3 == "$2" ]]; then
    passed=$((passed + 1)); echo "ok   $1"
  else
    failed=$((failed + 1)); printf 'FAIL %s\n  got:      %s\n  expected: %s\n' "$1" "$3" "$2"
  fi
}

# one_line NAME WORDS OUTPUT: the output is one line that holds each of the words.
one_line() {
  local word
  check "$1: in one line" 1 "$(wc -l <<<"$3" | tr -d ' ')"
  for word in $2; do check "$1: names $word" yes "$(grep -qF -- "$word" <<<"$3" && echo yes || echo "$3")"; done
}

atoll() { "$root/atoll" "$@" 2>&1 || true; }
# Runs in a mount namespace of its own, where folders can be hidden.
hiding() { # FOLDERS COMMAND
  unshare --mount --propagation private bash -c "for f in $1; do [ ! -d \$f ] || mount -t tmpfs none \$f; done; $2" 2>&1 || true
}

messages() {
  one_line "unknown command" "nonsense help" "$(atoll nonsense)"
  one_line "unknown argument" "--nonsense help" "$(atoll down --nonsense)"
  one_line "port out of range" "70000 65535" "$(atoll up --port 70000)"
  one_line "builds brought along that are not there" "$folder/none build" "$(ATOLL_BUILDS=$folder/none atoll up --data-dir "$folder/none")"
  one_line "env with nothing running" "up --data-dir" "$(atoll env --data-dir "$folder/none")"
  one_line "run with nothing running" "up --data-dir" "$(atoll run --data-dir "$folder/none" -- ls --all --port 1)"
  one_line "folder named before the command" "up $folder/none" "$(atoll --data-dir "$folder/none" env)"
  one_line "exec with nothing running" "up --data-dir" "$(atoll exec 'print(1)' --data-dir "$folder/none")"
  one_line "up without root" "sudo docker" "$(setpriv --reuid 65534 --regid 65534 --clear-groups "$folder/clone/atoll" up --data-dir "$folder/none" 2>&1 || true)"
  check "down with nothing installed says so and is no failure" "Nothing is installed in $folder/none." "$("$root/atoll" down --all --data-dir "$folder/none" 2>&1)"
}

missing_tools() {
  local source="source $root/scripts/common.sh; command=up"
  one_line "no JDK" "JDK 25 adoptium.net JAVA_HOME" \
    "$(hiding "/usr/lib/jvm /usr/java /opt $HOME/.sdkman $HOME/.jdks" "unset JAVA_HOME SUDO_USER; PATH=/usr/bin:/bin; $source; apt-cache() { return 1; }; require_jdk")"
  check "an old JDK is not taken" 1 "$(mkdir -p "$folder/jdk/bin" && cp /bin/true "$folder/jdk/bin/javac" && echo 'JAVA_VERSION="17.0.15"' >"$folder/jdk/release" &&
    hiding "/usr/lib/jvm /usr/java /opt $HOME/.sdkman $HOME/.jdks" "unset SUDO_USER; JAVA_HOME=$folder/jdk; PATH=/usr/bin:/bin; $source; find_jdk; echo \$?")"
  check "a JDK named by JAVA_HOME is taken" "$folder/jdk" "$(echo 'JAVA_VERSION="26"' >"$folder/jdk/release" && bash -c "JAVA_HOME=$folder/jdk; $source; find_jdk; echo \$JAVA_HOME")"
  one_line "no Go" "go.dev/dl $(sed -n 's/^go //p' "$root/node/go.mod")" \
    "$(hiding "/usr/local/go $HOME/go $HOME/sdk $HOME/.local /usr/lib/go-1.19" "unset SUDO_USER GO; PATH=/usr/bin:/bin; $source; require_go")"
}

ports() {
  local port
  port=$(python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  coproc HOLDER { exec python3 -c 'import socket, sys, signal
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(); print("listening", flush=True); signal.pause()' "$port"; }
  holder=$HOLDER_PID
  read -r <&"${HOLDER[0]}"
  one_line "port in use" "$port --port" "$(bash -c "source $root/scripts/common.sh; source $root/scripts/run.sh; check_port $port" 2>&1 || true)"
  kill "$holder"
  wait "$holder" 2>/dev/null || true
  holder=
  check "free port" "" "$(bash -c "source $root/scripts/common.sh; source $root/scripts/run.sh; check_port $port" 2>&1 || true)"
}

# A pid file that outlived its process may name a stranger's.
recycled_pid() {
  mkdir -p "$folder/data/launcher" /run/atoll-0badcafe
  echo 0badcafe >"$folder/data/instance"
  tail -f /dev/null &
  bystander=$!
  echo "$bystander 1" >/run/atoll-0badcafe/server.pid
  echo "999999999 1" >/run/atoll-0badcafe/engine.pid
  atoll down --data-dir "$folder/data" >/dev/null
  check "down leaves a process alone that only has the pid" alive "$(kill -0 "$bystander" && echo alive || echo killed)"
  bash -c "source $root/scripts/common.sh; data=$folder/data; find_installation; remember_pid server $bystander; pid_of server" >"$folder/pid"
  check "a process is known by pid and start time" "$bystander" "$(<"$folder/pid")"
  atoll down --data-dir "$folder/data" >/dev/null
  check "down stops the process it knows" gone "$(wait "$bystander" 2>/dev/null; kill -0 "$bystander" 2>/dev/null && echo alive || echo gone)"
  bystander=
  echo 'x; rm -rf /' >"$folder/data/instance"
  one_line "damaged instance file" "8 hex --data-dir" "$(atoll down --data-dir "$folder/data")"
}

hashes() {
  hash_in() { bash -c "source $root/scripts/common.sh; root=$1; hash_of src"; }
  mkdir -p "$folder/one/src/a" "$folder/two/src/a"
  echo 1 >"$folder/one/src/a/f"
  echo 1 >"$folder/two/src/a/f"
  touch -d 2001-01-01 "$folder/two/src/a/f"
  check "hash does not depend on place and time" "$(hash_in "$folder/one")" "$(hash_in "$folder/two")"
  mkdir "$folder/two/src/target"
  echo x >"$folder/two/src/target/x"
  check "hash leaves build outputs out" "$(hash_in "$folder/one")" "$(hash_in "$folder/two")"
  mv "$folder/two/src/a/f" "$folder/two/src/a/g"
  check "hash depends on names" differs "$([[ $(hash_in "$folder/one") == "$(hash_in "$folder/two")" ]] && echo same || echo differs)"
}

# Recipe images that are long unused go, but for those of sandboxes and snapshots that there still are.
old_images() {
  local name left
  mkdir -p "$ATOLL_CACHE"/{images,node,server,agent,log} "$folder"/{here,elsewhere}/snapshots/snap-1 "$folder/here/boxes/box-1"
  touch "$folder/built"
  for name in 1:old 2:snapshot 3:elsewhere 4:box 5:new; do
    local image=$ATOLL_CACHE/images/python-$(printf '%032d' "${name%:*}")
    printf '{\n  "name": "python",\n  "digest": "%064d"\n}\n' "${name%:*}" >"$image.json"
    touch -d 2001-01-01 "$image.erofs"
  done
  touch "$ATOLL_CACHE/images/python-$(printf '%032d' 5).erofs"
  printf '{"content":{"snapshot":{"imageDigest":"%064d"}}}' 2 >"$folder/here/snapshots/snap-1/manifest.json"
  printf '{"content":{"snapshot":{"imageDigest":"%064d"}}}' 3 >"$folder/elsewhere/snapshots/snap-1/manifest.json"
  printf '{"image":"%064d"}' 4 >"$folder/here/boxes/box-1/box.json"
  left=$(bash -c "source $root/scripts/common.sh; source $root/scripts/build.sh; cache=$ATOLL_CACHE
    data=$folder/gone remember_installation
    data=$folder/elsewhere remember_installation
    data=$folder/here remember_installation
    data=$folder/here remember_installation
    node=$folder/built server=$folder/built agent_image=$folder/built data=$folder/here prune_cache
    cd $ATOLL_CACHE/images && ls *.erofs *.json | sed -E 's/python-0*//' | sort | tr '\\n' ' '" 2>&1 || true)
  check "images of recipes stay while a sandbox or a snapshot needs them" "2.erofs 2.json 3.erofs 3.json 4.erofs 4.json 5.erofs 5.json " "$left"
  check "installations are known once, while they are there" "$folder/here $folder/elsewhere " "$(tr '\n' ' ' <"$ATOLL_CACHE/installations")"
}

steps() {
  local out
  out=$(bash -c "source $root/scripts/common.sh; step 'a step' bash -c 'echo last words; exit 3'; echo goes on" 2>&1 || true)
  check "failed step shows its last lines" yes "$(grep -q '^last words$' <<<"$out" && echo yes || echo "$out")"
  check "failed step names its log" yes "$(grep -q "$ATOLL_CACHE/log/a-step.log" <<<"$out" && echo yes || echo "$out")"
  check "failed step ends the launcher" "" "$(grep 'goes on' <<<"$out" || true)"
}

doctors() {
  local out
  out=$(atoll doctor --data-dir "$folder/none")
  check "doctor works before anything is built" yes "$(grep -q 'runsc .*not built' <<<"$out" && echo yes || echo "$out")"
  check "doctor judges" yes "$(grep -qE 'Atoll can work here|keep Atoll from working' <<<"$out" && echo yes || echo "$out")"
  check "doctor looks at each point" "" "$(for point in processor kernel privilege cgroups memory disk packages JDK Go gVisor; do grep -qE "^  (ok|note|FAIL)  +$point" <<<"$out" || echo "$point is missing"; done)"
}

# The unit names programs of an unpacked archive, which is not there: its own root has them.
unit() {
  local place=$folder/unit
  mkdir -p "$place/opt/atoll/bin"
  install -m 0755 /dev/null "$place/opt/atoll/bin/atoll"
  sed "s:/opt/atoll:$place/opt/atoll:" "$root/deploy/systemd/atoll.service" >"$place/atoll.service"
  check "the unit is clean" "" "$(systemd-analyze verify --man=no "$place/atoll.service" 2>&1)"
}

archive() {
  local there=$folder/archive
  mkdir -p "$there/bin" "$there/images-built" "$there/nodes"
  cp -r "$root/atoll" "$root/scripts" "$there/"
  ln -s ../atoll "$there/bin/atoll"
  echo "1.2.3 abcdef" >"$there/VERSION"
  echo "node=\$root/nodes JAVA_HOME=\$root/java runsc=\$root/runsc server=\$root/server agent_image=\$root/agent" >"$there/builds"
  printf '#!/bin/sh\necho "the CLI of the archive: $*"\n' >"$there/nodes/atoll-cli"
  chmod +x "$there/nodes/atoll-cli"
  check "an archive tells its own version" "1.2.3 abcdef" "$("$there/bin/atoll" version)"
  check "an archive has its own CLI" "the CLI of the archive: completion bash" "$("$there/bin/atoll" completion bash 2>&1)"
  one_line "an archive builds nothing" "build source clone" "$("$there/bin/atoll" build 2>&1 || true)"
  check "status with nothing installed" "3 Nothing is installed in $folder/none." "$(out=$("$root/atoll" status --data-dir "$folder/none") || echo "$? $out")"
  check "a command of the CLI tells by its status that nothing runs" 5 "$("$root/atoll" ls --data-dir "$folder/none" 2>/dev/null || echo $?)"
}

# Every command that `help` names: what it says of itself, and what it says where nothing is installed.
every_command() {
  local name names out status
  names=$("$root/atoll" help | sed -n 's/^  \([a-z].*\)/\1/p' | sed -E 's/  .*//; s/:.*//; s/ (FILE|SANDBOX|SHELL|'"'"'CODE'"'"'|--|\[).*//' | tr -d ',:' | tr ' ' '\n' | grep -xE '[a-z][a-z-]+' | sort -u)
  check "help names the launcher's commands" "" "$(for name in up status down build dist test bench login-link env doctor fmt version backup restore exec ls; do grep -qx "$name" <<<"$names" || echo "$name is missing"; done)"
  for name in $names; do
    if [[ " $(sed -n 's/^cli_commands="\(.*\)"$/\1/p' "$root/atoll") " == *" $name "* ]]; then
      out=$("$root/atoll" "$name" --data-dir "$folder/none" 2>&1) && status=0 || status=$?
      # It needs no server.
      [[ $name == completion ]] || check "$name where nothing is installed: in one line that says how to start" "5 1" "$status $(grep -c "atoll: no server runs.*remedy: './atoll up'" <<<"$out")"
      # Here there is no CLI that could tell more.
      one_line "$name --help without a CLI" "not built up" "$(atoll "$name" --help --data-dir "$folder/none")"
    else
      out=$("$root/atoll" "$name" --help 2>&1) && status=0 || status=$?
      check "$name --help tells what it does" "0 yes" "$status $(grep -q -- "$name" <<<"$out" && echo yes || echo "$out")"
    fi
  done
  one_line "status of nothing" "installed $folder/none" "$(atoll status --data-dir "$folder/none")"
  one_line "login-link of nothing" "up --data-dir" "$(atoll login-link --data-dir "$folder/none")"
}

backups() {
  local none=$folder/none
  one_line "backup to nowhere" "no file usage" "$(atoll backup --data-dir "$none")"
  one_line "backup of nothing" "nothing is installed $none --data-dir" "$(atoll backup "$folder/b" --data-dir "$none")"
  one_line "backup with an unknown flag" "--nonsense help" "$(atoll backup "$folder/b" --nonsense --data-dir "$none")"
  one_line "restore of no file" "no file usage" "$(atoll restore --data-dir "$none")"
  one_line "restore of a file that is not there" "$folder/b" "$(atoll restore "$folder/b" --data-dir "$none")"
  touch "$folder/empty"
  one_line "restore without a folder" "--data-dir NEW" "$(atoll restore "$folder/empty")"
  one_line "restore into a folder with something in it" "not empty new" "$(atoll restore "$folder/empty" --data-dir "$folder/clone")"
  mkdir -p "$folder/broken/.restoring" "$folder/store"
  echo 0badcafe >"$folder/store/instance"
  touch "$folder/store/atoll.db"
  one_line "backup over a file" "$folder/empty another" "$(atoll backup "$folder/empty" --data-dir "$folder/store")"
  one_line "backup into a folder that is not there" "$folder/nowhere" "$(atoll backup "$folder/nowhere/" --data-dir "$folder/store")"
  one_line "up in what a restore that was killed left" "broken off restore" \
    "$(bash -c "source $root/scripts/common.sh; source $root/scripts/run.sh; data=$folder/broken; make_installation" 2>&1 || true)"
}

messages
every_command
backups
unit
archive
missing_tools
ports
recycled_pid
hashes
old_images
steps
doctors
echo "launcher: $passed passed, $failed failed"
[[ $failed -eq 0 ]]
