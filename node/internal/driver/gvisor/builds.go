package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// builds finds builds of runsc by their version: the current one where it was made, and those that are kept.
type builds struct {
	current, kept string
}

func readVersion(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "VERSION"))
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(string(text))
	if !validVersion(version) {
		return "", fmt.Errorf("%s says version %q (expected: letters, digits, '.', '_' and '-')", dir, version)
	}
	return version, nil
}

// validVersion says whether a version may name a folder.
func validVersion(version string) bool {
	if version == "" || len(version) > 128 || version[0] == '.' {
		return false
	}
	return !strings.ContainsFunc(version, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	})
}

// folder is where a build lies; the empty version is the current one.
func (b builds) folder(current, version string) (string, error) {
	if version == "" || version == current {
		return b.current, nil
	}
	if b.kept == "" || !validVersion(version) {
		return "", fmt.Errorf("no build of the runtime has version %q", version)
	}
	dir := filepath.Join(b.kept, version)
	if found, err := readVersion(dir); err != nil || found != version {
		return "", fmt.Errorf("no build of the runtime has version %s (looked in %s)", version, b.kept)
	}
	return dir, nil
}

func (b builds) versions(current string) []string {
	all := []string{current}
	if b.kept == "" {
		return all
	}
	entries, err := os.ReadDir(b.kept)
	if err != nil {
		return all
	}
	for _, entry := range entries {
		if entry.Name() == current {
			continue
		}
		if _, err := b.folder(current, entry.Name()); err == nil {
			all = append(all, entry.Name())
		}
	}
	return all
}
