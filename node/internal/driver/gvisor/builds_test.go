package gvisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"atoll/node/internal/driver/gvisor"
)

// fakeBuild is a folder that looks like a build of runsc.
func fakeBuild(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"VERSION": version + "\n", "runsc": "runsc of " + version, "gvisor-bin/gvisor_sentry": "sentry of " + version} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func keep(t *testing.T, data, runsc string) string {
	t.Helper()
	version, err := gvisor.KeepBuild(data, runsc)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func wantFile(t *testing.T, path, content string) {
	t.Helper()
	if found, err := os.ReadFile(path); err != nil || string(found) != content {
		t.Errorf("%s: %q, %v (expected: %q)", path, found, err, content)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

func TestKeptBuildOutlivesTheOneItWasMadeOf(t *testing.T) {
	data := t.TempDir()
	first, second := fakeBuild(t, "atoll-1"), fakeBuild(t, "atoll-2")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(first, link); err != nil {
		t.Fatal(err)
	}
	if version := keep(t, data, link); version != "atoll-1" {
		t.Fatalf("version %q", version)
	}
	keep(t, data, second)
	keep(t, data, second)
	if err := errors.Join(os.RemoveAll(first), os.RemoveAll(second)); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"atoll-1", "atoll-2"} {
		dir := filepath.Join(gvisor.RuntimesDir(data), version)
		wantFile(t, filepath.Join(dir, "runsc"), "runsc of "+version)
		wantFile(t, filepath.Join(dir, "gvisor-bin/gvisor_sentry"), "sentry of "+version)
		if info, err := os.Stat(filepath.Join(dir, "runsc")); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%v, %v (expected: a file that can be executed)", info, err)
		}
	}
	current := fakeBuild(t, "atoll-3")
	d, err := gvisor.New(gvisor.Options{RunscDir: current, RuntimesDir: gvisor.RuntimesDir(data), RunDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if versions := d.Versions(); !slices.Equal(versions, []string{"atoll-3", "atoll-1", "atoll-2"}) {
		t.Errorf("versions %v", versions)
	}
}

func TestBuildIsKeptOnAnotherFileSystem(t *testing.T) {
	data, err := os.MkdirTemp("/dev/shm", "atoll-builds")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	build := fakeBuild(t, "atoll-1")
	var here, there unix.Stat_t
	if err := errors.Join(unix.Stat(build, &here), unix.Stat(data, &there)); err != nil || here.Dev == there.Dev {
		t.Fatalf("%s and %s are one file system (%v); the test needs two", build, data, err)
	}
	keep(t, data, build)
	wantFile(t, filepath.Join(gvisor.RuntimesDir(data), "atoll-1/gvisor-bin/gvisor_sentry"), "sentry of atoll-1")
	if info, err := os.Stat(filepath.Join(gvisor.RuntimesDir(data), "atoll-1/runsc")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v (expected: a file that can be executed)", info, err)
	}
}

func TestHalfOfABuildIsNoneAndIsRemoved(t *testing.T) {
	data := t.TempDir()
	dir := gvisor.RuntimesDir(data)
	for _, name := range []string{".partial-atoll-1/runsc", ".removed-atoll-0/runsc", "atoll-1/runsc", "agents/.partial-x"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("half"), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	build := fakeBuild(t, "atoll-1")
	d, err := gvisor.New(gvisor.Options{RunscDir: fakeBuild(t, "atoll-2"), RuntimesDir: dir, RunDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if versions := d.Versions(); !slices.Equal(versions, []string{"atoll-2"}) {
		t.Errorf("versions %v (expected: the current one)", versions)
	}
	keep(t, data, build)
	wantFile(t, filepath.Join(dir, "atoll-1/runsc"), "runsc of atoll-1")
	if found := names(t, dir); !slices.Equal(found, []string{"agents", "atoll-1"}) {
		t.Errorf("%v (expected: agents and the build)", found)
	}
	if err := gvisor.RemoveBuilds(data, map[string]bool{"atoll-1": true}, nil); err != nil {
		t.Fatal(err)
	}
	if found := names(t, filepath.Join(dir, "agents")); len(found) > 0 {
		t.Errorf("%v (expected: nothing)", found)
	}
}

func TestBuildsAndAgentsThatNobodyNamesAreRemoved(t *testing.T) {
	data := t.TempDir()
	if err := gvisor.RemoveBuilds(data, nil, nil); err != nil {
		t.Fatalf("nothing kept yet: %v", err)
	}
	for _, version := range []string{"atoll-1", "atoll-2", "atoll-3"} {
		keep(t, data, fakeBuild(t, version))
	}
	var digests []string
	for _, content := range []string{"one", "two", "two"} {
		image := filepath.Join(t.TempDir(), "agent.erofs")
		if err := os.WriteFile(image, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		digest, err := gvisor.KeepAgent(data, image)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
		if err := os.Remove(image); err != nil {
			t.Fatal(err)
		}
		wantFile(t, gvisor.AgentImage(data, digest), content)
	}
	if digests[0] == digests[1] || digests[1] != digests[2] {
		t.Fatalf("digests %v", digests)
	}
	if err := gvisor.RemoveBuilds(data, map[string]bool{"atoll-2": true}, map[string]bool{digests[1]: true}); err != nil {
		t.Fatal(err)
	}
	if found := names(t, gvisor.RuntimesDir(data)); !slices.Equal(found, []string{"agents", "atoll-2"}) {
		t.Errorf("%v (expected: agents and atoll-2)", found)
	}
	if found := names(t, filepath.Dir(gvisor.AgentImage(data, ""))); !slices.Equal(found, []string{digests[1] + ".erofs"}) {
		t.Errorf("%v (expected: the one that is named)", found)
	}
}

func TestVersionThatIsNoNameIsRefused(t *testing.T) {
	for _, version := range []string{"", "../x", "agents", ".hidden", "a b"} {
		if _, err := gvisor.KeepBuild(t.TempDir(), fakeBuild(t, version)); err == nil {
			t.Errorf("version %q was kept", version)
		}
	}
}
