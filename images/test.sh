#!/usr/bin/env bash
# Tests the images: what is in them, seen from inside a sandbox; that a build can be
# repeated bit by bit; that a killed build leaves nothing that looks like an image.
#
#   test.sh           contents of all images, repeat and kill with the Python recipe
#   test.sh --all     repeat with every recipe
#   test.sh --quick   contents only
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
passed=0 failed=0
folder=$(mktemp -d "${TMPDIR:-/tmp}/atoll-images-test.XXXXXX")
# apt's own user reads in it.
chmod 0755 "$folder"
build=
runsc=$("$here/../node/runsc/build.sh")/runsc

clean_up() {
  if [[ -n $build ]]; then
    # What it started ends with it.
    kill -9 "$build" 2>/dev/null || true
    wait "$build" 2>/dev/null || true
  fi
  umount "$folder/root/null-netns" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT

check() { # NAME EXPECTED GOT
  if [[ $3 == "$2" ]]; then
    passed=$((passed + 1)); echo "ok   $1"
  else
    failed=$((failed + 1)); printf 'FAIL %s\n  got:      %s\n  expected: %s\n' "$1" "$3" "$2"
  fi
}

# inside IMAGE COMMAND...: runs it as the image's user in its home, in a sandbox without network; prints both streams.
inside() {
  local image=$1 bundle id argument arguments
  shift
  # jq takes some of the command's own options for its own, so the command goes in as JSON.
  arguments=$(for argument in "$@"; do jq -n --arg argument "$argument" '$argument'; done | jq -s .)
  id=atoll-image-test-$(printf '%05d%05d' "$RANDOM" "$RANDOM")
  bundle=$folder/$id
  mkdir -p "$folder/root" "$folder/empty" "$folder/overlay" "$bundle"
  jq -n --arg empty "$folder/empty" --arg image "$image" --arg overlay "dir=$folder/overlay" \
    --slurpfile metadata "${image%.erofs}.json" --argjson arguments "$arguments" '
    ($metadata[0]) as $m
    | ["CAP_CHOWN","CAP_DAC_OVERRIDE","CAP_FOWNER","CAP_FSETID","CAP_KILL","CAP_SETGID","CAP_SETUID","CAP_SETPCAP","CAP_SYS_CHROOT","CAP_AUDIT_WRITE"] as $caps
    | {
      ociVersion: "1.2.0", hostname: "sandbox", root: {path: $empty},
      process: {args: $arguments, cwd: $m.workdir, user: {uid: $m.uid, gid: $m.gid}, noNewPrivileges: false,
                env: ($m.env | to_entries | map("\(.key)=\(.value)")), capabilities: {bounding: $caps, permitted: [], effective: []}},
      mounts: [{destination: "/proc", type: "proc", source: "proc"}, {destination: "/tmp", type: "tmpfs", source: "tmpfs", options: ["size=64m", "mode=1777"]}],
      annotations: {"dev.gvisor.spec.rootfs.source": $image, "dev.gvisor.spec.rootfs.type": "erofs",
                    "dev.gvisor.spec.rootfs.overlay": $overlay, "dev.gvisor.spec.rootfs.options": "size=256m"},
      linux: {namespaces: (["pid", "mount", "ipc", "uts", "network"] | map({type: .}))}
    }' >"$bundle/config.json"
  "$runsc" --root="$folder/root" --network=none --ignore-cgroups --sidecar-usage-policy=STRICT --host-settings=ignore \
    --allow-suid --overlay2="root:dir=$folder/overlay" run --bundle="$bundle" "$id" </dev/null 2>&1 || true
}

contents_of_every_image() {
  local image=$1 name=$2
  check "$name: runs as user in /home/user" "1000 user /home/user /home/user" "$(inside "$image" bash -c 'echo "$(id -u) $(id -un) $PWD $HOME"')"
  check "$name: user can write its home" "ok" "$(inside "$image" bash -c 'echo ok >f && cat f')"
  check "$name: sudo needs no password" "0" "$(inside "$image" sudo -n id -u)"
  check "$name: sudo and su are the only SUID programs" $'/usr/bin/su\n/usr/bin/sudo' \
    "$(inside "$image" sudo -n bash -c 'find / -xdev -type f -perm /6000 2>/dev/null | sort')"
  check "$name: locale is C.UTF-8" "LANG=C.UTF-8 UTF-8" "$(inside "$image" bash -c 'echo "$(locale 2>/dev/null | grep ^LANG=) $(locale charmap)"')"
  check "$name: localhost resolves without a network" "yes" "$(inside "$image" bash -c 'getent hosts localhost >/dev/null && echo yes')"
  check "$name: an unknown name fails at once" "fast" \
    "$(inside "$image" bash -c 'SECONDS=0; getent hosts example.invalid; [ $SECONDS -le 2 ] && echo fast || echo "took $SECONDS s"')"
  check "$name: has the tools that shell code uses" "" \
    "$(inside "$image" bash -c 'for t in curl tar gzip unzip zip ps grep sed awk find less file xargs; do command -v $t >/dev/null || echo "$t missing"; done')"
  check "$name: has the place where the agent is mounted" "yes" "$(inside "$image" bash -c 'test -d /.atoll && echo yes')"
  check "$name: no caches and lists in it" "0" "$(inside "$image" bash -c 'find /var/lib/apt/lists /var/cache/apt /usr/share/man -type f 2>/dev/null | wc -l')"
  check "$name: metadata has the file's digest" "$(sha256sum <"$image" | cut -d' ' -f1)" "$(jq -r .digest "${image%.erofs}.json")"
  check "$name: metadata has the file's size" "$(stat -c %s "$image")" "$(jq -r .size_bytes "${image%.erofs}.json")"
  check "$name: metadata names bash's version as dpkg does" "$(jq -r .packages.debian.bash "${image%.erofs}.json")" \
    "$(inside "$image" dpkg-query -W -f '${Version}' bash)"
}

contents_of_python() {
  local image=$1
  check "python: packages import" "2.34.2 0.28.1 2.14.4 a" "$(inside "$image" python3 -c '
import requests, httpx, pydantic, bs4
print(requests.__version__, httpx.__version__, pydantic.VERSION, bs4.BeautifulSoup("<p>a</p>", "html.parser").p.text)')"
  check "python: scripts of packages run, from the PATH" "ok" "$(inside "$image" sh -c 'idna --help >/dev/null 2>&1 || normalizer --version >/dev/null && echo ok; ! grep -rlE "^#!.*/(root|home|opt)/" /usr/local/bin')"
  check "python: pydantic's compiled core works" "x=3" "$(inside "$image" python3 -c '
import pydantic
class M(pydantic.BaseModel):
    x: int
print(M(x="3"))')"
  check "python: no module is compiled again at import" "[]" "$(inside "$image" sudo -n python3 -c '
import json, pathlib, asyncio, requests, pydantic
stale = [str(p) for p in pathlib.Path("/usr").rglob("*.pyc") if p.stat().st_mtime > 1767225600]
print(stale)')"
  check "python: pip is there and not locked" "0" "$(inside "$image" bash -c 'ls /usr/lib/python3*/EXTERNALLY-MANAGED 2>/dev/null | wc -l; python3 -m pip --version >/dev/null || echo no pip')"
  check "python: a virtual environment can be made" "ok" "$(inside "$image" bash -c 'python3 -m venv v >/dev/null && v/bin/python -c "print(\"ok\")"')"
}

contents_of_typescript_bun() {
  local image=$1 code='
import { z } from "zod"; import * as cheerio from "cheerio"; import { chunk } from "lodash-es"; import { format } from "date-fns";
const n: number = z.number().parse(4);
console.log(n, cheerio.load("<p>a</p>")("p").text(), chunk([1, 2, 3], 2).length, format(new Date(2026, 0, 2), "yyyy-MM-dd"));'
  check "typescript-bun: bun has the pinned version" "1.4.5" "$(inside "$image" bun --version)"
  check "typescript-bun: packages import from the home folder" "4 a 2 2026-01-02" "$(inside "$image" bash -c 'echo "$1" >t.ts && bun run t.ts' bash "$code")"
  check "typescript-bun: packages import from elsewhere" "4 a 2 2026-01-02" "$(inside "$image" bash -c 'cd /tmp && echo "$1" >t.ts && bun run t.ts' bash "$code")"
  check "typescript-bun: packages can be required" "function" "$(inside "$image" bun -e 'console.log(typeof require("zod").z.string)')"
}

repeated_build_gives_the_same_bits() {
  local name=$1 first second
  first=$(sha256sum <"$("$here/build.sh" "$name")")
  second=$(sha256sum <"$(ATOLL_CACHE=$folder/cache "$here/build.sh" "$name" 2>"$folder/build.log")") || { cat "$folder/build.log"; false; }
  check "$name: a second build gives the same digest" "$first" "$second"
  rm -rf "$folder/cache"
}

# Kills the build of the Python image with SIGKILL, in its middle, and lets the next one clean up.
killed_build_leaves_no_half_image() {
  ATOLL_CACHE=$folder/cache "$here/build.sh" python >/dev/null 2>"$folder/build.log" &
  build=$!
  local limit=$((SECONDS + 240))
  until compgen -G "$folder/cache/images/.work-python.*/root/usr/bin/*" >/dev/null; do
    ((SECONDS < limit)) || { cat "$folder/build.log"; echo "FAIL the build wrote nothing within 240 s"; exit 1; }
    read -rt 0.05 <> <(:) || true
  done
  kill -9 "$build"
  wait "$build" 2>/dev/null || true
  build=
  # Its namespaces end with it, a moment later.
  limit=$((SECONDS + 10))
  while [[ -n $(processes_below "$folder/cache") ]] && ((SECONDS < limit)); do read -rt 0.05 <> <(:) || true; done
  check "killed build: no process of it is left" "" "$(processes_below "$folder/cache")"
  check "killed build: no mount of it is left" "" "$(grep -F "$folder/cache" /proc/self/mountinfo || true)"
  check "killed build: nothing that looks like an image" "" "$(find "$folder/cache" -maxdepth 2 -name '*.erofs' -o -maxdepth 2 -name '*.json')"
  check "killed build: its work folder is there until the next build" "1" "$(find "$folder/cache/images" -maxdepth 1 -name '.work-*' | wc -l)"
  # The next build runs in the same cache: see the caller.
}

processes_below() {
  local process
  for process in /proc/[0-9]*; do
    if [[ $(readlink "$process/root" "$process/cwd") == *"$1"* ]] || tr '\0' ' ' <"$process/cmdline" | grep -qF "$1"; then
      [[ ${process#/proc/} == "$$" || ${process#/proc/} == "$BASHPID" ]] || echo "${process#/proc/}"
    fi
  done 2>/dev/null # processes that end while they are looked at
}

agent_image_holds_agent_and_kernels() {
  local first
  printf '#!/bin/sh\n' >"$folder/agent"
  first=$("$here/build-agent.sh" "$folder/agent" "$folder/a.erofs")
  "$here/build-agent.sh" "$folder/agent" "$folder/b.erofs" >/dev/null
  check "agent image: two builds are the same" "$(sha256sum <"$first")" "$(sha256sum <"$folder/b.erofs")"
  mkdir "$folder/mount"
  mount -t erofs -o loop,ro "$first" "$folder/mount"
  check "agent image: the agent is at its place and executable" "755" "$(stat -c %a "$folder/mount/bin/atoll-agent")"
  check "agent image: no tests in it" "" "$(find "$folder/mount" -iname '*test*')"
  check "agent image: the Python kernel is at its place" "yes" "$(test -f "$folder/mount/kernels/python/kernel.py" && echo yes)"
  umount "$folder/mount"
}

for recipe in "$here"/recipes/*/; do
  name=$(basename "$recipe")
  image=$("$here/build.sh" "$name")
  contents_of_every_image "$image" "$name"
  "contents_of_${name//-/_}" "$image"
  check "$name: the sandboxes left nothing in the overlay's folder" "" "$(ls -A "$folder/overlay")"
done
agent_image_holds_agent_and_kernels
if [[ ${1:-} != --quick ]]; then
  killed_build_leaves_no_half_image
  repeated_build_gives_the_same_bits python
fi
if [[ ${1:-} == --all ]]; then repeated_build_gives_the_same_bits typescript-bun; fi

echo "images: $passed passed, $failed failed"
[[ $failed -eq 0 ]]
