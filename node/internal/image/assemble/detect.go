package assemble

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"atoll/node/internal/erofs"
)

// DefaultPath is where programs are looked for in an image that has no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// programs are those that run languages, by the name that they have on the PATH.
var programs = []string{"python3", "bun", "deno", "node", "go", "bash"}

// maxBinary is how much of a program is searched for its version.
const maxBinary = 256 << 20

// interpreters finds the programs of the image that run languages, where they are new enough.
func (a *assembly) interpreters(config Config) ([]Interpreter, error) {
	env := map[string]string{}
	for _, e := range config.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	places := env["PATH"]
	if places == "" {
		places = DefaultPath
	}
	var found []Interpreter
	for _, name := range programs {
		for dir := range strings.SplitSeq(places, ":") {
			if !strings.HasPrefix(dir, "/") {
				continue
			}
			at := path.Join(dir, name)
			i, real, err := a.tree.find(at)
			if err != nil || !executable(i) {
				continue
			}
			version, err := a.version(name, i, real, env)
			if err != nil {
				return nil, err
			}
			if newEnough(name, version) {
				found = append(found, Interpreter{Name: name, Path: at, Version: version})
			}
			// An old one in front hides a new one behind it, as it does for a shell.
			break
		}
	}
	return found, nil
}

var (
	pythonName  = regexp.MustCompile(`python(3\.[0-9]+)`)
	dottedThree = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+)`)
	nodeBinary  = regexp.MustCompile(`node-v([0-9]+\.[0-9]+\.[0-9]+)(?:-headers)?\.tar\.gz`)
	denoBinary  = regexp.MustCompile(`Deno/([0-9]+\.[0-9]+\.[0-9]+)`)
	goVersion   = regexp.MustCompile(`^go([0-9]+(?:\.[0-9]+)+)`)
	headerLine  = regexp.MustCompile(`(?m)^#define NODE_(MAJOR|MINOR|PATCH)_VERSION ([0-9]+)`)
)

// version is "" where it can't be told.
func (a *assembly) version(name string, i *erofs.Inode, real string, env map[string]string) (string, error) {
	switch name {
	case "python3":
		// python3 → python3.11; or a file of that name, with its library beside it.
		if m := pythonName.FindStringSubmatch(path.Base(real)); m != nil {
			return m[1], nil
		}
		lib, _, err := a.tree.find(path.Join(path.Dir(real), "..", "lib"))
		if err != nil {
			return "", nil
		}
		best := ""
		for child := range lib.Children {
			if m := pythonName.FindStringSubmatch(child); m != nil && m[0] == child && compare(m[1], best) > 0 {
				best = m[1]
			}
		}
		return best, nil
	case "node":
		if text, err := a.text(path.Join(path.Dir(real), "../include/node/node_version.h")); err != nil {
			return "", err
		} else if text != "" {
			numbers := map[string]string{}
			for _, m := range headerLine.FindAllStringSubmatch(text, -1) {
				numbers[m[1]] = m[2]
			}
			if numbers["MAJOR"] != "" {
				return numbers["MAJOR"] + "." + numbers["MINOR"] + "." + numbers["PATCH"], nil
			}
		}
		if m := dottedThree.FindStringSubmatch(env["NODE_VERSION"]); m != nil {
			return m[1], nil
		}
		if v, err := a.installed("nodejs"); v != "" || err != nil {
			return v, err
		}
		b, err := a.read(i, maxBinary)
		if err != nil {
			return "", err
		}
		return newest(nodeBinary, b), nil
	case "deno":
		if m := dottedThree.FindStringSubmatch(env["DENO_VERSION"]); m != nil {
			return m[1], nil
		}
		b, err := a.read(i, maxBinary)
		return newest(denoBinary, b), err
	case "go":
		text, err := a.text(path.Join(path.Dir(real), "../VERSION"))
		if m := goVersion.FindStringSubmatch(text); m != nil {
			return m[1], err
		}
		return "", err
	}
	return "", nil
}

// newest is the newest of the versions that a program's text names: it also names older ones that it is compatible with.
func newest(pattern *regexp.Regexp, b []byte) (version string) {
	for _, m := range pattern.FindAllSubmatch(b, 100) {
		if v := string(m[1]); compare(v, version) > 0 {
			version = v
		}
	}
	return version
}

// installed is a package's version, as Debian's or Alpine's list has it.
func (a *assembly) installed(name string) (string, error) {
	for _, list := range []struct{ file, name, version string }{
		{"/var/lib/dpkg/status", "Package: ", "Version: "}, {"/lib/apk/db/installed", "P:", "V:"},
	} {
		text, err := a.text(list.file)
		if err != nil {
			return "", err
		}
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			lines := strings.Split(paragraph, "\n")
			if !slices.Contains(lines, list.name+name) {
				continue
			}
			for _, line := range lines {
				if m := dottedThree.FindStringSubmatch(strings.TrimPrefix(line, list.version)); m != nil && strings.HasPrefix(line, list.version) {
					return m[1], nil
				}
			}
		}
	}
	return "", nil
}

// oldest are the first versions that the kernels run on.
var oldest = map[string]string{"python3": "3.8", "node": "20", "deno": "2"}

func newEnough(name, version string) bool {
	want := oldest[name]
	return want == "" || version != "" && compare(version, want) >= 0
}

// compare orders dotted numbers; "" is before all.
func compare(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for n := range max(len(x), len(y)) {
		var p, q int
		if n < len(x) {
			p, _ = strconv.Atoi(x[n])
		}
		if n < len(y) {
			q, _ = strconv.Atoi(y[n])
		}
		if p != q {
			return p - q
		}
	}
	if a == "" && b != "" {
		return -1
	}
	return 0
}
