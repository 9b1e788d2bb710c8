package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestCopyPutsFilesWhereDockerDoes(t *testing.T) {
	context := map[string]string{
		"a.txt": "A", "b.txt": "B", "run.sh": "#!x", "dir/": "", "dir/one": "1", "dir/sub/": "", "dir/sub/two": "2", "link": "-> dir", "flink": "-> a.txt",
		"dir/up": "-> ../a.txt", "out": "-> /../../etc/passwd", "deep/er/est.txt": "E", "dangling": "-> nowhere", "w[1].txt": "W",
	}
	for name, c := range map[string]struct {
		instructions string
		want         string
	}{
		"file to a name":              {"COPY a.txt /x", "/x \"A\" 640 0:0\n"},
		"file to a folder's name":     {"COPY a.txt /x/", "/x folder 755 0:0\n/x/a.txt \"A\" 640 0:0\n"},
		"file to a folder":            {"COPY a.txt /usr", "/usr/a.txt \"A\" 640 0:0\n"},
		"file over a file":            {"COPY a.txt /x\nCOPY b.txt /x", "/x \"B\" 640 0:0\n"},
		"executable":                  {"COPY run.sh /x", "/x \"#!x\" 755 0:0\n"},
		"to the working folder":       {"WORKDIR /w\nCOPY a.txt .", "/w folder 755 0:0\n/w/a.txt \"A\" 640 0:0\n"},
		"relative":                    {"WORKDIR /w\nCOPY a.txt x/y", "/w folder 755 0:0\n/w/x folder 755 0:0\n/w/x/y \"A\" 640 0:0\n"},
		"folder's contents":           {"COPY dir /x", "/x folder 750 0:0\n/x/one \"1\" 640 0:0\n/x/sub folder 750 0:0\n/x/sub/two \"2\" 640 0:0\n/x/up -> ../a.txt 0:0\n"},
		"into a folder that is there": {"COPY dir/sub /usr/", "/usr/two \"2\" 640 0:0\n"},
		"several":                     {"COPY a.txt b.txt /x/", "/x folder 755 0:0\n/x/a.txt \"A\" 640 0:0\n/x/b.txt \"B\" 640 0:0\n"},
		"pattern":                     {"COPY *.txt /x/", "/x folder 755 0:0\n/x/a.txt \"A\" 640 0:0\n/x/b.txt \"B\" 640 0:0\n/x/w[1].txt \"W\" 640 0:0\n"},
		"pattern with one match":      {"COPY a*.txt /x", "/x \"A\" 640 0:0\n"},
		"pattern in a folder":         {"COPY d*/s*/t?o /x/", "/x folder 755 0:0\n/x/two \"2\" 640 0:0\n"},
		"escaped pattern":             {"COPY w[[]1].txt /x", "/x \"W\" 640 0:0\n"},
		"list":                        {"COPY [\"a.txt\", \"/x y\"]", "/x y \"A\" 640 0:0\n"},
		"leading slash and dots":      {"COPY /./dir/../a.txt ../b.txt /x/", "/x folder 755 0:0\n/x/a.txt \"A\" 640 0:0\n/x/b.txt \"B\" 640 0:0\n"},
		"symlink to a folder":         {"COPY link /x", "/x folder 750 0:0\n/x/one \"1\" 640 0:0\n/x/sub folder 750 0:0\n/x/sub/two \"2\" 640 0:0\n/x/up -> ../a.txt 0:0\n"},
		"symlink to a file":           {"COPY flink /x/", "/x folder 755 0:0\n/x/flink \"A\" 640 0:0\n"},
		"through a symlink":           {"COPY link/sub/two /x", "/x \"2\" 640 0:0\n"},
		"owner by number":             {"COPY --chown=5:6 a.txt /n/x", "/n folder 755 5:6\n/n/x \"A\" 640 5:6\n"},
		"owner by number alone":       {"COPY --chown=5 a.txt /x", "/x \"A\" 640 5:5\n"},
		"owner by name":               {"COPY --chown=app a.txt /x", "/x \"A\" 640 77:78\n"},
		"owner and group by name":     {"COPY --chown=app:staff dir/sub /x", "/x folder 750 77:50\n/x/two \"2\" 640 77:50\n"},
		"owner of an argument":        {"ARG who=5:6\nCOPY --chown=$who a.txt /x", "/x \"A\" 640 5:6\n"},
		"mode":                        {"COPY --chmod=700 dir/sub /x", "/x folder 700 0:0\n/x/two \"2\" 700 0:0\n"},
		"link flag":                   {"COPY --link a.txt /x", "/x \"A\" 640 0:0\n"},
		"left out":                    {"COPY --exclude=sub --exclude=up dir /x", "/x folder 750 0:0\n/x/one \"1\" 640 0:0\n"},
		"parents":                     {"COPY --parents deep/er/est.txt /x/", "/x folder 755 0:0\n/x/deep folder 755 0:0\n/x/deep/er folder 755 0:0\n/x/deep/er/est.txt \"E\" 640 0:0\n"},
		"parents after a pivot":       {"COPY --parents deep/./er/est.txt /x/", "/x folder 755 0:0\n/x/er folder 755 0:0\n/x/er/est.txt \"E\" 640 0:0\n"},
		"parents of a folder":         {"COPY --parents dir/sub /x/", "/x folder 755 0:0\n/x/dir folder 755 0:0\n/x/dir/sub folder 755 0:0\n/x/dir/sub/two \"2\" 640 0:0\n"},
		"heredoc":                     {"ARG V=v\nCOPY <<EOF /x\n$V \"q\" 'r'\nEOF", "/x \"v \\\"q\\\" 'r'\\n\" 644 0:0\n"},
		"quoted heredoc":              {"ARG V=v\nCOPY <<\"EOF\" /x\n$V\nEOF", "/x \"$V\\n\" 644 0:0\n"},
		"two heredocs":                {"COPY <<a <<b /x/\n1\na\n2\nb", "/x folder 755 0:0\n/x/a \"1\\n\" 644 0:0\n/x/b \"2\\n\" 644 0:0\n"},
		"add of a plain file":         {"ADD a.txt /x", "/x \"A\" 640 0:0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFakeNode(t)
			r := n.build("FROM base\n"+c.instructions+"\n", context)
			if r.err != nil {
				t.Fatal(r.err)
			}
			if got := r.files.describe(n); got != c.want {
				t.Errorf("got:\n%sexpected:\n%s", got, c.want)
			}
		})
	}
}

func TestWrongDockerfilesAreRefusedWithTheirLine(t *testing.T) {
	context := map[string]string{"a": "A", "b": "B", "dir/": "", "secret": "x", ".dockerignore": "secret\n"}
	for dockerfile, want := range map[string]string{
		"":                   "empty",
		"# only a comment\n": "1: file with no instructions", "#\n": "1: file with no instructions",
		"RUN x\n":                                  "1: ",
		"FROM base\nNONSENSE x\n":                  "2: unknown instruction: NONSENSE",
		"FROM base\nRUN\n":                         "2: ",
		"FROM base\nCOPY a\n":                      "2: ",
		"FROM base\nCOPY missing /x\n":             "2: COPY: \"missing\" is not in the build context",
		"FROM base\nCOPY secret /x\n":              "2: COPY: \"secret\" is not in the build context (or .dockerignore leaves it out)",
		"FROM base\nCOPY no*thing /x\n":            "2: COPY: \"no*thing\" is not in the build context",
		"FROM base\nCOPY a b /x\n":                 "2: COPY of several sources to \"/x\"",
		"FROM base\nCOPY --chmod=rwx a /x\n":       "2: COPY --chmod=rwx",
		"FROM base\nCOPY --chown=ghost a /x\n":     "2: --chown=ghost: \"ghost\" is not in the image's /etc/passwd",
		"FROM base\nCOPY --chown=app:ghost a /x\n": "2: --chown=app:ghost: \"ghost\" is not in the image's /etc/group",
		"FROM base AS one\nCOPY --from=later /a /x\nFROM base AS later\nFROM one\n": "2: --from=later: that stage begins only in line 3",
		"FROM base\nCOPY --from=3 /a /x\n":                                          "2: --from=3: there is no stage 3 before this one",
		"FROM base AS one\nFROM base\nCOPY --from=one /missing /x\n":                "3: COPY --from: \"/missing\" is not there",
		"FROM base AS one\nFROM base\nCOPY --from=one /mis*ng /x\n":                 "3: COPY --from: nothing fits \"/mis*ng\"",
		"FROM base\nCOPY dir /etc/passwd\n":                                         "2: \"/etc/passwd\" is no folder in the image",
		"FROM base\nCOPY a /etc/passwd/x\n":                                         "2: \"/etc/passwd\" is no folder in the image",
		"FROM base\nADD https://x.example/y /y\n":                                   "2: ADD https://x.example/y: builds have no network (the setting build.network is off)",
		"FROM base\nADD git@x.example:y.git /y\n":                                   "2: ADD of a Git repository",
		"FROM base\nCOPY https://x.example/y /y\n":                                  "2: COPY from an address",
		"FROM base\nRUN --security=insecure x\n":                                    "2: ",
		"FROM base\nRUN --network=host x\n":                                         "2: RUN --network=host is not supported",
		"FROM base\nRUN --mount=type=ssh x\n":                                       "2: --mount=type=ssh is not supported",
		"FROM base\nRUN --mount=type=secret,id=k x\n":                               "2: --mount=type=secret: no secret \"k\" is given to the build",
		"FROM base\nRUN --mount=type=bind,source=zz,target=/m x\n":                  "2: --mount: \"zz\" is not in the build context",
		"FROM base\nRUN --mount=type=tmpfs,target=/ x\n":                            "2: --mount: target /",
		"FROM base\nEXPOSE 0\n":                                                     "2: EXPOSE \"0\"",
		"FROM base\nEXPOSE 80/icmp\n":                                               "2: EXPOSE \"80/icmp\"",
		"FROM base\nUSER \"$NONE\"\n":                                               "2: USER with an empty name",
		"FROM base\nWORKDIR $NONE\n":                                                "2: WORKDIR with an empty path",
		"FROM base\nRUN echo ${A:?needed}\n":                                        "",
		"FROM base\nENV A=${B:?needed}\n":                                           "2: ",
		"FROM --platform=linux/mips base\n":                                         "1: --platform=linux/mips",
		"FROM $NONE\n":                                                              "1: ",
		"FROM base\nRUN x\nHEALTHCHECK NONSENSE\n":                                  "3: ",
		"FROM base\nSHELL sh -c\n":                                                  "2: ",
		"FROM base\nONBUILD FROM base\n":                                            "2: ",
		"FROM base\nRUN <<EOF\nx\n":                                                 "2: ",
	} {
		t.Run(shorten(dockerfile, 60), func(t *testing.T) {
			n := newFakeNode(t)
			r := n.build(dockerfile, context)
			if dockerfile == "FROM base\nRUN echo ${A:?needed}\n" {
				// A shell's own matter.
				if r.err != nil {
					t.Fatal(r.err)
				}
				return
			}
			var wrong *InvalidError
			if !errors.As(r.err, &wrong) {
				t.Fatalf("%v (expected: what is wrong with it)", r.err)
			}
			line, rest, _ := strings.Cut(want, ": ")
			if strings.HasPrefix(r.err.Error(), "line ") && want != "empty" {
				if fmt.Sprint(wrong.Line) != line {
					t.Errorf("line %d of %v (expected: %s)", wrong.Line, r.err, line)
				}
				if !strings.HasPrefix(wrong.Text, rest) {
					t.Errorf("%q (expected: %q…)", wrong.Text, rest)
				}
			} else if want != "" && want != "empty" {
				t.Errorf("%v (expected: line %s)", r.err, line)
			}
		})
	}
}

func TestVariablesAreReplacedAsDockerDoes(t *testing.T) {
	for name, c := range map[string]struct {
		dockerfile string
		args       map[string]string
		env        string // of the last RUN: NAME=value of those named X…
	}{
		"ENV":                             {"FROM base\nENV X=1 Y=2\nENV X2=$X-${Y}\nRUN x", nil, "X=1 X2=1-2"},
		"ENV sees what was before":        {"FROM base\nENV X=1\nENV X=2 X2=$X\nRUN x", nil, "X=2 X2=1"},
		"ENV of the base":                 {"FROM base\nENV X=$FROM_BASE\nRUN x", nil, "X=1"},
		"old form":                        {"FROM base\nENV X a b  c\nRUN x", nil, "X=a b  c"},
		"quotes and escapes":              {`FROM base` + "\n" + `ENV X="a b" X2=c\ d X3='$X'` + "\nRUN x", nil, "X=a b X2=c d X3=$X"},
		"default":                         {"FROM base\nENV X=${NONE:-d} X2=${NONE} X3=${FROM_BASE:+set}\nRUN x", nil, "X=d X2= X3=set"},
		"ARG with a default":              {"FROM base\nARG X=1\nRUN x", nil, "X=1"},
		"ARG that is given":               {"FROM base\nARG X=1\nRUN x", map[string]string{"X": "2"}, "X=2"},
		"ARG without a value":             {"FROM base\nARG X\nRUN x", nil, ""},
		"ARG that is not declared":        {"FROM base\nRUN x", map[string]string{"X": "2"}, ""},
		"ARG only from its line on":       {"FROM base\nENV X2=$X\nARG X\nRUN x", map[string]string{"X": "2"}, "X=2 X2="},
		"ENV before ARG":                  {"FROM base\nENV X=env\nARG X=arg\nRUN x", map[string]string{"X": "given"}, "X=env"},
		"ARG before FROM is not in it":    {"ARG X=1\nFROM base\nRUN x", nil, ""},
		"ARG before FROM, declared again": {"ARG X=1\nFROM base\nARG X\nRUN x", nil, "X=1"},
		"with a default of its own":       {"ARG X=1\nFROM base\nARG X=2\nRUN x", nil, "X=2"},
		"ARG of an ARG":                   {"ARG A=1\nARG B=$A$A\nFROM base\nARG B\nENV X=$B\nRUN x", nil, "X=11"},
		"of the stage before":             {"FROM base AS one\nARG X=1\nFROM one\nRUN x", nil, "X=1"},
		"not of another stage":            {"FROM base AS one\nARG X=1\nFROM base\nRUN x", nil, ""},
		"architecture":                    {"FROM base\nARG TARGETARCH\nARG TARGETOS\nENV X=$TARGETOS/$TARGETARCH\nRUN x", nil, "X=linux/" + runtime.GOARCH},
		"architecture, not declared":      {"FROM base\nENV X=$TARGETARCH\nRUN x", nil, "X="},
		"several ARGs in a line":          {"FROM base\nARG X=1 X2=2\nRUN x", nil, "X=1 X2=2"},
		"escape directive":                {"# escape=`\nFROM base\nENV X=a`$b X2=c\nRUN x", nil, "X=a$b X2=c"},
		"continued lines":                 {"FROM base\nENV X=1 \\\n # comment\n  X2=2\nRUN x", nil, "X=1 X2=2"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFakeNode(t)
			r := n.build(c.dockerfile+"\n", nil, func(s *Spec) { s.Args = c.args })
			if r.err != nil {
				t.Fatal(r.err)
			}
			env := n.commands[len(n.commands)-1].Env
			var got []string
			for _, name := range []string{"X", "X2", "X3"} {
				if value, set := env[name]; set {
					got = append(got, name+"="+value)
				}
			}
			if strings.Join(got, " ") != c.env {
				t.Errorf("%q (expected: %q)", strings.Join(got, " "), c.env)
			}
		})
	}
}

func TestProgramsAreRunAsDockerDoes(t *testing.T) {
	for dockerfile, want := range map[string]string{
		"RUN a  b":                               `["/bin/sh","-c","a  b"]`,
		"RUN [\"a\", \"b c\"]":                   `["a","b c"]`,
		"RUN a \\\n  && b":                       `["/bin/sh","-c","a   \u0026\u0026 b"]`,
		"SHELL [\"/bin/bash\", \"-euc\"]\nRUN a": `["/bin/bash","-euc","a"]`,
		"RUN <<EOF\na\nb\nEOF":                   `["/bin/sh","-c","a\nb\n"]`,
		"RUN <<-EOF\n\ta\n\tEOF":                 `["/bin/sh","-c","a\n"]`,
		"RUN cat <<EOF >/x\na\nEOF":              `["/bin/sh","-c","cat \u003c\u003cEOF \u003e/x\na\nEOF"]`,
		"RUN <<EOF\n#!/bin/x\na\nEOF":            `["/bin/sh","-c","/dev/.atoll-build/script"]`,
	} {
		n := newFakeNode(t)
		r := n.build("FROM base\n"+dockerfile+"\n", nil)
		if r.err != nil {
			t.Fatalf("%q: %v", dockerfile, r.err)
		}
		if got := text(n.commands[0].Argv); got != want {
			t.Errorf("%q runs %s (expected: %s)", dockerfile, got, want)
		}
	}
	n := newFakeNode(t)
	r := n.build("FROM base\nUSER app:staff\nWORKDIR /a\nWORKDIR b\nRUN x\nRUN --mount=type=tmpfs,target=m y\n", nil, func(s *Spec) {
		s.StepEnv = map[string]string{"INDEX": "mirror"}
		s.Args = map[string]string{"http_proxy": "p"}
	})
	if r.err != nil {
		t.Fatal(r.err)
	}
	c := n.commands[0]
	if c.User != "app:staff" || c.Dir != "/a/b" || c.Env["PATH"] != "/bin" || c.Env["INDEX"] != "mirror" || c.Env["http_proxy"] != "p" || c.Network != nil {
		t.Errorf("%+v", c)
	}
	if m := n.commands[1].Env["MOUNTS"]; m != "/etc/hosts /a/b/m" {
		t.Errorf("mounts %q", m)
	}
	if got := text(r.config.Env); strings.Contains(got, "INDEX") || strings.Contains(got, "http_proxy") {
		t.Errorf("%s of steps alone is in the image", got)
	}
	for name := range r.files {
		if strings.Contains(name, ".atoll") || strings.HasPrefix(name, "/a/b/m") || name == "/etc/hosts" {
			t.Errorf("%s is in the image", name)
		}
	}
}

func TestConfigurationIsOfTheLastStage(t *testing.T) {
	n := newFakeNode(t)
	r := n.build(`
FROM base AS one
ENV ONE=1
LABEL l=1 "with space"="v w"
FROM one
ENV TWO=2
LABEL l=2
MAINTAINER me
EXPOSE 8080 53/udp 9000-9002
VOLUME /v /w
VOLUME ["/v"]
STOPSIGNAL SIGINT
USER app
WORKDIR /w
ENTRYPOINT ["e"]
HEALTHCHECK --interval=5s CMD curl x
SHELL ["/bin/bash", "-c"]
`, nil)
	if r.err != nil {
		t.Fatal(r.err)
	}
	c := r.config
	// ENTRYPOINT drops the base's CMD.
	want := `{"env":["PATH=/bin","FROM_BASE=1","ONE=1","TWO=2"],"user":"app","workdir":"/w","entrypoint":["e"],` +
		`"exposed_ports":["53/udp","8080/tcp","9000/tcp","9001/tcp","9002/tcp"],"labels":{"base":"yes","l":"2","maintainer":"me","with space":"v w"},` +
		`"stop_signal":"SIGINT","healthcheck":{"Test":["CMD-SHELL","curl x"],"Interval":5000000000},"volumes":["/v","/w"],"shell":["/bin/bash","-c"]}`
	if got := text(c); got != want {
		t.Errorf("got:\n%s\nexpected:\n%s", got, want)
	}
	r = n.build("FROM base\nCMD c d\nENTRYPOINT e f\n", nil)
	if got := text(r.config.Cmd) + text(r.config.Entrypoint); got != `["/bin/sh","-c","c d"]["/bin/sh","-c","e f"]` {
		t.Errorf("%s", got)
	}
	if r = n.build("FROM base\n", nil); text(r.config.Cmd) != `["base-cmd"]` || n.started != 1 {
		t.Errorf("CMD %s, %d sandboxes (expected: the base's, and none for a Dockerfile that changes no files)", text(r.config.Cmd), n.started)
	}
}

func TestTriggersOfTheBaseAreDoneOnce(t *testing.T) {
	n := newFakeNode(t)
	r := n.build("FROM base\nONBUILD COPY a /a\nONBUILD RUN triggered\nRUN own\n", map[string]string{"a": "first"})
	if r.err != nil || r.ran != "/bin/sh -c own\n" || len(r.config.OnBuild) != 2 {
		t.Fatalf("%v, ran %q, triggers %q", r.err, r.ran, r.config.OnBuild)
	}
	n.add("trigger", r.files, r.config)
	r = n.build("FROM trigger\nRUN next\n", map[string]string{"a": "second"})
	if r.err != nil || r.ran != "/bin/sh -c own\n/bin/sh -c triggered\n/bin/sh -c next\n" || r.files["/a"].content != "second" || len(r.config.OnBuild) != 0 {
		t.Fatalf("%v, ran %q, /a %q, triggers %q", r.err, r.ran, r.files["/a"].content, r.config.OnBuild)
	}
}

func TestOnlyStagesThatAreNeededAreBuilt(t *testing.T) {
	dockerfile := `
FROM base AS one
RUN one
FROM unknown.example/image AS unused
RUN unused
FROM base AS two
RUN two
COPY --from=one /ran /from-one
FROM two AS three
RUN three
COPY --from=0 /ran /from-zero
COPY --from=other /etc/passwd /from-image
`
	n := newFakeNode(t)
	other := n.add("other-image", files{"/etc": {kind: Folder}, "/etc/passwd": {kind: RegularFile, content: "other"}}, n.images[fmt.Sprintf("%064d", 1)].image.Config())
	named := func(s *Spec) { s.NamedImages = map[string]string{"other": other.Metadata.Digest} }
	r := n.build(dockerfile, nil, named)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.ran != "/bin/sh -c two\n/bin/sh -c three\n" || r.files["/from-one"].content != "/bin/sh -c one\n" || r.files["/from-zero"].content != "/bin/sh -c one\n" || r.files["/from-image"].content != "other" {
		t.Errorf("files:\n%s", r.files.describe(n))
	}
	if !slices.Equal(n.pulled, []string{"base"}) {
		t.Errorf("pulled %q (expected: base, once)", n.pulled)
	}
	var numbers []int
	for _, s := range r.steps {
		numbers = append(numbers, s.Number)
		if s.Total != 9 || s.Cached {
			t.Errorf("step %+v", s)
		}
	}
	if !slices.Equal(numbers, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("steps %v", numbers)
	}
	for target, want := range map[string]string{"ONE": "/bin/sh -c one\n", "2": "/bin/sh -c two\n"} {
		r := newFakeNode(t).build(dockerfile, nil, named, func(s *Spec) { s.Target = target })
		if r.err != nil || r.ran != want {
			t.Errorf("target %s: %v, ran %q (expected: %q)", target, r.err, r.ran, want)
		}
	}
	if r := n.build(dockerfile, nil, named, func(s *Spec) { s.Target = "four" }); r.err == nil || !strings.Contains(r.err.Error(), "four") {
		t.Errorf("%v (expected: no such stage)", r.err)
	}
	if r := n.build(dockerfile, nil, named, func(s *Spec) { s.Target = "unused" }); r.err == nil || !strings.Contains(r.err.Error(), "unknown.example/image") {
		t.Errorf("%v (expected: no such image)", r.err)
	}
}

func TestWholeRootIsCopiedFromAStage(t *testing.T) {
	n := newFakeNode(t)
	n.add("full", files{
		"/bin": {kind: Symlink, target: "usr/bin"}, "/usr": {kind: Folder, mode: 0o755}, "/usr/bin": {kind: Folder, mode: 0o755},
		"/usr/bin/x": {kind: RegularFile, mode: 0o4755, uid: 3, gid: 4, content: "X"}, "/proc": {kind: Folder}, "/proc/1": {kind: RegularFile, content: "p"},
		"/.atoll": {kind: Folder}, "/.atoll/agent": {kind: RegularFile}, "/tmp": {kind: Folder, mode: 0o1777}, "/tmp/.atoll": {kind: Folder}, "/dev": {kind: Folder},
	}, n.images[fmt.Sprintf("%064d", 1)].image.Config())
	r := n.build("FROM full AS one\nFROM scratch\nCOPY --from=one / /\n", nil)
	if r.err != nil {
		t.Fatal(r.err)
	}
	want := "/bin -> usr/bin 0:0\n/tmp folder 1777 0:0\n/usr/bin folder 755 0:0\n/usr/bin/x \"X\" 4755 3:4\n"
	if got := r.files.describe(n); got != want {
		t.Errorf("got:\n%sexpected:\n%s", got, want)
	}
}

func TestIgnoredFilesAreNotInTheContext(t *testing.T) {
	context := map[string]string{
		"keep": "k", "a.log": "x", "dir/b.log": "x", "dir/keep.log": "k", "dir/sub/c": "c", "node_modules/m/x": "x", "node_modules/wanted": "w", ".git/HEAD": "h", "Dockerfile": "d",
		".dockerignore": "# comment\n*.log\n**/*.log\n!dir/keep.log\nnode_modules/*\n!node_modules/wanted\n.git\n/Dockerfile\ndir/sub\n",
	}
	n := newFakeNode(t)
	r := n.build("FROM base\nCOPY . /x\n", context)
	if r.err != nil {
		t.Fatal(r.err)
	}
	var names []string
	for name, f := range r.files {
		if below, ok := strings.CutPrefix(name, "/x/"); ok && f.kind != Folder {
			names = append(names, below)
		}
	}
	slices.Sort(names)
	if want := []string{".dockerignore", "dir/keep.log", "keep", "node_modules/wanted"}; !slices.Equal(names, want) {
		t.Errorf("%q (expected: %q)", names, want)
	}
}

func TestArchivesAreUnpackedByAddAlone(t *testing.T) {
	plain, err := io.ReadAll(packed(t, map[string]string{"in/": "", "in/f": "F", "/abs": "a", "in/l": "-> f"}))
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	context := map[string]string{"a.tar": string(plain), "a.tgz": zipped.String(), "text.gz": "\x1f\x8bno archive"}
	const unpacked = "/x folder 755 0:0\n/x/abs \"a\" 640 501:20\n/x/in folder 750 501:20\n/x/in/f \"F\" 640 501:20\n/x/in/l -> f 501:20\n"
	for instruction, want := range map[string]string{
		"ADD a.tar /x":                unpacked,
		"ADD a.tgz /x/":               unpacked,
		"ADD --chown=1:2 a.tar /x":    strings.ReplaceAll(unpacked, "501:20", "1:2"),
		"ADD text.gz /x":              "/x \"\\x1f\\x8bno archive\" 640 0:0\n",
		"ADD --unpack=false a.tar /x": fmt.Sprintf("/x %q 640 0:0\n", plain),
		"COPY a.tar /x":               fmt.Sprintf("/x %q 640 0:0\n", plain),
	} {
		n := newFakeNode(t)
		r := n.build("FROM base\n"+instruction+"\n", context)
		if r.err != nil {
			t.Errorf("%s: %v", instruction, r.err)
			continue
		}
		if got := r.files.describe(n); got != want {
			t.Errorf("%s:\ngot:\n%sexpected:\n%s", instruction, got, want)
		}
	}
}

func TestHostileContextsAreRefused(t *testing.T) {
	entry := func(h tar.Header) io.Reader {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	for name, archive := range map[string]io.Reader{
		"upwards":       entry(tar.Header{Name: "../x", Typeflag: tar.TypeReg}),
		"upwards later": entry(tar.Header{Name: "a/../../x", Typeflag: tar.TypeReg}),
		"hard link out": entry(tar.Header{Name: "x", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}),
		"no archive":    strings.NewReader(strings.Repeat("x", 1024)),
		"cut":           io.LimitReader(packed(t, map[string]string{"a": strings.Repeat("x", 4096)}), 1024),
		"too large":     packed(t, map[string]string{"a": strings.Repeat("x", 1<<20)}),
		"broken gzip":   strings.NewReader("\x1f\x8bxxxxxxxxxxxxxxx"),
	} {
		c, err := readContext(t.Context(), archive, t.TempDir(), 1<<19)
		c.close()
		var wrong *InvalidError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: %v (expected: refused)", name, err)
		}
	}
	// Symlinks never lead out, and not round for ever.
	c, err := readContext(t.Context(), packed(t, map[string]string{"out": "-> ../../../../etc", "etc/hosts": "mine", "loop": "-> loop", "a/b": "-> ../c", "c/d": "D"}), t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if n, err := c.follow("out/hosts"); err != nil || n.size != 4 {
		t.Errorf("%+v, %v (expected: the context's own)", n, err)
	}
	if n, err := c.follow("a/b/d"); err != nil || n.size != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := c.follow("loop"); !errors.Is(err, ErrNoFile) {
		t.Errorf("%v (expected: nothing)", err)
	}
}

func TestWhatIsThereIsNotDoneAgain(t *testing.T) {
	n := newFakeNode(t)
	cache, err := OpenCache(n, t.TempDir(), 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	dockerfile := "FROM base AS one\nARG V\nRUN one\nFROM base\nRUN first\nCOPY a /a\nRUN second\nCOPY --from=one /ran /one\nRUN third\n"
	files := map[string]string{"a": "1", "unused": "x"}
	ran := func(change ...func(*Spec)) string {
		t.Helper()
		r := n.buildWith(cache, dockerfile, files, change...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.ran != "/bin/sh -c first\n/bin/sh -c second\n/bin/sh -c third\n" || r.files["/a"].content != files["a"] {
			t.Errorf("files:\n%s", r.files.describe(n))
		}
		var names []string
		for _, c := range n.commands {
			names = append(names, strings.Fields(c.Argv[2])[0])
		}
		return strings.Join(names, " ")
	}
	if got := ran(); got != "one first second third" {
		t.Errorf("ran %q at first", got)
	}
	files["unused"] = "y"
	if got := ran(); got != "" {
		t.Errorf("ran %q again", got)
	}
	files["a"] = "2"
	// Stage one has its result, and is not run.
	if got := ran(); got != "second third" {
		t.Errorf("ran %q after a file had changed", got)
	}
	if got := ran(func(s *Spec) { s.Args = map[string]string{"V": "1"} }); got != "one third" {
		t.Errorf("ran %q with another argument of stage one", got)
	}
	if got := ran(func(s *Spec) { s.StepEnv = map[string]string{"E": "1"} }); got != "one first second third" {
		t.Errorf("ran %q with another environment of steps", got)
	}
	if got := ran(func(s *Spec) { s.NoCache = true }); got != "one first second third" {
		t.Errorf("ran %q without the cache", got)
	}
	// One that turns out to be of no use is made again, with what comes before it.
	for id := range n.snapshots {
		n.snapshots[id] = nil
	}
	if got := ran(); !strings.Contains(got, "first second third") && !strings.Contains(got, "third") {
		t.Errorf("ran %q after all snapshots were damaged", got)
	}
	// Without any room, builds work all the same.
	clear(n.snapshots)
	n.noSave = true
	if got := ran(); got != "one first second third" {
		t.Errorf("ran %q without room for snapshots", got)
	}
	if got := ran(); got != "one first second third" {
		t.Errorf("ran %q without room for snapshots, again", got)
	}
}

func TestCacheKeepsWhatWasUsedLast(t *testing.T) {
	n := newFakeNode(t)
	cache, err := OpenCache(n, t.TempDir(), 350, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		// Two snapshots of 100 bytes each; the first is used by each of these builds.
		if r := n.buildWith(cache, "FROM base\nRUN always\nRUN a\n", nil); r.err != nil {
			t.Fatal(r.err)
		}
	}
	for i := range 4 {
		if r := n.buildWith(cache, fmt.Sprintf("FROM base\nRUN always\nRUN b%d\n", i), nil); r.err != nil {
			t.Fatal(r.err)
		}
		if len(n.snapshots) > 3 {
			t.Fatalf("%d snapshots are kept (expected: at most 3)", len(n.snapshots))
		}
		for _, c := range n.commands {
			if strings.Contains(c.Argv[2], "always") {
				t.Error("what each build used was not kept")
			}
		}
	}
}

func TestFailuresSayWhatHappened(t *testing.T) {
	n := newFakeNode(t)
	n.run = func(c Command, output func([]byte, bool)) (Outcome, error) {
		switch {
		case strings.Contains(c.Argv[2], "fail"):
			for i := range 1000 {
				output(fmt.Appendf(nil, "line %d\n", i), i%2 == 0)
			}
			return Outcome{ExitCode: 3}, nil
		case strings.Contains(c.Argv[2], "flood"):
			for range 600 {
				output(bytes.Repeat([]byte("x"), 10_000), false)
			}
		}
		return Outcome{}, nil
	}
	r := n.build("FROM base\nRUN ok\n\nRUN fail \\\n now\n", nil)
	var failed *StepError
	if !errors.As(r.err, &failed) || failed.Line != 4 || failed.Step.Number != 3 || failed.Step.Total != 3 || !strings.HasPrefix(failed.Text, "exit code 3 ") ||
		!strings.HasSuffix(failed.Output, "line 999") || len(failed.Output) > tailBytes || !strings.HasPrefix(failed.Output, "line ") {
		t.Errorf("%v", r.err)
	}
	r = n.build("FROM base\nRUN flood\n", nil)
	if r.err != nil || len(r.log) > maxStepOutput+200 || !strings.Contains(r.log, "more bytes of this step's output are left out") {
		t.Errorf("%v, %d bytes of log", r.err, len(r.log))
	}
	r = n.build("FROM base\nRUN ok\n", nil, func(s *Spec) { s.Args = map[string]string{"TYPO": "1", "http_proxy": "p"} })
	if r.err != nil || !strings.Contains(r.log, "TYPO") || strings.Contains(r.log, "http_proxy") {
		t.Errorf("%v, log %q (expected: that no ARG names TYPO)", r.err, r.log)
	}
	if r := n.build("FROM base\n", nil, func(s *Spec) { s.Allow = []string{"nonsense"} }); r.err == nil || !strings.Contains(r.err.Error(), "build.allow") {
		t.Errorf("%v (expected: the setting)", r.err)
	}
}

func TestCancelledBuildSaysSo(t *testing.T) {
	n := newFakeNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	n.run = func(Command, func([]byte, bool)) (Outcome, error) {
		cancel()
		return Outcome{}, context.Canceled
	}
	cache, err := OpenCache(n, t.TempDir(), 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := &Builder{Sandboxes: n, Images: n, Cache: cache, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	if _, err := b.Run(ctx, Spec{Dockerfile: "FROM base\nRUN x\nRUN y\n"}, nil, func(Event) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v (expected: cancelled)", err)
	}
	if n.open != 0 || len(n.commands) != 1 || len(n.snapshots) != 0 {
		t.Errorf("%d sandboxes, %d commands, %d snapshots", n.open, len(n.commands), len(n.snapshots))
	}
}
