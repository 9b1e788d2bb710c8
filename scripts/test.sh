# `./atoll test`, `bench` and `fmt`. Sourced by the launcher.

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2

# name | in CI or only with --all | function. In this order; a later suite is added as a line and a function, or as a script's path.
suites=(
  "launcher|ci|$root/scripts/test-launcher.sh"
  "Go checks|ci|go_checks"
  "Go tests|ci|go_tests"
  "agent in gVisor|ci|agent_gvisor_tests"
  "builds|ci|builds_tests"
  "Docker driver|ci|docker_tests"
  "runsc|ci|runsc_tests"
  "Python kernel|ci|python_kernel_tests"
  "JS kernels|ci|js_kernel_tests"
  "Go kernel|ci|go_kernel_tests"
  "Java|ci|java_tests"
  "images|ci|images_tests"
  "native API|ci|native_api_tests"
  "races|ci|races_tests"
  "MCP|ci|mcp_tests"
  "E2B|ci|e2b_tests"
  "browser|all|browser_tests"
  "cgroup v2|ci|cgroup2_tests"
  "soak|all|soak_tests"
  "container image|all|$root/deploy/container/test.sh"
  "distribution|all|$root/deploy/dist/test.sh"
  "systemd unit|all|$root/deploy/dist/unit.sh"
)

go_checks() {
  (cd "$root/node" && "$GO" vet ./... && "$GO" run "$staticcheck" ./... &&
    { [[ -z $("$(dirname "$GO")/gofmt" -l cmd internal ../kernels/go) ]] || { echo "not formatted (remedy: ./atoll fmt):"; "$(dirname "$GO")/gofmt" -l cmd internal ../kernels/go; false; }; })
  (cd "$root/kernels/go" && "$GO" vet . && "$GO" run "$staticcheck" .)
}
go_tests() { (cd "$root/node" && go_test -race ./...); }

# `go test`, and once more, alone, what failed, as long as that is not much: machines that test are shared, and a busy one may break what
# depends on when something happens. Each such failure stays in the log and is a bug until its cause is known.
go_test() {
  local log names
  log=$(mktemp)
  if "$GO" test "$@" 2>&1 | tee "$log"; then rm -f "$log"; return 0; fi
  # One that hung until the whole package ended is named otherwise.
  names=$(sed -n -e 's/^--- FAIL: \([^ ]*\) .*/\1/p' -e 's/^\t\t\(Test[^ /]*\) ([0-9hms.]*)$/\1/p' "$log" | sort -u)
  rm -f "$log"
  [[ -n $names && $(wc -l <<<"$names") -le 3 ]] || return 1
  echo "== once more, alone: ${names//$'\n'/, }"
  "$GO" test -count=1 "${@:1:$#-1}" -run "^(${names//$'\n'/|})\$" "${@:$#}"
}
# The agent's tests on a machine of its own; here the quick ones of what gVisor does in its own way. With --all: all of them.
agent_gvisor_tests() {
  local only='^TestGvisor_(files_are|full_disk|hostile_processes|fork_bombs|root_that|stopped|many_small|limits|foreground)'
  only+='|^Test(ForkBomb|Limits|Signal|Files)_|^TestTerminal_(resize|key|job|signal)|^TestProcess_(time_limit|kill_of)'
  (cd "$root/node" && go_test -tags gvisor $([[ $all == yes ]] || echo -run "$only") ./internal/agent)
}
# Dockerfiles, built in sandboxes on the images of recipes.
builds_tests() { (cd "$root/node" && ATOLL_IMAGE_BUILDER=$node/atoll-image go_test -count=1 -tags gvisor ./internal/build); }
# The driver's contract, and the engine on it, with a Docker Engine that the tests start. Where none can run, they say so and are left out.
docker_tests() {
  (cd "$root/node" && { [[ $all == no ]] || export ATOLL_DOCKER_REQUIRED=yes; } &&
    go_test -count=1 -v -tags docker -run Docker ./internal/driver/docker && go_test -count=1 -v -tags docker -run Docker ./cmd/atoll-engine)
}
# Go does not see that a patch has changed, and would tell an old result.
runsc_tests() { (cd "$root/node/runsc" && "$GO" vet ./... && go_test -count=1 ./...); }

# A failed test is tried once more and shown as RERUN, see go_test.
pytest_suite() { # FOLDER [ARGUMENT...]
  local venv
  venv=$(venv_with "$1/requirements.txt") && (cd "$1" && "$venv/bin/python" -m pytest -p no:cacheprovider --reruns 1 -rR "${@:2}")
}
python_kernel_tests() { pytest_suite "$root/kernels/python/tests"; }
js_kernel_tests() { pytest_suite "$root/kernels/js/tests"; }
go_kernel_tests() {
  (cd "$root/kernels/go" && "$GO" test .)
  ATOLL_GO_KERNEL=$node/atoll-go-kernel pytest_suite "$root/kernels/go/tests"
}
native_api_tests() { pytest_suite "$root/conformance/native" $([[ $all == no ]] || echo --all); }
races_tests() { python3 "$root/conformance/races/races.py" $([[ $all == no ]] || echo --all); }
soak_tests() { python3 "$root/conformance/soak/soak.py" --all; }

e2b_tests() { pytest_suite "$root/conformance/e2b" $([[ $all == no ]] || echo --all); }
# The dashboard in Debian's Chromium; ATOLL_SCREENSHOTS names a folder for pictures of every page.
browser_tests() {
  debian_packages+=("chromium:chromium")
  install_packages
  pytest_suite "$root/conformance/browser"
}
mcp_tests() { pytest_suite "$root/conformance/mcp"; }
cgroup2_tests() { "$root/node/test/vm/test.sh" $([[ $all == no ]] || echo --all); }

java_tests() { (cd "$root" && mvn -B -ntp verify -Dsurefire.rerunFailingTestsCount=1); }
images_tests() { "$root/images/test.sh" $([[ $all == no ]] || echo --all); }

# The lines in which the runners themselves sum up.
summary_lines() {
  grep -E '^\[?(INFO|ERROR|WARNING)?\]? ?Tests run:.*[0-9]$|^=+ .*(passed|failed|error|no tests ran).* =+$|^ *(ok|FAIL|---) |^FAIL|passed, [0-9]+ failed$|BUILD (SUCCESS|FAILURE)' "$1" | tail -n 40 || true
}

# Beyond what `up` needs: other machines to test on, other databases to be held to the same contract.
test_packages=("dockerd:docker.io" "qemu-system-x86_64:qemu-system-x86" "busybox:busybox-static" "cpio:cpio" "/usr/lib/postgresql/*/bin/initdb:postgresql" "sudo:sudo")

most_seconds_to_try_again=240

suite() { # NAME FUNCTION: shows its output and keeps it; the status is in suite_status, since `set -e` would not count inside a condition
  set +e
  (set -e; $2) 2>&1 | tee "$logs/${1// /-}.log"
  suite_status=${PIPESTATUS[0]}
  set -e
}

run_tests() {
  local only=("$@") entry name when what begin status failed=() table=() logs
  require_root
  debian_packages+=("${test_packages[@]}")
  install_packages
  require_jdk
  require_go
  make_user
  build_all
  logs=$cache/log/test
  mkdir -p "$logs"
  export ATOLL_CACHE=$cache ATOLL_RUNSC=$runsc ATOLL_AGENT_IMAGE=$agent_image GO JAVA_HOME
  for entry in "${suites[@]}"; do
    IFS='|' read -r name when what <<<"$entry"
    [[ $when == ci || $all == yes ]] || continue
    [[ ${#only[@]} -eq 0 || " ${only[*]} " == *" $name "* ]] || continue
    begin=$SECONDS status=ok
    printf '\n== %s\n' "$name"
    suite "$name" "$what"
    # As a failed test is tried once more, so is a short suite whose own runner does not do that; long ones all do.
    if [[ $suite_status -ne 0 && $((SECONDS - begin)) -le $most_seconds_to_try_again ]]; then
      cp "$logs/${name// /-}.log" "$logs/${name// /-}.first.log"
      printf '\n== %s, once more as a whole (the first: %s)\n' "$name" "$logs/${name// /-}.first.log"
      suite "$name" "$what"
      status="ok (2nd)"
    fi
    [[ $suite_status -eq 0 ]] || { status=FAILED; failed+=("$name"); }
    table+=("$(printf '%-16s %-8s %4d s' "$name" "$status" $((SECONDS - begin)))")
    say "== $name: $status after $((SECONDS - begin)) s"
  done
  [[ ${#table[@]} -gt 0 ]] || fail "no such suite: ${only[*]} (expected: one of$(printf ' "%s"' "${suites[@]%%|*}"))"
  printf '\n== The runners'\'' own summaries\n'
  for entry in "${suites[@]}"; do
    name=${entry%%|*}
    if [[ " ${table[*]} " == *"$name "* && -f $logs/${name// /-}.log ]]; then
      say "-- $name"
      summary_lines "$logs/${name// /-}.log"
    fi
  done
  printf '\n== Suites\n'
  printf '%s\n' "${table[@]}"
  printf 'suites: %d passed, %d failed\n' $((${#table[@]} - ${#failed[@]})) ${#failed[@]}
  [[ ${#failed[@]} -eq 0 ]] || fail "FAILED: ${failed[*]} (logs: $logs)"
}

bench() {
  local venv
  require_root
  install_packages
  require_jdk
  require_go
  make_user
  build_all
  venv=$(venv_with "$root/bench/requirements.txt" "$root/conformance/native/requirements.txt" "$root/conformance/e2b/requirements.txt")
  export ATOLL_CACHE=$cache GO JAVA_HOME
  exec "$venv/bin/python" "$root/bench/bench.py" --cache "$cache" "$@"
}

format() {
  require_jdk
  require_go
  (cd "$root/node" && "$(dirname "$GO")/gofmt" -w cmd internal runsc ../kernels/go)
  (cd "$root" && mvn -B -ntp spotless:apply)
}
