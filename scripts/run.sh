# `up`, `down`, `env`, and what the CLI does: the life of an installation. Sourced by the launcher.

ready_limit=60
stop_limit=${ATOLL_STOP_LIMIT:-20}

# --- up ---------------------------------------------------------------------------------------------------------------------

up() {
  local begin=$SECONDS
  require_root
  ready_builds
  make_installation
  # One `up` or `down` of an installation at a time.
  exec 8>"$data/launcher/lock"
  await_lock 8
  start_engine
  start_server
  exec 8>&-
  show_example
  say ""
  say "Atoll is ready at $(server_url) after $((SECONDS - begin)) s."
  say "  dashboard, this link once:   $(login_link)"
  say "  key and URL for your shell:  eval \"\$($(launcher_words) env)\""
  say "  run code:                    $(launcher_words) exec 'print(6*7)' -l python"
  say "  one that stays:              $(launcher_words) create --name work --template python"
  say "    list, to disk, copy, keep: $(launcher_words) ls, pause work, fork work, snapshot create work        (used again, it resumes)"
  say "  stop, sandboxes go on:       $(launcher_words) down        (end everything: down --all)"
  if [[ $foreground == yes ]]; then stay; fi
}

launcher_words() {
  printf %q "$0"
  if [[ $data != /var/lib/atoll ]]; then printf ' --data-dir %q' "$data"; fi
}

make_user() {
  getent group atoll >/dev/null || groupadd --system atoll
  getent passwd atoll >/dev/null || useradd --system --gid atoll --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin atoll
}

make_installation() {
  [[ ! -e $data/.restoring ]] || fail "a restore into $data was broken off (remedy: remove that folder, and restore again)"
  # Sticky: the server's user makes its files beside the engine's folders, and cannot rename or remove those.
  install -d -o root -g atoll -m 1770 "$data"
  install -d -o root -g root -m 0750 "$data/log"
  # In `launcher`, out of the server's reach: `down --all` runs as root what is named there.
  install -d -o root -g root -m 0700 "$data/launcher" "$data/boxes" "$data/spool" "$data/runtimes"
  install -d -o atoll -g atoll -m 0700 "$data/secret" "$data/tmp"
  # Told here, where the remedy is known, and not by a server that can't read its settings.
  setpriv --reuid atoll --regid atoll --init-groups test -x "$data" ||
    fail "the user atoll cannot reach $data (remedy: chmod o+x the folders above it, or use another --data-dir)"
  if [[ ! -s $data/instance ]]; then
    od -An -N4 -tx1 /dev/urandom | tr -d ' \n' >"$data/instance.new"
    chmod 0644 "$data/instance.new"
    sync "$data/instance.new"
    mv "$data/instance.new" "$data/instance"
  fi
  find_installation
  install -d -o root -g atoll -m 0710 "$run"
}

# A new build replaces what runs; sandboxes are taken over by it.
start_engine() {
  local build="$node $runsc $agent_image" pid
  if pid=$(pid_of engine); then
    [[ $(cat "$data/launcher/engine.build" 2>/dev/null) != "$build" ]] || return 0
    say "  the engine is started anew from its new build"
    stop engine
  fi
  open_log engine
  setsid "$node/atoll-engine" --data "$data" --run "$run" --instance "$instance" --runsc "$runsc" \
    --agent-image "$agent_image" --images "$cache/images" --recipes "$root/images" --cache "$cache" </dev/null >>"$data/log/engine.log" 2>&1 8>&- 9>&- &
  remember_pid engine $!
  echo "$build" >"$data/launcher/engine.build"
  await engine "$ready_limit" test -S "$run/engine.sock"
}

start_server() {
  local build pid wanted
  if [[ -n ${ATOLL_POOL:-} ]]; then settings+=("--pool.depth=$ATOLL_POOL"); fi
  if [[ -n $host ]]; then settings+=("--host=$host"); fi
  if [[ -f $data/server.conf ]]; then settings+=("--config=$data/server.conf"); fi
  build="$server $JAVA_HOME ${settings[*]} $(if [[ -f $data/server.conf ]]; then sha256sum <"$data/server.conf"; fi)"
  wanted=${port:-$(server_port)}
  wanted=${wanted:-$default_port}
  if pid=$(pid_of server); then
    if [[ $(cat "$data/launcher/server.build" 2>/dev/null) == "$build" && $wanted == "$(server_port)" ]]; then
      await server "$ready_limit" healthy
      return 0
    fi
    say "  the server is started anew: its build or port changed"
    stop server
  fi
  check_port "$wanted"
  open_log server
  echo "$wanted" >"$run/port"
  local aot=()
  if [[ -f $server/server.aot ]]; then aot=("-XX:AOTCache=$server/server.aot"); fi
  # shellcheck disable=SC2046 # the options hold no blanks
  (cd / && exec setsid $(as_server) "$JAVA_HOME/bin/java" "${aot[@]}" $(java_options) "-Djava.io.tmpdir=$data/tmp" -cp "$(class_path)" atoll.server.Main \
    --data "$data" --engine-socket "$run/engine.sock" --port "$wanted" "${settings[@]}") </dev/null >>"$data/log/server.log" 2>&1 8>&- 9>&- &
  remember_pid server $!
  echo "$build" >"$data/launcher/server.build"
  await server "$ready_limit" healthy
}

# Not root: what decides need not touch the machine.
as_server() { echo "setpriv --reuid atoll --regid atoll --init-groups --no-new-privs env -i PATH=/usr/bin:/bin LANG=C.UTF-8 HOME=/nonexistent"; }

java_options() {
  echo "-XX:+UseSerialGC -Xmx256m --enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow"
  # Java's second compiler takes 11 s of CPU for what the first 20,000 calls make hot, and then saves a fifth of what a call costs the server. Where it would
  # take half of the machine from the sandboxes for that, the first compiler does alone, and since it is quick, after a tenth of the usual number of calls.
  if (($(nproc) <= 4)); then echo "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=0.1"; fi
}

# In one order, always the same: the start-up cache is good for that one only.
class_path() {
  local jars=("$server/atoll-server.jar" "$server"/lib/*.jar)
  local IFS=:
  echo "${jars[*]}"
}

# Runs the server against an engine without sandboxes, so that Java keeps what it loaded and linked, and what it learnt about the code that
# every call goes through: a start takes half the time, and the first thousands of calls a good deal less.
train_server() {
  local folder pid engine url key limit=$((SECONDS + 90))
  rm -rf "$(dirname "$server")"/.train.*
  folder=$(mktemp -d "$(dirname "$server")/.train.XXXXXX")
  install -d -o atoll -g atoll -m 0700 "$folder/data"
  chmod 0711 "$folder"
  "$node/atoll-rehearsal" "$folder/engine.sock" </dev/null >"$folder/engine.log" 2>&1 &
  engine=$!
  # shellcheck disable=SC2046
  (cd / && exec $(as_server) "$JAVA_HOME/bin/java" "-XX:AOTCacheOutput=$folder/data/server.aot" $(java_options) "-Djava.io.tmpdir=$folder/data" \
    -cp "$(class_path)" atoll.server.Main --data "$folder/data" --engine-socket "$folder/engine.sock" --port 0) </dev/null >"$folder/log" 2>&1 &
  pid=$!
  until url=$(grep -om1 'listens on http://[^ ]*' "$folder/log") && curl -fsS -o /dev/null "${url#listens on }/healthz" 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null && ((SECONDS < limit)) || { cat "$folder/log" "$folder/engine.log"; kill "$pid" "$engine" 2>/dev/null; return 1; }
    read -rt 0.1 <> <(:) || true
  done
  url=${url#listens on }
  key=$(<"$folder/data/secret/api-key")
  rehearse >"$folder/calls"
  curl -sS --max-time 60 -K "$folder/calls" >/dev/null || true
  kill -TERM "$pid"
  wait "$pid" || true
  kill -TERM "$engine"
  wait "$engine" || true
  cat "$folder/log"
  [[ -s $folder/data/server.aot ]] || return 1
  install -m 0644 "$folder/data/server.aot" "$server/server.aot.new"
  mv "$server/server.aot.new" "$server/server.aot"
  rm -rf "$folder"
}

# The calls of a rehearsal, as curl reads them: new sandboxes now and then, many calls to one, pauses, forks, snapshots, a stream, a list.
rehearse() {
  local sandbox n
  call() { printf 'url = "%s"\nheader = "Authorization: Bearer %s"\n%s\nnext\n' "$url$1" "$key" "${2:+data = \"${2//\"/\\\"}\"}"; }
  sandbox=$(curl -sS "$url/v1/code_exec" -H "Authorization: Bearer $key" -d '{"code":"print(1+1)","language":"python"}' | jq -r .sandbox_id)
  for n in {1..4000}; do
    call /v1/code_exec '{"code":"x+=1; print(x)","sandbox_id":"'"$sandbox"'"}'
    if ((n % 100 == 0)); then
      call /v1/code_exec '{"code":"print(1+1)","language":"python"}'
      call /v1/code_exec '{"code":"print(1)","sandbox_id":"'"$sandbox"'","stream":true}'
      call "/v1/sandboxes/$sandbox"
      call /healthz
      # Its next cell resumes it.
      call "/v1/sandboxes/$sandbox:pause" '{}'
      call "/v1/sandboxes/$sandbox:fork" '{}'
      call "/v1/sandboxes/$sandbox/snapshots" '{}'
    fi
  done
  call /v1/executions
  call /v1/templates
  call /v1/snapshots
  call /v1/sandboxes
  call /metrics
  call /v1/code_exec '{"code":"1","language":"none"}'
  printf 'url = "%s/healthz"\n' "$url"
}

open_log() {
  local log=$data/log/$1.log
  if [[ -f $log && $(stat -c %s "$log") -gt $((16 << 20)) ]]; then mv "$log" "$log.1"; fi
}

# ask METHOD PATH SECONDS [HEADER]: prints the server's whole answer. By the shell itself: where Atoll came as an archive there may be no curl. In a shell of its
# own, since a server that hangs up ends who writes to it.
ask() (
  trap - EXIT
  {
    exec 3<>"/dev/tcp/127.0.0.1/$(server_port)" || exit 1
    printf '%s %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nContent-Length: 0\r\nConnection: close\r\n%s\r\n' "$1" "$2" "$(server_port)" "${4:+$4$'\r\n'}" >&3
    timeout "$3" cat <&3
  } 2>/dev/null
)

healthy() { [[ $(ask GET /healthz 2) == "HTTP/1.1 200 "* ]]; }

# await NAME SECONDS COMMAND...: until the command succeeds; a process that has ended is told at once, with its last words.
await() {
  local name=$1 limit=$((SECONDS + $2))
  shift 2
  until "$@"; do
    if ! pid_of "$name" >/dev/null; then
      tail -n 20 "$data/log/$name.log" >&2
      fail "the $name ended at its start; all it said: $data/log/$name.log"
    fi
    if ((SECONDS >= limit)); then
      tail -n 20 "$data/log/$name.log" >&2
      fail "the $name is not ready after the time it has for that; its log: $data/log/$name.log"
    fi
    read -rt 0.05 <> <(:) || true
  done
}

check_port() {
  if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
    fail "port $1 is in use by another program (remedy: ./atoll up --port $(($1 + 1)), or end that program: ss -ltnp 'sport = :$1')"
  fi
}

show_example() {
  local answer status=0
  local -x ATOLL_URL ATOLL_API_KEY
  ATOLL_URL=$(server_url) ATOLL_API_KEY=$(api_key)
  answer=$(timeout 90 "$node/atoll-cli" exec --json $'x = 1 + 1\nprint(x)') || status=$?
  if [[ ! $answer =~ \"output\":\"([^\"]*)\" || ${BASH_REMATCH[1]} != 2 || ! $answer =~ \"sandbox_id\":\"([^\"]*)\" ]]; then
    say "$answer" >&2
    fail "the first example did not print 2 (its answer is above, the CLI's status is $status; logs: $data/log)"
  fi
  say ""
  say "POST /v1/code_exec {\"tool\":\"code_exec\",\"code\":\"x = 1 + 1\\nprint(x)\"}"
  say "{\"output\":\"2\",\"sandbox_id\":\"${BASH_REMATCH[1]}\"}"
  # The example's sandbox is nobody's.
  timeout 30 "$node/atoll-cli" rm "${BASH_REMATCH[1]}" >/dev/null 2>&1 || true
}

# In the foreground: until a signal comes or one of the two ends.
stay() {
  trap 'say "stopping${ATOLL_STOP_NOTE:+: $ATOLL_STOP_NOTE}"; down_both; exit 0' INT TERM
  tail -n 0 -F "$data/log/engine.log" "$data/log/server.log" &
  local tail_pid=$!
  while pid_of server >/dev/null && pid_of engine >/dev/null; do
    # A signal ends the wait at once, unlike a foreground command.
    read -rt 1 <> <(:) || true
  done
  kill "$tail_pid" 2>/dev/null || true
  down_both
  fail "server or engine ended; see $data/log"
}

# --- down -------------------------------------------------------------------------------------------------------------------

# stop NAME: asks, then insists.
stop() {
  local pid limit=$((SECONDS + stop_limit))
  if pid=$(pid_of "$1"); then
    kill -TERM "$pid" 2>/dev/null || true
    while pid_of "$1" >/dev/null; do
      if ((SECONDS >= limit)); then
        say "  the $1 did not stop within $stop_limit s and is killed"
        kill -KILL "$pid" 2>/dev/null || true
        limit=$((SECONDS + stop_limit))
      fi
      read -rt 0.05 <> <(:) || true
    done
    say "  $1 stopped"
  fi
  rm -f "$run/$1.pid"
}

down_both() {
  stop server
  stop engine
}

down() {
  require_root
  if ! find_installation; then
    say "Nothing is installed in $data."
    return 0
  fi
  mkdir -p -m 0700 "$data/launcher"
  exec 8>"$data/launcher/lock"
  await_lock 8
  stop server
  stop engine
  if [[ $all == yes ]]; then
    purge
    rm -rf "$run"
    say "All sandboxes have ended. Records, keys and snapshots are kept in $data, builds in $cache; 'rm -rf' removes them."
  else
    say "Sandboxes go on; './atoll up' takes them over, './atoll down --all' ends them."
  fi
}

# Ends all sandboxes and removes what they have on the machine, by the engine that ran last or the newest one.
purge() {
  local engine=() build
  if [[ -r $data/launcher/engine.build ]]; then read -r -a engine <"$data/launcher/engine.build"; fi
  if [[ ! -x ${engine[0]:-}/atoll-engine && -n ${ATOLL_BUILDS:-} ]]; then
    brought_builds
    engine=("$node" "$runsc")
  fi
  if [[ ! -x ${engine[0]:-}/atoll-engine ]]; then
    build=$(ls -td "$cache"/node/*/ 2>/dev/null | head -n 1 || true)
    engine=("${build%/}" "$(ls -td "$cache"/runsc/*/ 2>/dev/null | head -n 1 || true)")
  fi
  [[ -x ${engine[0]}/atoll-engine ]] || fail "no engine in $cache to end the sandboxes with (remedy: ./atoll up builds it)"
  "${engine[0]}/atoll-engine" purge --data "$data" --run "$run" --instance "$instance" --runsc "${engine[1]%/}" >>"$data/log/engine.log" 2>&1 ||
    { tail -n 20 "$data/log/engine.log" >&2; fail "some sandboxes could not be ended; see $data/log/engine.log"; }
}

# --- status, version --------------------------------------------------------------------------------------------------------

# Exit statuses as init scripts have them: 0 it runs, 3 it does not.
status() {
  local name pid up=yes
  if ! find_installation; then say "Nothing is installed in $data."; told=yes; exit 3; fi
  for name in engine server; do
    if pid=$(pid_of "$name"); then say "$name  runs, pid $pid"; else say "$name  does not run"; up=no; fi
  done
  if [[ $up == yes ]] && healthy; then say "$(server_url) answers"; return; fi
  [[ $up == no ]] || say "$(server_url) does not answer; see $data/log"
  told=yes
  exit 3
}

version() { if [[ -f $root/VERSION ]]; then cat "$root/VERSION"; else say "$(dist_version) $(git -C "$root" describe --always --dirty 2>/dev/null || true)"; fi; }

# --- env, the CLI --------------------------------------------------------------------------------------------------------------

# A link for one login; the key goes by standard input, so that no list of processes shows it.
login_link() {
  local answer
  require_running
  [[ -r $data/secret/api-key ]] || fail "the key in $data/secret/api-key cannot be read (remedy: sudo ./atoll login-link)"
  answer=$(ask POST /ui/login-links 10 "Authorization: Bearer $(api_key)") || true
  [[ $answer == "HTTP/1.1 2"* ]] || fail "the server made no link; see $data/log/server.log"
  [[ $answer =~ \"path\":\"([^\"]*)\" ]] || fail "the server's answer holds no link"
  printf '%s%s\n' "$(server_url)" "${BASH_REMATCH[1]}"
}

environment() {
  require_running
  [[ -r $data/secret/api-key ]] || fail "the key in $data/secret/api-key cannot be read (remedy: sudo ./atoll env)"
  printf 'export ATOLL_URL=%s ATOLL_API_KEY=%s\n' "$(server_url)" "$(api_key)"
}

# ask_server COMMAND ARGUMENT...: by the CLI.
ask_server() {
  local cli help=no
  case ${2:-} in --help | -h) help=yes ;; esac
  # Commands of two words, and those that need no server.
  case $1/${2:-}/${3:-} in */*/--help | */*/-h | completion/* | template/init/*) help=yes ;; esac
  if [[ $1 == __complete ]]; then
    find_installation || exit 0
    help=yes
    export ATOLL_DATA_DIR=$data
  fi
  if [[ $help == no && (-z ${ATOLL_URL:-} || -z ${ATOLL_API_KEY:-}) ]]; then
    fail_status=5 require_running
    [[ -r $data/secret/api-key ]] || fail_status=4 fail "the key in $data/secret/api-key cannot be read (remedy: sudo ./atoll $1 …, or set ATOLL_URL and ATOLL_API_KEY)"
    ATOLL_URL=$(server_url) ATOLL_API_KEY=$(api_key)
    export ATOLL_URL ATOLL_API_KEY
  fi
  # The one that was built with what runs, else the newest.
  cli=$(cut -d' ' -f1 "$data/launcher/engine.build" 2>/dev/null || true)/atoll-cli
  if [[ ! -x $cli && -n ${ATOLL_BUILDS:-} ]]; then brought_builds; cli=$node/atoll-cli; fi
  [[ -x $cli ]] || cli=$(ls -t "$cache"/node/*/atoll-cli 2>/dev/null | head -n 1 || true)
  [[ -n $cli ]] || fail "the CLI is not built (remedy: ./atoll up)"
  exec "$cli" "$@"
}
