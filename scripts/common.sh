# Shared by the launcher's commands: messages, options, paths, hashes, tools. Sourced, never run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${ATOLL_CACHE:-/var/cache/atoll}
data=${ATOLL_DATA_DIR:-/var/lib/atoll}
# Names what is brought along and need not be built: in a tarball, and in the container image.
if [[ -z ${ATOLL_BUILDS:-} && -f $root/builds ]]; then ATOLL_BUILDS=$root/builds; fi
default_port=8080
minimum_jdk=25
# The oldest Go that fetches a newer toolchain by itself when a go.mod asks for one.
minimum_go=1.21

export HOME=${HOME:-/root}

say() { printf '%s\n' "$*"; }
# One line: what is wrong, and the remedy.
fail() { told=yes; printf 'atoll: %s\n' "$*" >&2; exit "${fail_status:-1}"; }

# `set -e` ends the launcher without a word; this one says at least where it was.
told=no
on_exit() {
  local status=$? line=${BASH_LINENO[0]}
  stop_steps
  if [[ $status -ne 0 && $told == no ]]; then printf 'atoll: stopped by an error (status %s, %s line %s)\n' "$status" "${BASH_SOURCE[1]:-}" "$line" >&2; fi
}
trap on_exit EXIT

# --- Steps: long commands with progress -------------------------------------------------------------------------------------

declare -A step_pids=() step_begins=()

stop_steps() {
  local label
  for label in "${!step_pids[@]}"; do
    kill -TERM -- "-${step_pids[$label]}" 2>/dev/null || true
    wait "${step_pids[$label]}" 2>/dev/null || true
  done
  trap - INT TERM
}

step_log() { echo "$cache/log/${1//[^a-zA-Z0-9]/-}.log"; }

# begin_step LABEL COMMAND...: runs it beside what follows, its output in a log. end_step waits for it.
begin_step() {
  local label=$1 log
  shift
  mkdir -p "$cache/log"
  log=$(step_log "$label")
  printf '  %-44s …\n' "$label"
  # In a process group of its own, so that Ctrl-C or a failure elsewhere ends it with all it started.
  set -m
  "$@" >"$log" 2>&1 </dev/null 8>&- 9>&- &
  step_pids[$label]=$! step_begins[$label]=$SECONDS
  set +m
  trap 'stop_steps; kill -INT $$' INT
  trap 'stop_steps; kill -TERM $$' TERM
}

# end_step LABEL: prints a line every 10 s and one at its end; a failed step ends the launcher, with its last words.
end_step() {
  local label=$1 log status=0 pid=${step_pids[$1]}
  log=$(step_log "$label")
  until timeout 10 tail -s 0.1 --pid="$pid" -f /dev/null 2>/dev/null; do
    printf '  %-44s … %d s  %s\n' "$label" $((SECONDS - step_begins[$label])) "$(tail -n 1 "$log" | tr -d '\r' | cut -c1-90)"
  done
  wait "$pid" || status=$?
  unset "step_pids[$label]"
  if [[ ${#step_pids[@]} -eq 0 ]]; then trap - INT TERM; fi
  if [[ $status -ne 0 ]]; then
    tail -n 30 "$log" >&2
    fail "$label failed after $((SECONDS - step_begins[$label])) s; all of its output: $log"
  fi
  printf '  %-44s %d s\n' "$label" $((SECONDS - step_begins[$label]))
}

step() {
  begin_step "$@"
  end_step "$1"
}

# --- Privilege and packages -------------------------------------------------------------------------------------------------

require_root() {
  [[ $EUID -eq 0 ]] ||
    fail "sandboxes need root (remedy: 'sudo ./atoll $command', or without root on any system with Docker: 'docker compose up')"
}

# Debian package for each command that something here calls; a package may have several commands.
debian_packages=(
  "curl:curl" "jq:jq" "mkfs.erofs:erofs-utils" "mmdebstrap:mmdebstrap" "gcc:gcc" "ip:iproute2" "openssl:openssl"
  "npm:npm" "python3:python3" "flock:util-linux" "setpriv:util-linux" "mvn:maven" "ps:procps" "xz:xz-utils"
)

missing_packages() {
  local entry
  {
    for entry in "${debian_packages[@]}"; do
      # A command, or a pattern of a path off the PATH.
      command -v "${entry%%:*}" >/dev/null || compgen -G "${entry%%:*}" >/dev/null || echo "${entry##*:}"
    done
    # Modules, not commands.
    python3 -c 'from importlib.util import find_spec as has
if not has("pip"): print("python3-pip")
if not has("venv") or not has("ensurepip"): print("python3-venv")' 2>/dev/null || printf '%s\n' python3-pip python3-venv
    if [[ ! -d /etc/ssl/certs ]]; then echo ca-certificates; fi
    # `go test -race` and cgo need the C library's headers.
    if [[ ! -f /usr/include/stdio.h ]]; then echo libc6-dev; fi
  } | sort -u
}

install_packages() {
  local packages
  mapfile -t packages < <(missing_packages)
  [[ ${#packages[@]} -gt 0 ]] || return 0
  command -v apt-get >/dev/null ||
    fail "missing: ${packages[*]} (remedy: install them; on a system without apt-get use 'docker compose up')"
  require_root
  step "Debian packages: ${packages[*]}" apt_install "${packages[@]}"
}

apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update && apt-get install -y --no-install-recommends "$@"
}

# version_at_least HAVE WANT
version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

homes() {
  echo "$HOME"
  # Under sudo the tools may lie in the caller's home.
  if [[ -n ${SUDO_USER:-} ]]; then getent passwd "$SUDO_USER" | cut -d: -f6; fi
}

# Sets and exports JAVA_HOME to a JDK that is new enough, or says how to get one.
find_jdk() {
  local candidate candidates=() home found version
  if [[ -n ${JAVA_HOME:-} ]]; then candidates+=("$JAVA_HOME"); fi
  if found=$(command -v javac); then candidates+=("$(dirname "$(dirname "$(readlink -f "$found")")")"); fi
  candidates+=(/usr/lib/jvm/* /usr/java/* /opt/*)
  while read -r home; do candidates+=("$home"/.sdkman/candidates/java/* "$home"/.jdks/*); done < <(homes)
  for candidate in "${candidates[@]}"; do
    if [[ -x $candidate/bin/javac && -f $candidate/release ]]; then
      version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$candidate/release")
      if [[ -n $version && $version -ge $minimum_jdk ]]; then
        export JAVA_HOME=$candidate
        return 0
      fi
    fi
  done
  return 1
}

require_jdk() {
  find_jdk && return 0
  local package=openjdk-$minimum_jdk-jdk-headless
  if [[ $EUID -eq 0 ]] && apt-cache show "$package" >/dev/null 2>&1; then
    step "Debian packages: $package" apt_install "$package"
    find_jdk && return 0
  fi
  fail "no JDK >= $minimum_jdk found (remedy: install one from https://adoptium.net, or '$package' where the distribution has it, or set JAVA_HOME)"
}

# Sets and exports GO, or says how to get it.
find_go() {
  local candidate candidates=() home version
  if candidate=$(command -v go); then candidates+=("$candidate"); fi
  candidates+=(/usr/local/go/bin/go /usr/lib/go-*/bin/go /opt/go/bin/go)
  while read -r home; do candidates+=("$home/go/bin/go" "$home"/sdk/go*/bin/go "$home/.local/go/bin/go"); done < <(homes)
  for candidate in ${GO:+"$GO"} "${candidates[@]}"; do
    if [[ -x $candidate ]]; then
      version=$(GOTOOLCHAIN=local "$candidate" env GOVERSION 2>/dev/null | sed 's/^go//')
      if [[ -n $version ]] && version_at_least "$version" "$minimum_go"; then
        export GO=$candidate
        return 0
      fi
    fi
  done
  return 1
}

wanted_go() { sed -n 's/^go //p' "$root/node/go.mod"; }

require_go() {
  find_go || fail "no Go >= $minimum_go found (remedy: install Go $(wanted_go) from https://go.dev/dl to /usr/local/go)"
  # An older Go fetches the version that go.mod names by itself, if it may.
  (cd "$root/node" && "$GO" version >/dev/null 2>&1) ||
    fail "Go $("$GO" env GOVERSION 2>/dev/null) cannot fetch Go $(wanted_go) (remedy: install it from https://go.dev/dl to /usr/local/go)"
  PATH=$(dirname "$GO"):$PATH
}

# await_lock DESCRIPTOR: in short waits, as one that outlived a launcher that was ended would then take the lock, and keep what reads its output waiting.
await_lock() { until flock -w 1 "$1"; do :; done; }

# --- Hashes -----------------------------------------------------------------------------------------------------------------

# hash_of PATH...: of names and contents below the repository's root, without what builds and tests leave there.
hash_of() {
  (
    cd "$root"
    find "$@" \( -name target -o -name node_modules -o -name __pycache__ -o -name .pytest_cache -o -name .venv \) -prune -o -type f -print0 |
      LC_ALL=C sort -z | xargs -0 sha256sum
  ) | sha256sum | cut -c1-32
}

# --- Installation -----------------------------------------------------------------------------------------------------------

# Reads the installation in $data, if there is one: sets instance and run.
find_installation() {
  instance= run=
  [[ -r $data/instance ]] || return 1
  instance=$(<"$data/instance")
  [[ $instance =~ ^[0-9a-f]{8}$ ]] || fail "$data/instance: '$instance' (expected: 8 hex digits; remedy: use another --data-dir)"
  run=/run/atoll-$instance
}

start_time() { # of a process, in ticks since boot; empty if it is gone
  # The name in parentheses may hold spaces, so count from its end.
  sed -n 's/^.*) //p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

# pid_of NAME: prints the pid of "server" or "engine" if it runs. A pid that now belongs to another process has another start time.
pid_of() {
  local pid start
  [[ -n $run && -r $run/$1.pid ]] || return 1
  read -r pid start <"$run/$1.pid" || return 1
  [[ -n $start && $(start_time "$pid") == "$start" ]] || return 1
  [[ $(sed -n 's/^.*) //p' "/proc/$pid/stat" 2>/dev/null | cut -c1) != Z ]] || return 1
  echo "$pid"
}

remember_pid() { printf '%s %s\n' "$2" "$(start_time "$2")" >"$run/$1.pid"; }

server_port() { cat "$run/port" 2>/dev/null || true; }
server_url() { echo "http://127.0.0.1:$(server_port)"; }
api_key() { cat "$data/secret/api-key" 2>/dev/null || true; }

require_running() {
  find_installation && pid_of server >/dev/null ||
    fail "no server runs for $data (remedy: './atoll up', or name its folder with --data-dir)"
}
