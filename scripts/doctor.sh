# `./atoll doctor`: looks at the machine, says what to do about each finding. Works before anything is built, and without root. Sourced by the launcher.

doctor_failures=0
good() { printf '  ok    %-14s %s\n' "$1" "$2"; }
note() { printf '  note  %-14s %s\n' "$1" "$2"; }
bad() { printf '  FAIL  %-14s %s\n' "$1" "$2"; doctor_failures=$((doctor_failures + 1)); }

doctor() {
  doctor_machine
  doctor_docker
  doctor_room
  # Where the builds are brought along, nothing is needed to build any.
  if [[ -z ${ATOLL_BUILDS:-} ]]; then
    doctor_tools
    doctor_build
  fi
  doctor_installation
  say ""
  if [[ $doctor_failures -gt 0 ]]; then
    fail "$doctor_failures findings keep Atoll from working here"
  fi
  say "Atoll can work here."
}

doctor_machine() {
  case $(uname -m) in
    x86_64 | aarch64) good processor "$(uname -m)" ;;
    *) bad processor "$(uname -m): gVisor needs x86_64 or aarch64" ;;
  esac
  local kernel
  kernel=$(uname -r)
  if [[ $(uname -s) != Linux ]]; then bad kernel "$(uname -s): use 'docker compose up' here"; return; fi
  if version_at_least "${kernel%%-*}" 5.4; then good kernel "Linux $kernel"; else bad kernel "Linux $kernel: 5.4 or newer is needed"; fi

  if [[ $EUID -eq 0 ]]; then good privilege root
  elif command -v sudo >/dev/null; then note privilege "not root: say 'sudo ./atoll up', or use 'docker compose up'"
  else bad privilege "neither root nor sudo: use 'docker compose up', or ask for root"; fi

  if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
    local missing= controller
    for controller in cpu memory pids; do
      grep -qw "$controller" /sys/fs/cgroup/cgroup.controllers || missing+=" $controller"
    done
    if [[ -z $missing ]]; then good cgroups "version 2"; else bad cgroups "version 2 without$missing: enable them for the root group (systemd.unified_cgroup_hierarchy=1, cgroup_enable=memory)"; fi
  elif [[ -d /sys/fs/cgroup/memory && -d /sys/fs/cgroup/pids && ( -d /sys/fs/cgroup/cpu || -d /sys/fs/cgroup/cpu,cpuacct ) ]]; then
    good cgroups "version 1"
  else
    bad cgroups "no memory, cpu and pids controllers below /sys/fs/cgroup: mount them (in Docker: --privileged)"
  fi

  local namespace missing=
  for namespace in mnt pid net ipc uts; do [[ -e /proc/self/ns/$namespace ]] || missing+=" $namespace"; done
  if [[ -z $missing ]]; then good namespaces "all there"; else bad namespaces "the kernel lacks$missing"; fi
  if [[ -f /proc/sys/kernel/seccomp/actions_avail ]]; then good seccomp "there"; else bad seccomp "the kernel lacks it: gVisor needs CONFIG_SECCOMP_FILTER"; fi
  if [[ $(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0) == 3 ]]; then
    bad ptrace "switched off for good (kernel.yama.ptrace_scope=3): set it lower and boot again"
  fi
}

# The second runtime, for templates that ask for it; nothing needs it.
doctor_docker() {
  local socket=${DOCKER_HOST:-unix:///run/docker.sock} version
  socket=${socket#unix://}
  if [[ ! -S $socket ]]; then note docker "no Docker Engine at $socket: only templates whose runtime is docker need one"
  elif version=$(curl -fsS --max-time 10 --unix-socket "$socket" http://docker/version 2>/dev/null | grep -o '"Version":"[0-9][^"]*"' | head -n 1) && [[ -n $version ]]; then
    version=${version#*:}
    good docker "${version//\"/} at $socket, for templates whose runtime is docker"
  else note docker "the Docker Engine at $socket does not answer: only templates whose runtime is docker need it"; fi
}

doctor_room() {
  local memory disk folder pids
  memory=$(($(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo) >> 10))
  if [[ $memory -ge 2048 ]]; then good memory "$memory MiB available"
  elif [[ $memory -ge 1024 ]]; then note memory "$memory MiB available: enough to run; the first build is happier with 2048"
  else bad memory "$memory MiB available: free at least 1024"; fi
  for folder in "$data" "$cache"; do
    while [[ ! -d $folder ]]; do folder=$(dirname "$folder"); done
    disk=$(($(df -Pk "$folder" | awk 'NR == 2 {print $4}') >> 10))
    if [[ $disk -ge 10240 ]]; then good disk "$disk MiB free for $folder"
    elif [[ $disk -ge 4096 ]]; then note disk "$disk MiB free for $folder: enough to start; each sandbox may write 1024"
    else bad disk "$disk MiB free for $folder: 4096 are needed (remedy: make room, or choose --data-dir and ATOLL_CACHE elsewhere)"; fi
  done
  pids=$(cat /proc/sys/kernel/pid_max)
  if [[ $pids -lt 100000 ]]; then note processes "kernel.pid_max is $pids: for hundreds of sandboxes, sysctl -w kernel.pid_max=4194304"; else good processes "kernel.pid_max is $pids"; fi
}

doctor_tools() {
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  if [[ -z $missing ]]; then good packages "all there"
  elif command -v apt-get >/dev/null; then note packages "missing: ${missing}(./atoll up installs them)"
  else bad packages "missing: ${missing}and no apt-get here: install them, or use 'docker compose up'"; fi
  if find_jdk; then good JDK "$(sed -n 's/^JAVA_VERSION="\(.*\)"/\1/p' "$JAVA_HOME/release") in $JAVA_HOME"
  else bad JDK "none >= $minimum_jdk: install one from https://adoptium.net, or set JAVA_HOME"; fi
  if ! find_go; then bad Go "none >= $minimum_go: install Go $(wanted_go) from https://go.dev/dl to /usr/local/go"
  else
    local version
    version=$(GOTOOLCHAIN=local "$GO" env GOVERSION); version=${version#go}
    if version_at_least "$version" "$(wanted_go)"; then good Go "$version"; else note Go "$version: it will fetch $(wanted_go) by itself"; fi
  fi
}

doctor_build() {
  local recipe image built_images=() unbuilt=()
  # What their builder asks for comes with jq and dpkg.
  if command -v jq >/dev/null && command -v dpkg >/dev/null; then
    for recipe in "$root"/images/recipes/*/; do
      recipe=$(basename "$recipe")
      image=$("$root/images/build.sh" --where "$recipe")
      if [[ -f ${image%.erofs}.json ]]; then built_images+=("$recipe"); else unbuilt+=("$recipe"); fi
    done
    if [[ ${#built_images[@]} -gt 0 ]]; then good images "built: ${built_images[*]}"; fi
    if [[ ${#unbuilt[@]} -gt 0 ]]; then note images "not built yet: ${unbuilt[*]} (at first use, 1-5 minutes each)"; fi
  fi
  local built date age
  date=$(sed -n 's/.*gvisor.dev\/gvisor v0.0.0-\([0-9]\{8\}\).*/\1/p' "$root/node/runsc/go.mod" | head -n 1)
  age=$((($(date +%s) - $(date -d "$date" +%s)) / 86400))
  if [[ $age -le 180 ]]; then good gVisor "source of $date, $age days old"; else note gVisor "source of $date, $age days old: look for an update of Atoll"; fi
  if [[ -n ${GO:-} ]] && built=$(runsc_folder 2>/dev/null) && [[ -f $built/VERSION ]]; then good runsc "$(<"$built/VERSION")"
  else note runsc "not built yet (./atoll up builds it)"; fi
}

# What sandboxes on disk and the builds that they need take; root's folders, so root only.
doctor_kept() {
  [[ $EUID -eq 0 ]] || return 0
  local snapshots size count
  snapshots=$data/snapshots
  if [[ -d $snapshots ]]; then
    size=$(disk_use "$snapshots")
    count=$(find "$snapshots" -mindepth 1 -maxdepth 1 -type d -name 'snap-*' ! -name '*.partial' | wc -l)
    good snapshots "$count take $size MiB (paused sandboxes and golden ones of pools too; ./atoll snapshot ls, ./atoll ls --state paused)"
  fi
  if [[ -d $data/runtimes ]]; then
    size=$(disk_use "$data/runtimes")
    count=$(find "$data/runtimes" -mindepth 1 -maxdepth 1 -type d ! -name agents | wc -l)
    good builds "$count of gVisor are kept for sandboxes and snapshots, $size MiB"
  fi
}

# Of a folder, in MiB. What vanishes meanwhile is no failure.
disk_use() { du -sm "$1" 2>/dev/null | cut -f1 || true; }

doctor_installation() {
  local name pid
  if ! find_installation 2>/dev/null; then
    note installation "none in $data yet"
    if (exec 3<>"/dev/tcp/127.0.0.1/${port:-$default_port}") 2>/dev/null; then note port "${port:-$default_port} is in use by another program: ./atoll up --port N"; fi
    return
  fi
  for name in engine server; do
    if pid=$(pid_of "$name"); then good "$name" "runs, pid $pid"; else note "$name" "does not run (./atoll up starts it)"; fi
  done
  if pid_of server >/dev/null; then
    if healthy; then good health "$(server_url)/healthz answers"; else bad health "$(server_url)/healthz does not answer: see $data/log/server.log"; fi
  fi
  doctor_kept
}
