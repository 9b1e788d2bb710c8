# What unit.sh runs beside its systemd, in the Debian of that.
set -euo pipefail

passed=0 failed=0
check() { # NAME EXPECTED GOT
  if [[ $3 == "$2" ]]; then
    passed=$((passed + 1)); echo "ok   $1"
  else
    failed=$((failed + 1)); printf 'FAIL %s\n  got:      %s\n  expected: %s\n' "$1" "$3" "$2"
  fi
}
atoll() { /opt/atoll/bin/atoll "$@"; }
# until_true SECONDS COMMAND...: whether it succeeds within that time.
until_true() {
  local limit=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS > limit)); then return 1; fi
    read -rt 0.2 <> <(:) || true
  done
}
value() { systemctl show --property "$1" --value atoll; }
# Once systemd has started it again: another main process, and the server answers.
restarted() { [[ $(value MainPID) != 0 && $(value MainPID) != "$1" ]] && atoll status; }
said() { timeout 120 "/opt/atoll/bin/atoll" exec "$1" -l python -s kept 2>/dev/null || true; }
words() {
  systemctl status --no-pager --lines 0 atoll || true
  tail -n 20 /var/lib/atoll/log/*.log || true
}

booted() { [[ $(systemctl is-system-running) =~ ^(running|degraded)$ ]]; }
until_true 120 booted || { echo "FAIL systemd is $(systemctl is-system-running)"; systemctl list-jobs --no-pager; exit 1; }
cp /opt/atoll/deploy/systemd/atoll.service /etc/systemd/system/
systemctl daemon-reload
check "the unit is clean" "" "$(systemd-analyze verify --man=no atoll.service 2>&1 | grep atoll || true)"
echo 'pool.depth=1' >/tmp/server.conf
install -d -m 0755 /var/lib/atoll && cp /tmp/server.conf /var/lib/atoll/server.conf
echo 'ATOLL_OPTIONS="--port 8095"' >/etc/default/atoll
began=$SECONDS
systemctl enable --now --quiet atoll
until_true 180 atoll status || { echo "FAIL it does not start"; words; exit 1; }
echo "     from start to its first answer: $((SECONDS - began)) s"
check "it is active, on the port of its options" "active http://127.0.0.1:8095" "$(value ActiveState) $(atoll env | sed -n 's/.*ATOLL_URL=\([^ ]*\).*/\1/p')"
atoll create --name kept --template python >/dev/null
check "Python runs" 42 "$(said 'x = 41; print(x + 1)')"

main=$(value MainPID)
kill -KILL "$(cut -d' ' -f1 /run/atoll-*/server.pid)"
check "it is started again after kill -9 of the server" yes "$(until_true 180 restarted "$main" && echo yes || words)"
check "and the sandbox went on" 42 "$(said 'print(x + 1)')"
main=$(value MainPID)
kill -KILL "$main"
check "it is started again after kill -9 of its main process" yes "$(until_true 180 restarted "$main" && echo yes || words)"
check "and the sandbox went on" 42 "$(said 'print(x + 1)')"
check "systemd counts both" 2 "$(value NRestarts)"

systemctl stop atoll
check "it stops cleanly" "inactive success" "$(value ActiveState) $(value Result)"
check "with server and engine" 3 "$(atoll status >/dev/null; echo $?)"
systemctl start atoll
check "it starts again" yes "$(until_true 180 atoll status && echo yes || words)"
check "and the sandbox went on" 42 "$(said 'print(x + 1)')"
check "in one life" 1 "$(atoll runs kept --json | grep -c run_id)"
systemctl stop atoll
check "down --all ends what is left" 0 "$(atoll down --all >/dev/null; echo $?)"
check "no sandbox is left" "" "$(grep -lzx 'runsc-sandbox' /proc/[0-9]*/cmdline 2>/dev/null || true)"
echo "unit: $passed passed, $failed failed"
[[ $failed -eq 0 ]]
