package inner

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGroupsOfBothVersionsTellMemoryWithoutFileContents(t *testing.T) {
	for name, test := range map[string]struct {
		files       map[string]string
		total, used uint64
	}{
		"v2": {map[string]string{
			"memory.current": "100000\n", "memory.max": "200000\n", "memory.stat": "anon 50000\nfile 45000\ninactive_anon 7\ninactive_file 20000\nactive_file 10000\n",
		}, 200000, 70000},
		"v2 without a limit": {map[string]string{
			"memory.current": "100000\n", "memory.max": "max\n", "memory.stat": "anon 50000\ninactive_file 0\nactive_file 0\n",
		}, 0, 100000},
		"v1": {map[string]string{
			"memory.usage_in_bytes": "100000\n", "memory.limit_in_bytes": "200000\n",
			"memory.stat": "cache 1\ninactive_file 5\nactive_file 5\ntotal_cache 1\ntotal_inactive_file 30000\ntotal_active_file 10000\n",
		}, 200000, 60000},
		"more files than use": {map[string]string{
			"memory.current": "100\n", "memory.max": "200\n", "memory.stat": "anon 0\ninactive_file 150\nactive_file 0\n",
		}, 200, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range test.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := openMemory(dir)
			if err != nil {
				t.Fatal(err)
			}
			if total, used, err := m.read(); total != test.total || used != test.used || err != nil {
				t.Fatalf("%d of %d, %v (expected: %d of %d)", used, total, err, test.used, test.total)
			}
		})
	}
}

func TestPlaceSurvivesItsWayToTheInit(t *testing.T) {
	for _, place := range []Place{{Memory: "/proc/meminfo"}, {Memory: "/a b/-c", Hidden: "/.streams", SharedKernel: true}} {
		if got, err := parsePlace(place.Arguments()); err != nil || got != place {
			t.Fatalf("%+v, %v (expected: %+v)", got, err, place)
		}
	}
	if _, err := parsePlace([]string{"more"}); err == nil {
		t.Fatal("an argument that means nothing was taken")
	}
}
