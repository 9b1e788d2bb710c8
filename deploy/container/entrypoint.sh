#!/usr/bin/env bash
# What the container runs, below tini, which reaps and hands signals on: prepares the container, then `atoll up --foreground`.
# Arguments are settings of the server, such as --pool.depth 8.
set -euo pipefail

fail() { printf 'atoll: %s\n' "$*" >&2; exit 1; }

unshare --mount true 2>/dev/null && [[ -w /sys/fs/cgroup ]] ||
  fail "this container may not make sandboxes (remedy: 'docker run --privileged …', or 'docker compose up')"

# On cgroup v2 a group with processes in it cannot have children with limits, and the container starts with all of its own in
# the root: they move to a leaf, the same that the engine would use. `docker exec` follows the first process there.
leave_root_group() { # ROOT
  local pid pids
  [[ -f $1/cgroup.controllers ]] || return 0
  mkdir -p "$1/atoll-rest"
  mapfile -t pids <"$1/cgroup.procs"
  for pid in "${pids[@]}"; do
    # One that has ended meanwhile needs no move.
    { echo "$pid" >"$1/atoll-rest/cgroup.procs"; } 2>/dev/null || [[ ! -d /proc/$pid ]] || fail "process $pid cannot leave the group $1"
  done
}
leave_root_group "${ATOLL_CGROUP_ROOT:-/sys/fs/cgroup}"

# Sockets and process ids of an earlier life of this container: nothing of it runs any more.
rm -rf /run/atoll-*

echo "Sandboxes live as long as this container runs. What they ran stays on record in $ATOLL_DATA_DIR."
# `docker stop` gives 10 s unless told otherwise. A server that waits for a call longer is killed, as it may be at any time.
export ATOLL_STOP_NOTE="the sandboxes end with this container" ATOLL_STOP_LIMIT=5
exec /opt/atoll/atoll up --foreground --host 0.0.0.0 --port "$ATOLL_PORT" "$@"
