# `backup` and `restore`: an installation as one file. Sourced by the launcher; docs/backup.md says what is in it.

# passing_signals COMMAND...: as the command itself, which is told of what would end the launcher, and is waited for. Its status is in passed_status.
passing_signals() {
  local pid
  "$@" </dev/null &
  pid=$!
  trap 'kill -TERM "$pid" 2>/dev/null || true' INT TERM HUP
  passed_status=0
  # A signal ends the wait, and not the command.
  until wait "$pid" && passed_status=0 || { passed_status=$?; ! kill -0 "$pid" 2>/dev/null; }; do :; done
  trap - INT TERM HUP
}

# backup FILE|FOLDER [--snapshot-running] [--json]
backup() {
  local target= folder snapshot_running=no options=() argument taken=
  for argument in "$@"; do
    case $argument in
      --json) options+=(--json) ;;
      --snapshot-running) snapshot_running=yes ;;
      --help | -h) backup_help; return ;;
      -*) fail_status=2 fail "unknown: $argument (remedy: ./atoll backup --help)" ;;
      *) [[ -z $target ]] || fail_status=2 fail "'$argument' after '$target' (expected: one file or folder; remedy: ./atoll backup --help)"
        target=$argument ;;
    esac
  done
  [[ -n $target ]] || fail_status=2 fail "no file is named (usage: ./atoll backup FILE|FOLDER [--snapshot-running] [--json])"
  require_root
  find_installation || fail "nothing is installed in $data (remedy: name its folder with --data-dir)"
  [[ -f $data/atoll.db ]] || fail "there is no store in $data yet (remedy: ./atoll up)"
  if [[ $target == */ || -d $target ]]; then
    [[ -d $target ]] || fail "there is no folder $target"
    target=${target%/}/atoll-$instance-$(date -u +%Y%m%dT%H%M%SZ).tar.zst
  fi
  target=$(realpath -m -- "$target")
  [[ -d $(dirname "$target") ]] || fail "there is no folder $(dirname "$target")"
  [[ ! -e $target ]] || fail "$target is there already (remedy: name another file)"
  ready_programs >&2
  if [[ $snapshot_running == yes ]]; then
    fail_status=5 require_running
    snapshot_running
  fi
  # Of the server's user, who copies the store.
  folder=$(mktemp -d "$data/tmp/backup.XXXXXX")
  chown atoll:atoll "$folder"
  local aot=()
  if [[ -f $server/server.aot ]]; then aot=("-XX:AOTCache=$server/server.aot"); fi
  # shellcheck disable=SC2046 # the options hold no blanks
  passing_signals "$node/atoll-engine" backup --data "$data" --images "$cache/images" --file "$target" --version "$(version_text)" \
    --store-folder "$folder" --taken "$taken" "${options[@]}" -- \
    $(as_server) "$JAVA_HOME/bin/java" "${aot[@]}" $(java_options) "-Djava.io.tmpdir=$folder" -cp "$(class_path)" atoll.server.CopyStore "$data" "$folder"
  rm -rf "$folder"
  forget_taken
  told=yes
  exit "$passed_status"
}

backup_help() {
  cat <<'HELP'
usage: ./atoll backup FILE|FOLDER [--snapshot-running] [--json] [--data-dir FOLDER]
  write the installation to one file: store, keys, settings, paused sandboxes, snapshots, and the images and builds that they need.
  Server and sandboxes go on; it works while they are stopped too. A FOLDER gets a file named by installation and time.
  What runs in sandboxes is not in it, unless they are paused, or:
    --snapshot-running   makes a memory snapshot of each running one first, and removes it afterwards
  Exit status: 0 done, 1 no backup was made, 6 made, but something that the store names was not there and is told.
  The file holds the installation's keys.
HELP
}

# restore FILE --data-dir NEW, or restore FILE --check
restore() {
  local file= check=no options=() argument
  for argument in "$@"; do
    case $argument in
      --json) options+=(--json) ;;
      --check) check=yes ;;
      --help | -h) restore_help; return ;;
      -*) fail_status=2 fail "unknown: $argument (remedy: ./atoll restore --help)" ;;
      *) [[ -z $file ]] || fail_status=2 fail "'$argument' after '$file' (expected: one file; remedy: ./atoll restore --help)"
        file=$argument ;;
    esac
  done
  [[ -n $file ]] || fail_status=2 fail "no file is named (usage: ./atoll restore FILE --data-dir NEW, or --check)"
  [[ -f $file ]] || fail "there is no file $file"
  file=$(realpath -- "$file")
  if [[ $check == yes ]]; then
    ready_programs >&2
    passing_signals "$node/atoll-engine" restore --file "$file" "${options[@]}"
  else
    require_root
    [[ $data_named == yes ]] || fail_status=2 fail "name the new folder (usage: ./atoll restore FILE --data-dir NEW)"
    [[ ! -e $data || -d $data ]] || fail "$data is no folder"
    [[ -z $(ls -A "$data" 2>/dev/null | grep -vx 'lost+found') ]] || fail "$data is not empty (remedy: restore into a new folder)"
    mkdir -p "$(dirname "$data")"
    ready_programs >&2
    make_user
    passing_signals "$node/atoll-engine" restore --file "$file" --data "$data" --images "$cache/images" "${options[@]}"
    if [[ $passed_status -eq 0 ]]; then
      # Before the next `up` anywhere removes images that nobody needs.
      remember_installation
      if [[ ${#options[@]} -eq 0 ]]; then say "  start it:  $(launcher_words) up        (--port N, where another installation runs)"; fi
    fi
  fi
  told=yes
  exit "$passed_status"
}

restore_help() {
  cat <<'HELP'
usage: ./atoll restore FILE --data-dir NEW [--json]
       ./atoll restore FILE --check [--json]
  make a data folder of what `backup` wrote, in a folder that is empty or not there. `./atoll up --data-dir NEW` then starts it:
  paused sandboxes are resumed by use, those that were running are listed as ended (lost). A changed or truncated file is refused.
    --check   reads all of it and writes nothing
  Exit status: 0 done, 1 nothing was restored (or, of --check, the file is damaged).
HELP
}

# What `up` would start; built first where that is new. Sets node, server and JAVA_HOME.
ready_programs() {
  if [[ -n ${ATOLL_BUILDS:-} ]]; then
    brought_builds
    export JAVA_HOME
    return
  fi
  # Where nothing is to be built there is nothing to wait for either.
  if find_jdk && find_go; then
    node=$cache/node/$(node_hash) server=$cache/server/$(server_hash)
    if [[ -d $node && -d $server ]]; then return; fi
  fi
  ready_builds
}

version_text() { local text; text=$(version); printf '%s' "${text% }"; }

# Makes a memory snapshot of each running sandbox and adds its id to `taken`. One that can't be made is no reason to make no backup: the report tells that
# its sandbox is not in it.
snapshot_running() {
  local line sandbox id
  local -x ATOLL_URL ATOLL_API_KEY
  ATOLL_URL=$(server_url) ATOLL_API_KEY=$(api_key)
  while read -r line; do
    [[ $line =~ \"sandbox_id\":\"([^\"]*)\" ]] || continue
    sandbox=${BASH_REMATCH[1]}
    if id=$("$node/atoll-cli" snapshot create "$sandbox" --kind memory --label atoll-backup=running); then
      say "  snapshot of running $sandbox: $id" >&2
      taken+="${taken:+ }$id"
    fi
  done < <("$node/atoll-cli" ls --state running --json)
}

# They were made for the backup alone.
forget_taken() {
  local id
  local -x ATOLL_URL ATOLL_API_KEY
  ATOLL_URL=$(server_url) ATOLL_API_KEY=$(api_key)
  for id in $taken; do
    "$node/atoll-cli" snapshot rm "$id" >/dev/null || say "  snapshot $id, made for the backup, is still there (remedy: ./atoll snapshot rm $id)" >&2
  done
}
