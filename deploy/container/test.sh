#!/usr/bin/env bash
# Tests the container image with a Docker of its own, that is gone afterwards with all it made.
#
#   test.sh          builds the image upon what this machine has built already, runs it
#   test.sh --cold   builds everything inside `docker build`: packages, runsc, engine, server, sandbox images
#   test.sh --keep   leaves the folder with Docker's data for a look, says where
#
# No registry of images is needed: what the Dockerfile stands on is made of this machine's Debian packages, JDK and Go.
# Docker builds in the network of the machine, and runs in a network namespace of the test.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command=container-test
source "$here/../../scripts/common.sh"
source "$root/scripts/build.sh"
source "$root/scripts/run.sh"
java_runtime=

cold=no keep=no
for argument in "$@"; do
  case $argument in
    --cold) cold=yes ;;
    --keep) keep=yes ;;
    *) fail "unknown: $argument (expected: --cold, --keep)" ;;
  esac
done

require_root
for tool in dockerd docker; do
  command -v "$tool" >/dev/null || fail "$tool is missing (remedy: apt-get install docker.io)"
done
install_packages
require_jdk
require_go
if [[ $cold == no ]]; then make_user; build_all; fi

name=atoll-test-$$
folder=$(mktemp -d "${TMPDIR:-/tmp}/atoll-container-test.XXXXXX")
docker_pid=
passed=0 failed=0
export DOCKER_HOST=unix://$folder/docker.sock DOCKER_CONFIG=$folder/client

links() { ip -o link | cut -d: -f2 | LC_ALL=C sort; }
rules() { { command -v iptables-save >/dev/null && iptables-save || true; } 2>/dev/null | grep -v '^#' | sed 's/\[[0-9:]*\]//' ; true; }
links_before=$(links) rules_before=$(rules)

note() { printf '  %4d s  %s\n' "$SECONDS" "$*"; }
check() { # NAME EXPECTED GOT
  if [[ $3 == "$2" ]]; then
    passed=$((passed + 1)); echo "ok   $1"
  else
    failed=$((failed + 1)); printf 'FAIL %s\n  got:      %s\n  expected: %s\n' "$1" "$3" "$2"
  fi
}
# until_true SECONDS COMMAND...
until_true() {
  local limit=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < limit)) || return 1
    read -rt 0.2 <> <(:) || true
  done
}

# --- A Docker of our own ----------------------------------------------------------------------------------------------------

start_docker() { # COMMAND-BEFORE... -- OPTION...
  local before=()
  while [[ $1 != -- ]]; do before+=("$1"); shift; done
  shift
  "${before[@]}" dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/docker.pid" --host "$DOCKER_HOST" \
    --config-file "$folder/daemon.json" --cgroup-parent "/$name" --containerd-namespace "$name" --containerd-plugins-namespace "$name-plugins" \
    "$@" >>"$folder/dockerd.log" 2>&1 </dev/null &
  docker_pid=$!
  until_true 60 docker version || { tail -n 20 "$folder/dockerd.log" >&2; fail "dockerd did not start"; }
}

stop_docker() {
  [[ -n $docker_pid ]] || return 0
  kill -TERM "$docker_pid" 2>/dev/null || true
  timeout 40 tail -s 0.1 --pid="$docker_pid" -f /dev/null || kill -KILL "$docker_pid" 2>/dev/null || true
  wait "$docker_pid" 2>/dev/null || true
  docker_pid=
}

# Processes whose command line names the test's folder: dockerd's helpers.
left_processes() { { grep -lzF -- "$folder" /proc/[0-9]*/cmdline 2>/dev/null || true; } | cut -d/ -f3 | { grep -vxF -e $$ -e "$BASHPID" || true; }; }
left_mounts() { { grep -F -- "$folder" /proc/self/mountinfo || true; } | cut -d' ' -f5; }
left_groups() { find /sys/fs/cgroup -depth -type d -path "*/$name*" 2>/dev/null || true; }

clean_up() {
  local item
  if [[ -n $docker_pid ]]; then
    timeout 60 docker ps -aq 2>/dev/null | xargs -r timeout 60 docker rm -f -v >/dev/null 2>&1 || true
  fi
  stop_docker
  for item in $(left_processes); do kill -KILL "$item" 2>/dev/null || true; done
  until_true 10 test -z "$(left_processes)" || true
  left_mounts | LC_ALL=C sort -r | while read -r item; do umount -l "$item" 2>/dev/null || true; done
  for item in $(left_groups); do rmdir "$item" 2>/dev/null || true; done
  if [[ -e /run/netns/$name ]]; then ip netns delete "$name"; fi
  if [[ $keep == no ]]; then rm -rf "$folder"; else echo "kept: $folder"; fi
}
trap 'status=$?; if [[ $status -ne 0 && -f $folder/dockerd.log ]]; then docker logs --tail 40 atoll 2>&1 || true; tail -n 5 "$folder/dockerd.log"; fi; clean_up' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

chmod 0755 "$folder"
mkdir "$folder/client"

# Docker gives a privileged container every capability there is, and fails where root itself lacks one, as in a container that
# holds CI. This runc leaves those out and all else as it is.
capabilities=$(setpriv --dump | sed -n 's/^Capability bounding set: //p' | tr a-z, 'A-Z\n' | sed 's/^/CAP_/' | jq -Rnc '[inputs]')
cat >"$folder/runc" <<RUNC
#!/usr/bin/env bash
set -euo pipefail
for ((i = 1; i < \$#; i++)); do
  next=\$((i + 1))
  case \${!i} in
    --bundle) file=\${!next}/config.json ;;
    --process) file=\${!next} ;;
    *) continue ;;
  esac
  jq -c --argjson have '$capabilities' 'def fit: if .capabilities then .capabilities |= map_values(if . then map(select(IN(\$have[]))) else . end) else . end;
    fit | if .process then .process |= fit else . end' "\$file" >"\$file.new"
  cat "\$file.new" >"\$file"
  rm "\$file.new"
done
exec runc "\$@"
RUNC
chmod +x "$folder/runc"
jq -n --arg runc "$folder/runc" '{"default-runtime": "fitting", runtimes: {fitting: {path: $runc}}}' >"$folder/daemon.json"

# --- What the Dockerfile stands on ------------------------------------------------------------------------------------------

# Debian as its slim image is: the base system alone. What this machine trusts is trusted there too, so that a build reaches
# what the machine reaches.
debian_tar() { # PACKAGES, with commas between
  local tar hash options
  options=(
    --mode=root --format=tar --variant=minbase --include="$1" --aptopt='Apt::Install-Recommends "false"'
    --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*'
    --customize-hook='mkdir -p "$1/etc/ssl/certs" "$1/usr/local/share/ca-certificates"'
    --customize-hook='cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"; cp -r /usr/local/share/ca-certificates/. "$1/usr/local/share/ca-certificates/"'
    bookworm
  )
  hash=$({ printf '%s\n' "${options[@]}"; sha256sum </etc/ssl/certs/ca-certificates.crt; } | sha256sum | cut -c1-32)
  tar=$cache/container-test/$hash.tar
  if [[ ! -f $tar ]]; then
    mkdir -p "$cache/container-test"
    find "$cache/container-test" -name '*.tar*' -mtime +14 -delete
    # In namespaces of its own: if the test is ended, nothing of it stays mounted or running.
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
      env TMPDIR="$folder" mmdebstrap "${options[@]}" "$tar.new" >"$folder/mmdebstrap.log" 2>&1 || { tail -n 20 "$folder/mmdebstrap.log" >&2; fail "mmdebstrap failed"; }
    mv "$tar.new" "$tar"
  fi
  touch "$tar"
  echo "$tar"
}

import() { # IMAGE: of a tar on standard input
  docker import --change 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' --change 'ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt' \
    --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' - "$1" >/dev/null
}

make_bases() {
  local packages seeds=() recipe image tar
  note "bases: Debian"
  import test/debian <"$(debian_tar ca-certificates)"
  if [[ $cold == yes ]]; then
    docker tag test/debian test/build
  else
    # All that the launcher would install, and what it has built. Maven and npm, by far the largest, are not needed for what is
    # left to do there: a build that calls them all the same fails.
    packages=$({ printf '%s\n' "${debian_packages[@]##*:}" python3-pip python3-venv ca-certificates libc6-dev; } | grep -vxE 'maven|npm' | LC_ALL=C sort -u | paste -sd,)
    for recipe in "${first_images[@]}"; do
      image=$("$root/images/build.sh" --where "$recipe")
      seeds+=("$image" "${image%.erofs}.json")
    done
    tar=$(debian_tar "$packages")
    import test/tools <"$tar"
    # The start-up cache is made anew, for the Java that is made there.
    tar -C / --exclude=server.aot --transform "s:^${cache#/}:var/cache/atoll:" -cf - "${seeds[@]#/}" "${runsc#/}" "${node#/}" "${server#/}" 2>/dev/null | import test/seeds
    printf '%s\n' 'FROM test/tools' 'COPY --from=test/seeds / /' 'RUN for t in mvn npm; do printf "#!/bin/sh\nexit 97\n" >/usr/local/bin/$t; chmod +x /usr/local/bin/$t; done' |
      docker build -q --network=host -t test/build - >"$folder/build.log" 2>&1 || { cat "$folder/build.log" >&2; fail "docker build failed"; }
  fi
  note "bases: JDK and Go"
  tar -C "$JAVA_HOME" -h --transform 's:^\.:opt/java/openjdk:' -cf - . | import test/jdk
  tar -C "$("$GO" env GOROOT)" --transform 's:^\.:usr/local/go:' -cf - . | import test/go
}

build_image() {
  local log=$folder/build.log
  note "docker build"
  docker build --network=host --build-arg BUILD_BASE=test/build --build-arg RUN_BASE=test/debian --build-arg JDK=test/jdk --build-arg GO=test/go \
    -t atoll "$root" >"$log" 2>&1 || { tail -n 40 "$log" >&2; fail "docker build failed"; }
  note "the image has $(($(docker image inspect -f '{{.Size}}' atoll) >> 20)) MiB"
}

# --- Behaviour --------------------------------------------------------------------------------------------------------------

inside() { nsenter --net="/run/netns/$name" "$@"; }
api() { # PATH [CURL-OPTION...]
  inside curl -sS --max-time 120 -H "Authorization: Bearer $ATOLL_API_KEY" -H 'Content-Type: application/json' "${@:2}" "$ATOLL_URL$1"
}
run_code() { api /v1/code_exec -d "$1"; }
health() { [[ $(docker inspect -f '{{.State.Health.Status}}' atoll) == healthy ]]; }
await_health() { until_true 120 health || fail "the container is not healthy after 120 s: $(docker inspect -f '{{json .State}}' atoll)"; }
start_container() { docker run -d --name atoll --privileged -v atoll-data:/var/lib/atoll -p 127.0.0.1:8080:8080 atoll --pool.depth 1 >/dev/null; }
read_key() { local words; words=$(docker exec atoll atoll env); unset ATOLL_URL ATOLL_API_KEY; eval "$words"; }
an_execution_runs() { api "/v1/executions?state=running" | jq -e '.items | length > 0'; }
# The launcher's shell collects its own once a second; older ones are left.
no_zombies() { [[ -z $(docker exec atoll ps -eo stat=,etimes=,args= | awk '/^Z/ && $2 > 3') ]]; }

behaviour() {
  local answer sandbox execution record key begin status

  answer=$(docker run --rm atoll 2>&1 || true)
  check "without --privileged one line says so" "atoll: this container may not make sandboxes (remedy: 'docker run --privileged …', or 'docker compose up')" "$answer"

  begin=$SECONDS
  start_container
  await_health
  note "healthy $((SECONDS - begin)) s after docker run"
  read_key
  check "atoll env names the published address" http://127.0.0.1:8080 "$ATOLL_URL"
  check "the start-up cache of Java is good" good \
    "$(docker exec atoll bash -c 'source "$ATOLL_BUILDS"; source /opt/atoll/scripts/run.sh; "$JAVA_HOME/bin/java" -XX:AOTMode=on -XX:AOTCache="$server/server.aot" $(java_options) -cp "$(class_path)" atoll.server.Main --help >/dev/null 2>/tmp/said && echo good || cat /tmp/said')"

  answer=$(run_code '{"tool":"code_exec","code":"x = 1 + 1\nprint(x)"}')
  sandbox=$(jq -r .sandbox_id <<<"$answer")
  execution=$(jq -r .execution_id <<<"$answer")
  check "the reference example prints 2" 2 "$(jq -r .output <<<"$answer")"
  check "the sandbox has an id" yes "$([[ $sandbox == sb-exec-* ]] && echo yes || echo "$answer")"
  check "state is there on the next call" 2 "$(run_code "{\"code\":\"print(x)\",\"sandbox_id\":\"$sandbox\"}" | jq -r .output)"
  answer=$(run_code '{"language":"python","code":"import sys\nprint(sum(range(10)), sys.version_info[0])"}')
  check "Python runs" "45 3" "$(jq -r .output <<<"$answer")"
  answer=$(run_code '{"language":"python","timeout_seconds":60,"code":"b = bytearray(600 << 20)\nprint(len(b))"}')
  check "memory is limited in the container too" out_of_memory "$(jq -r .exit_reason <<<"$answer")"
  check "the CLI runs in the container" 42 "$(docker exec atoll atoll exec 'print(6*7)' -l python 2>/dev/null)"
  check "a wrong key is refused" 401 "$(ATOLL_API_KEY=wrong api /v1/sandboxes -o /dev/null -w '%{http_code}')"
  check "nothing is left unreaped" yes "$(until_true 15 no_zombies && echo yes || docker exec atoll ps -ef)"
  record=$(api "/v1/executions/$execution" | jq -cS '{execution_id, sandbox_id, stdout, exit_reason, duration_ms}')
  key=$ATOLL_API_KEY

  note "docker restart"
  docker restart -t 30 atoll >/dev/null
  await_health
  read_key
  check "the key is the same after a restart" "$key" "$ATOLL_API_KEY"
  check "the execution's record survives a restart" "$record" "$(api "/v1/executions/$execution" | jq -cS '{execution_id, sandbox_id, stdout, exit_reason, duration_ms}')"
  answer=$(api "/v1/sandboxes/$sandbox")
  check "a sandbox of before has ended, with a reason" "ended lost" "$(jq -r '"\(.state) \(.end_reason)"' <<<"$answer")"
  echo "     ($(jq -r .end_detail <<<"$answer"))"
  answer=$(run_code "{\"code\":\"print(x)\",\"sandbox_id\":\"$sandbox\"}")
  check "a call to it says so" yes "$(jq -e '.error.code' <<<"$answer" >/dev/null && echo yes || echo "$answer")"
  check "a new sandbox runs after the restart" 2 "$(run_code '{"tool":"code_exec","code":"x = 1 + 1\nprint(x)"}' | jq -r .output)"

  note "docker kill, as in a crash"
  docker kill atoll >/dev/null
  docker start atoll >/dev/null
  await_health
  check "a new sandbox runs after a crash of the container" 2 "$(run_code '{"tool":"code_exec","code":"x = 1 + 1\nprint(x)"}' | jq -r .output)"

  # With a call under way, which must not hold it up.
  run_code '{"language":"python","code":"while True: pass","timeout_seconds":100}' >"$folder/cut-off" 2>&1 &
  local call=$!
  until_true 20 an_execution_runs || fail "the call under way is not on record: $(api "/v1/executions?state=running")"
  begin=$SECONDS
  docker stop -t 25 atoll >/dev/null
  status=$((SECONDS - begin))
  wait "$call" || true
  note "docker stop took $status s"
  check "docker stop ends within 20 s" yes "$([[ $status -le 20 ]] && echo yes || echo "$status s")"
  check "what is logged at a stop tells the sandboxes' end" yes "$(docker logs atoll 2>&1 | grep -q '^stopping: the sandboxes end with this container' && echo yes || docker logs --tail 20 atoll 2>&1)"
  check "docker stop is a clean end" 0 "$(docker inspect -f '{{.State.ExitCode}}' atoll)"
  check "the container left no control group" "" "$(left_groups | grep -F "$(docker inspect -f '{{.Id}}' atoll)" || true)"

  docker rm atoll >/dev/null
  note "a new container with the same volume"
  start_container
  await_health
  read_key
  check "a new container has the volume's key" "$key" "$ATOLL_API_KEY"
  check "a new container has the volume's records" "$record" "$(api "/v1/executions/$execution" | jq -cS '{execution_id, sandbox_id, stdout, exit_reason, duration_ms}')"
  docker stop -t 25 atoll >/dev/null
}

note "dockerd $(dockerd --version | sed 's/^Docker version \([^,]*\).*/\1/')"
start_docker -- --bridge=none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false
make_bases
build_image
stop_docker

ip netns add "$name"
inside ip link set lo up
start_docker nsenter --net="/run/netns/$name" --
behaviour

clean_up
trap - EXIT
check "no process is left" "" "$(left_processes)"
check "no mount is left" "" "$(left_mounts)"
check "no control group is left" "" "$(left_groups)"
check "no network namespace is left" no "$([[ -e /run/netns/$name ]] && echo yes || echo no)"
check "no network device is left" "$links_before" "$(links)"
check "no packet filter rule is left" "$rules_before" "$(rules)"
if [[ $keep == no ]]; then check "no file is left" no "$([[ -e $folder ]] && echo yes || echo no)"; fi
echo "container: $passed passed, $failed failed"
[[ $failed -eq 0 ]]
