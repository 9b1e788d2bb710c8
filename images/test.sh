#!/usr/bin/env bash
# Tests the images: what is in them, seen from inside a sandbox; that a build can be
# repeated bit by bit; that a killed build leaves nothing that looks like an image.
#
#   test.sh              contents of all images, repeat and kill with the Python recipe
#   test.sh --all        repeat with the recipes too that prepare something
#   test.sh --quick      contents only
#   test.sh --only NAME  contents of one
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

# What every image promises, asked in one sandbox: a line "name<TAB>answer" each.
questions='
say() { printf "%s\t%s\n" "$1" "$2"; }
say "runs as user in /home/user" "$(id -u) $(id -un) $PWD $HOME"
say "user can write its home" "$(echo ok >f && cat f)"
say "sudo needs no password" "$(sudo -n id -u)"
say "sudo and su are the only SUID programs" "$(sudo -n find / -xdev -type f -perm /6000 2>/dev/null | sort | tr "\n" " ")"
say "locale is C.UTF-8" "$(locale 2>/dev/null | grep ^LANG=) $(locale charmap)"
say "localhost resolves without a network" "$(getent hosts localhost >/dev/null && echo yes)"
SECONDS=0; getent hosts example.invalid
say "an unknown name fails at once" "$( ((SECONDS <= 5)) && echo fast || echo "took $SECONDS s")"
say "has the tools that shell code uses" "$(for t in curl tar gzip unzip zip ps grep sed awk find less file xargs; do command -v $t >/dev/null || echo "$t missing"; done)"
say "has the place where the agent is mounted" "$(test -d /.atoll && echo yes)"
say "no caches and lists in it" "$(find /var/lib/apt/lists /var/cache/apt /usr/share/man /root/.npm /root/.cache /tmp -type f 2>/dev/null | wc -l)"
say "nothing left of the build" "$(find / -xdev \( -name prepare.sh -o -name "*.work-*" \) -not -path "/proc/*" 2>/dev/null | tr "\n" " ")"
say "bash version as dpkg says" "$(dpkg-query -W -f "\${Version}" bash)"
say "interpreters" "$(for i in $1; do test -x "$i" || echo "$i missing"; done)"
'

contents_of_every_image() {
  local image=$1 name=$2 metadata=${1%.erofs}.json answers
  # The agent's image, with the kernels, is not mounted here.
  answers=$(inside "$image" bash -c "$questions" bash "$(jq -r '[.kernels[].argv[0] | select(startswith("/.atoll/") | not)] | unique | join(" ")' "$metadata")")
  answer() { awk -F '\t' -v name="$1" '$1 == name { print $2 }' <<<"$answers"; }
  expect() { check "$name: $1" "$2" "$(answer "$1")"; }
  expect "runs as user in /home/user" "1000 user /home/user /home/user"
  expect "user can write its home" "ok"
  expect "sudo needs no password" "0"
  expect "sudo and su are the only SUID programs" "/usr/bin/su /usr/bin/sudo "
  expect "locale is C.UTF-8" "LANG=C.UTF-8 UTF-8"
  expect "localhost resolves without a network" "yes"
  expect "an unknown name fails at once" "fast"
  expect "has the tools that shell code uses" ""
  expect "has the place where the agent is mounted" "yes"
  expect "no caches and lists in it" "0"
  expect "nothing left of the build" ""
  expect "interpreters" ""
  check "$name: every question was answered" "13" "$(grep -c $'\t' <<<"$answers")"
  check "$name: metadata has the file's digest" "$(sha256sum <"$image" | cut -d' ' -f1)" "$(jq -r .digest "$metadata")"
  check "$name: metadata has the file's size" "$(stat -c %s "$image")" "$(jq -r .size_bytes "$metadata")"
  check "$name: metadata names bash's version as dpkg does" "$(jq -r .packages.debian.bash "$metadata")" "$(answer "bash version as dpkg says")"
  check "$name: its default language is one of its languages" "true" "$(jq '.default_language as $d | .languages | index($d) != null' "$metadata")"
  check "$name: it is not larger than 900 MB" "yes" "$( (($(stat -c %s "$image") < 900000000)) && echo yes)"
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

# The packages of package.json and their pinned versions, as the image has them: required from the home folder, imported from another.
npm_packages_of() { # NAME IMAGE RUN...
  local name=$1 image=$2 names
  shift 2
  names=$(jq -c '[.dependencies | keys[] | select(. != "npm" and . != "tsx")]' "$here/recipes/$name/package.json")
  check "$name: every package can be required from the home folder" "$names" \
    "$(inside "$image" "$@" "console.log(JSON.stringify($names.filter((name) => ['object', 'function'].includes(typeof require(name)))))")"
  check "$name: every package can be imported from another folder" "$names" \
    "$(inside "$image" bash -c 'cd /tmp && echo "$1" >t.mjs && exec "$0" t.mjs' "$1" "
       const got = []; for (const name of $names) if (Object.keys(await import(name)).length > 0) got.push(name); console.log(JSON.stringify(got));")"
  check "$name: the packages have their pinned versions" "$(jq -c '.dependencies' "$here/recipes/$name/package.json")" \
    "$(inside "$image" "$@" "console.log(JSON.stringify(Object.fromEntries($(jq -c '.dependencies | keys' "$here/recipes/$name/package.json").map((name) =>
       [name, JSON.parse(require('fs').readFileSync('/usr/local/lib/node_modules/' + name + '/package.json')).version]))))")"
}

contents_of_nodejs() {
  local image=$1
  check "nodejs: node has the pinned version" "v20.20.2" "$(inside "$image" node --version)"
  npm_packages_of nodejs "$image" node -e
  check "nodejs: the packages work" "4 a b 2026" "$(inside "$image" node -e '
    console.log(require("lodash").sum([1, 3]), require("cheerio").load("<p>a</p>")("p").text(), require("uuid").validate(require("uuid").v4()) ? "b" : "c", require("moment")("2026-01-02").year())')"
  check "nodejs: npm and npx run" "10.9.9 10.9.9" "$(inside "$image" bash -c 'echo $(npm --version) $(npx --version)')"
}

contents_of_typescript_node() {
  local image=$1 code='
import { z } from "zod"; import * as cheerio from "cheerio"; import axios from "axios"; import { format } from "date-fns";
enum Colour { Red = "red" }
const n: number = z.number().parse(4);
console.log(n, cheerio.load("<p>a</p>")("p").text(), typeof axios.get, format(new Date(2026, 0, 2), "yyyy-MM-dd"), Colour.Red);'
  check "typescript-node: node has the pinned version" "v20.20.2" "$(inside "$image" node --version)"
  npm_packages_of typescript-node "$image" node -e
  check "typescript-node: tsx runs a program, from any folder" "4 a function 2026-01-02 red" "$(inside "$image" bash -c 'cd /tmp && echo "$1" >t.mts && tsx t.mts' bash "$code")"
}

contents_of_deno() {
  local image=$1
  check "deno: deno has the pinned version" "deno 2.9.6" "$(inside "$image" bash -c 'deno --version | cut -d" " -f1-2 | head -n 1')"
  check "deno: a program runs" "42 string" "$(inside "$image" bash -c 'echo "const n: number = 6 * 7; console.log(n, typeof Deno.version.typescript)" >/tmp/t.ts && deno run --quiet /tmp/t.ts')"
}

contents_of_base() {
  local image=$1
  check "base: has what it is for" "" \
    "$(inside "$image" bash -c 'for t in bash git sudo curl wget python3 pip3 node npm npx jq make patch nano openssl bzip2; do command -v $t >/dev/null || echo "$t missing"; done')"
  check "base: the versions that its description names" "v20.20.2 3.11" "$(inside "$image" bash -c 'echo $(node --version) $(python3 -c "import sys; print(*sys.version_info[:2], sep=\".\")")')"
  check "base: git commits" "1" "$(inside "$image" bash -c 'git init -q r && cd r && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m a && git rev-list --count HEAD')"
}

contents_of_go() {
  local image=$1
  check "go: go has the pinned version" "go1.22.12" "$(inside "$image" bash -c 'go version | cut -d" " -f3')"
  # -x tells each compilation; of a program that uses much of the standard library there is one.
  check "go: a first program compiles nothing but itself" "1 hi [1,2]" "$(inside "$image" bash -c '
    mkdir p && cd p && cat >main.go <<GO
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"text/template"
)

func main() {
	_ = http.StatusOK
	template.Must(template.New("t").Parse("hi ")).Execute(os.Stdout, nil)
	text, _ := json.Marshal([]int{1, 2})
	fmt.Println(string(text))
}
GO
    go build -x -o p main.go 2>log; echo "$(grep -c "/compile .* -p " log) $(./p)"')"
  check "go: the compiled library is still there for the next program" "1" "$(inside "$image" bash -c '
    mkdir p && cd p && printf "package main\nimport \"fmt\"\nfunc main() { fmt.Println(1) }\n" >main.go && go run main.go >/dev/null
    printf "package main\nimport \"fmt\"\nfunc main() { fmt.Println(2) }\n" >main.go && go build -x -o p main.go 2>&1 | grep -c "/compile .* -p "')"
  check "go: its formatter and its checks run" "ok" "$(inside "$image" bash -c 'mkdir p && cd p && printf "package main\n\nfunc main() {}\n" >main.go && [[ -z $(gofmt -l .) ]] && go vet main.go && echo ok')"
}

contents_of_data_science() {
  local image=$1
  check "data-science: every package imports" "$(sed -n '/^#/d; s/==.*//p' "$here/recipes/data-science/requirements.txt" | tr '\n' ' ')" "$(inside "$image" python3 -c '
import importlib, importlib.metadata, re, sys, warnings
warnings.simplefilter("ignore")
for name in sys.argv[1].split():
    files = importlib.metadata.files(name)
    tops = {file.parts[0] for file in files if len(file.parts) > 1 and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", file.parts[0]) and file.parts[1] == "__init__.py"}
    tops |= {file.parts[0][:-3] for file in files if len(file.parts) == 1 and file.suffix == ".py"}
    for top in sorted(tops):
        importlib.import_module(top)
    if tops:
        print(name, end=" ")' "$(sed -n '/^#/d; s/==.*//p' "$here/recipes/data-science/requirements.txt" | tr '\n' ' ')")"
  check "data-science: the packages work together" "ok" "$(inside "$image" python3 -c '
import io, warnings
warnings.simplefilter("ignore")
import numpy as np, pandas as pd, scipy.stats, sympy, openpyxl, PIL.Image, plotly.express as px, seaborn as sns
from sklearn.linear_model import LinearRegression
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
frame = pd.DataFrame({"x": np.arange(20.0), "y": 3 * np.arange(20.0) + 1})
model = LinearRegression().fit(frame[["x"]], frame["y"])
assert abs(model.coef_[0] - 3) < 1e-9
assert scipy.stats.linregress(frame["x"], frame["y"]).rvalue > 0.999 and sympy.integrate(sympy.Symbol("t"), (sympy.Symbol("t"), 0, 2)) == 2
frame.to_excel("f.xlsx", index=False)
assert pd.read_excel("f.xlsx").shape == (20, 2) and openpyxl.load_workbook("f.xlsx").active["B2"].value == 1
image = io.BytesIO()
sns.scatterplot(frame, x="x", y="y").figure.savefig(image)
assert PIL.Image.open(image).size[0] > 100 and len(px.scatter(frame, x="x", y="y").to_json()) > 100
print("ok")')"
  check "data-science: tables have styles" "True" "$(inside "$image" python3 -c 'import pandas as pd; print("<table" in pd.DataFrame({"x": [1]}).style.to_html())')"
  check "data-science: node and npm have the pinned versions" "v20.20.2 10.9.9" "$(inside "$image" bash -c 'echo $(node --version) $(npm --version)')"
  check "data-science: fonts were looked for when it was built" "[]" "$(inside "$image" python3 -c '
import logging, io
said = []
class Keep(logging.Handler):
    def emit(self, record): said.append(record.getMessage())
logging.getLogger("matplotlib").addHandler(Keep()); logging.getLogger("matplotlib.font_manager").setLevel(logging.INFO)
import matplotlib; matplotlib.use("agg")
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.savefig(io.BytesIO())
print([m for m in said if "font" in m.lower() and ("cache" in m.lower() or "generated" in m.lower())])')"
  check "data-science: no module is compiled again at import" "[]" "$(inside "$image" sudo -n python3 -c '
import pathlib, pandas, matplotlib.pyplot
print([str(p) for p in pathlib.Path("/usr").rglob("*.pyc") if p.stat().st_mtime > 1767225600])')"
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
  printf '#!/bin/sh\n' | tee "$folder/agent" >"$folder/atoll-go-kernel"
  first=$("$here/build-agent.sh" "$folder/agent" "$folder/a.erofs")
  "$here/build-agent.sh" "$folder/agent" "$folder/b.erofs" >/dev/null
  check "agent image: two builds are the same" "$(sha256sum <"$first")" "$(sha256sum <"$folder/b.erofs")"
  mkdir "$folder/mount"
  mount -t erofs -o loop,ro "$first" "$folder/mount"
  check "agent image: the agent is at its place and executable" "755" "$(stat -c %a "$folder/mount/bin/atoll-agent")"
  check "agent image: no tests in it" "" "$(find "$folder/mount" -iname '*test*')"
  check "agent image: the Python kernel is at its place" "yes" "$(test -f "$folder/mount/kernels/python/kernel.py" && echo yes)"
  check "agent image: the Go kernel is at its place and executable, its source is not" "755 " \
    "$(stat -c %a "$folder/mount/kernels/go/atoll-go-kernel") $(find "$folder/mount" -name '*.go' -o -name 'go.*')"
  umount "$folder/mount"
}

only=
if [[ ${1:-} == --only ]]; then only=${2:?--only needs the name of a recipe}; fi
for recipe in "$here"/recipes/*/; do
  name=$(basename "$recipe")
  [[ -z $only || $name == "$only" ]] || continue
  image=$("$here/build.sh" "$name")
  contents_of_every_image "$image" "$name"
  "contents_of_${name//-/_}" "$image"
  check "$name: the sandboxes left nothing in the overlay's folder" "" "$(ls -A "$folder/overlay")"
done
if [[ -z $only ]]; then agent_image_holds_agent_and_kernels; fi
if [[ ${1:-} != --quick && -z $only ]]; then
  killed_build_leaves_no_half_image
  repeated_build_gives_the_same_bits python
fi
if [[ ${1:-} == --all ]]; then for name in typescript-bun go data-science; do repeated_build_gives_the_same_bits "$name"; done; fi

echo "images: $passed passed, $failed failed"
[[ $failed -eq 0 ]]
