# What test.sh runs on the bare Debian: inside.sh FOLDER.
set -euo pipefail

home=$1
passed=0 failed=0
check() { # NAME EXPECTED GOT
  if [[ $3 == "$2" ]]; then
    passed=$((passed + 1)); echo "ok   $1"
  else
    failed=$((failed + 1)); printf 'FAIL %s\n  got:      %s\n  expected: %s\n' "$1" "$3" "$2"
  fi
}
atoll() { "$home/bin/atoll" "$@"; }

check "what builds Atoll is not there" "" "$(for tool in java javac go mvn gcc npm python3 curl jq ip; do type -P "$tool" || true; done)"
tar -C "$home" --strip-components 1 -xzf /test/archive.tar.gz
check "its licences are there" yes "$([[ -s $home/NOTICE && -s $home/LICENSE && -n $(find "$home/licenses" -type f) && -d $home/java/legal ]] && echo yes)"
check "it tells its version" "$(<"$home/VERSION")" "$(atoll version)"
check "status says that nothing is there" 3 "$(atoll status >/dev/null; echo $?)"
check "what needs the source says so" "atoll: 'test' needs Atoll's source (remedy: call ./atoll in a clone)" "$(atoll test 2>&1 || true)"

began=$SECONDS
atoll up </dev/null
took=$((SECONDS - began))
echo "     up to the first answer: $took s"
check "the first answer comes in under 2 minutes" yes "$([[ $took -lt 120 ]] && echo yes || echo "$took s")"
check "Java's start-up cache is good where the archive is unpacked" "" \
  "$(command=test; source "$home/scripts/common.sh"; source "$home/scripts/build.sh"; source "$home/scripts/run.sh"; brought_builds
    "$JAVA_HOME/bin/java" -XX:AOTMode=on -XX:AOTCache="$server/server.aot" $(java_options) -cp "$(class_path)" atoll.server.Main --help 2>&1 >/dev/null)"
check "status says that it runs" 0 "$(atoll status >/dev/null; echo $?)"
check "Python runs" 42 "$(atoll exec 'print(6*7)' -l python 2>/dev/null)"
atoll create --name kept --template python >/dev/null
atoll exec 'x = 41' -l python -s kept 2>/dev/null
atoll down
check "status says that it does not run" 3 "$(atoll status >/dev/null; echo $?)"
atoll up >/dev/null
check "a sandbox goes on over down and up" 42 "$(atoll exec 'print(x + 1)' -l python -s kept 2>/dev/null)"
check "nothing is written into the archive's folder" "" "$(find "$home" -newer "$home/../../test/archive.tar.gz" -newermt "@$(stat -c %Z /test/inside.sh)" -type f | head)"
atoll down --all

check "no process of it is left" "" "$(for file in /proc/[0-9]*/cmdline; do tr '\0' ' ' <"$file" 2>/dev/null | grep -F "$home/" || true; done)"
echo "distribution: $passed passed, $failed failed"
[[ $failed -eq 0 ]]
