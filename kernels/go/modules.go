package main

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// sourceRoot is where the interpreter believes a GOPATH to be.
const sourceRoot = "/atoll-go"

// modules shows the interpreter, which knows only GOPATH, the packages of the module cache: of each module the newest version that is
// there. Where a real GOPATH has the package too, that is taken.
type modules struct{}

func newModules() *modules { return &modules{} }

func goPaths() []string {
	if list := os.Getenv("GOPATH"); list != "" {
		return filepath.SplitList(list)
	}
	return []string{filepath.Join(os.Getenv("HOME"), "go")}
}

func moduleCache() string {
	if cache := os.Getenv("GOMODCACHE"); cache != "" {
		return cache
	}
	return filepath.Join(goPaths()[0], "pkg", "mod")
}

func (m *modules) Open(name string) (fs.File, error) {
	where := "/" + strings.TrimPrefix(name, "/")
	inner, ok := strings.CutPrefix(where, sourceRoot+"/src/")
	if !ok {
		if strings.HasPrefix(where, sourceRoot) {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return os.Open(name)
	}
	for _, found := range m.places(inner) {
		file, err := os.Open(found)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) {
			return file, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// places are where the file or folder of an import path may lie.
func (m *modules) places(inner string) (places []string) {
	for _, root := range goPaths() {
		places = append(places, filepath.Join(root, "src", inner))
	}
	escaped := escape(inner)
	cache := moduleCache()
	// The module's path is some beginning of it; of two modules that fit, the longer one has the package.
	for prefix := escaped; prefix != "." && prefix != "/" && prefix != ""; prefix = path.Dir(prefix) {
		if version := newest(filepath.Join(cache, prefix)); version != "" {
			places = append(places, filepath.Join(version, strings.TrimPrefix(escaped[len(prefix):], "/")))
		}
	}
	return places
}

// newest is the folder of the highest version of a module; "" where there is none.
func newest(module string) string {
	entries, err := os.ReadDir(filepath.Dir(module))
	if err != nil {
		return ""
	}
	best, folder := "", ""
	for _, entry := range entries {
		version, ok := strings.CutPrefix(entry.Name(), filepath.Base(module)+"@")
		if ok && entry.IsDir() && (best == "" || compareVersions(version, best) > 0) {
			best, folder = version, filepath.Join(filepath.Dir(module), entry.Name())
		}
	}
	return folder
}

// compareVersions orders v1.9.0 before v1.10.0, and v1.0.0-rc before v1.0.0.
func compareVersions(a, b string) int {
	split := func(v string) (numbers []string, pre string) {
		v = strings.TrimPrefix(strings.TrimSuffix(v, "+incompatible"), "v")
		v, pre, _ = strings.Cut(v, "-")
		return strings.Split(v, "."), pre
	}
	aNumbers, aPre := split(a)
	bNumbers, bPre := split(b)
	c := slices.CompareFunc(aNumbers, bNumbers, func(x, y string) int {
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		return strings.Compare(x, y)
	})
	switch {
	case c != 0:
		return c
	case aPre == bPre:
		return 0
	case aPre == "":
		return 1
	case bPre == "":
		return -1
	default:
		return strings.Compare(aPre, bPre)
	}
}

// escape is how the module cache writes upper-case letters.
func escape(p string) string {
	var escaped strings.Builder
	for _, r := range p {
		if unicode.IsUpper(r) {
			escaped.WriteByte('!')
			r = unicode.ToLower(r)
		}
		escaped.WriteRune(r)
	}
	return escaped.String()
}
