package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// What sandboxes and snapshots need to be driven and restored by is kept in the data folder, since an update takes it away where it was
// built:
//
//	<data>/runtimes/<version>/               a build of runsc
//	<data>/runtimes/agents/<digest>.erofs    an image with the agent
//
// Each appears there whole or not at all. They are hard links where the file system allows it.
const (
	runtimesName = "runtimes"
	agentsName   = "agents"
	// partial and removed precede the names of what is on its way in and out.
	partial = ".partial-"
	removed = ".removed-"
)

// RuntimesDir is the folder with the kept builds, for Options.
func RuntimesDir(dataDir string) string { return filepath.Join(dataDir, runtimesName) }

// AgentImage is the path of a kept image with the agent, by its SHA-256 in lower-case hexadecimal.
func AgentImage(dataDir, digest string) string {
	return filepath.Join(RuntimesDir(dataDir), agentsName, digest+".erofs")
}

// KeepBuild keeps the build of runsc in a folder, and returns its version. One caller per data folder at a time.
func KeepBuild(dataDir, runscDir string) (version string, err error) {
	version, err = readVersion(runscDir)
	if err != nil {
		return "", err
	}
	dir := RuntimesDir(dataDir)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	if err := sweep(dir); err != nil {
		return "", err
	}
	target := filepath.Join(dir, version)
	if found, err := readVersion(target); err == nil && found == version {
		return version, nil
	}
	draft := filepath.Join(dir, partial+version)
	// It may be a symbolic link, which is not walked.
	source, err := filepath.EvalSymlinks(runscDir)
	if err != nil {
		return "", err
	}
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Mkdir(filepath.Join(draft, name), 0o755)
		}
		return linkOrCopy(path, filepath.Join(draft, name))
	})
	if err != nil {
		return "", fmt.Errorf("keeping the runsc build %s: %w", version, err)
	}
	if err := errors.Join(syncTree(draft), os.RemoveAll(target), os.Rename(draft, target), syncFolder(dir)); err != nil {
		return "", fmt.Errorf("keeping the runsc build %s: %w", version, err)
	}
	return version, nil
}

// KeepAgent keeps an image with the agent, and returns its digest. One caller per data folder at a time.
func KeepAgent(dataDir, image string) (digest string, err error) {
	f, err := os.Open(image)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	digest = hex.EncodeToString(h.Sum(nil))
	target := AgentImage(dataDir, digest)
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	if err := sweep(dir); err != nil {
		return "", err
	}
	if _, err := os.Stat(target); err == nil {
		return digest, nil
	}
	draft := filepath.Join(dir, partial+digest)
	if err := errors.Join(linkOrCopy(image, draft), syncFile(draft), os.Rename(draft, target), syncFolder(dir)); err != nil {
		return "", fmt.Errorf("keeping the agent's image: %w", err)
	}
	return digest, nil
}

// RemoveBuilds removes the kept builds and agents' images that are not among those named. What runs from them goes on, but can't be driven any more.
func RemoveBuilds(dataDir string, versions, agents map[string]bool) error {
	dir := RuntimesDir(dataDir)
	return errors.Join(
		removeOthers(dir, func(name string) bool { return name == agentsName || versions[name] }),
		removeOthers(filepath.Join(dir, agentsName), func(name string) bool {
			digest, ok := strings.CutSuffix(name, ".erofs")
			return !ok || agents[digest]
		}))
}

func removeOthers(dir string, needed func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failures []error
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, ".") && !needed(name) {
			// So that no crash leaves half of it under its name.
			failures = append(failures, os.Rename(filepath.Join(dir, name), filepath.Join(dir, removed+name)))
		}
	}
	return errors.Join(append(failures, sweep(dir))...)
}

// sweep removes what was on its way in or out when an engine was ended.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var failures []error
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), partial) || strings.HasPrefix(entry.Name(), removed) {
			failures = append(failures, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(failures...)
}

func linkOrCopy(from, to string) error {
	if err := os.Link(from, to); err == nil || errors.Is(err, os.ErrExist) {
		return err
	}
	// Another file system, or one without links.
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", from)
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return syncFolder(path)
		default:
			return syncFile(path)
		}
	})
}

func syncFile(path string) error { return syncAt(path, unix.O_RDONLY) }

func syncFolder(path string) error { return syncAt(path, unix.O_RDONLY|unix.O_DIRECTORY) }

func syncAt(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

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
	if version == "" || len(version) > 128 || version[0] == '.' || version == agentsName {
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
