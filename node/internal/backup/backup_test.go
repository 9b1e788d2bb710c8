package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/snapshot"
)

// rig is a data folder as server and engine leave it, without either.
type rig struct {
	t          *testing.T
	data       string
	recipes    string
	file       string
	named      string
	atTheStore func()
	snapshots  *snapshot.Store
}

func id(prefix string, n int) string { return fmt.Sprintf("%s-%026d", prefix, n) }

const digest = "1ebfb1e0161cc63596c99306704530b9e18e97ae78ae527abbf67525e26bd7a8"

func newRig(t *testing.T) *rig {
	t.Helper()
	if os.Geteuid() == 0 {
		if _, err := user.Lookup(serverUser); err != nil {
			t.Fatalf("%v (remedy: ./atoll up makes the user)", err)
		}
	}
	r := &rig{t: t, data: filepath.Join(t.TempDir(), "data"), recipes: t.TempDir(), file: filepath.Join(t.TempDir(), "b.tar.zst"), named: "{}"}
	r.put("instance", "0123abcd")
	r.put("secret/master-key", "master")
	r.put("secret/api-key", "api")
	r.put("server.conf", "pool.depth=1\n")
	r.put("epoch", "3")
	r.put("spool/box/exec-1/1", "printed")
	r.put("templates/logs/build", "log")
	r.put("runtimes/v1/VERSION", "v1")
	r.put("runtimes/v1/sub/runsc", "program")
	r.put("runtimes/agents/a1.erofs", "agent")
	r.put("layers/large", "not in it")
	if err := os.Chmod(filepath.Join(r.data, "runtimes/v1/sub/runsc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"python-1.json": `{"name":"python","digest":"` + digest + `"}`, "python-1.erofs": "image"} {
		if err := os.WriteFile(filepath.Join(r.recipes, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r.openSnapshots()
	return r
}

func (r *rig) openSnapshots() {
	r.t.Helper()
	var err error
	if r.snapshots, err = snapshot.Open(r.data, slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.snapshots.Close)
}

func (r *rig) put(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.data, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		r.t.Fatal(err)
	}
}

// snapshot makes one, of which nobody has made checksums yet; of a box: its pause.
func (r *rig) snapshot(n int, pausedBox string) string {
	r.t.Helper()
	d, err := r.snapshots.Begin(id("snap", n), "snapshot")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.Mkdir(d.Image(), 0o700); err != nil {
		r.t.Fatal(err)
	}
	for name, content := range map[string][]byte{"checkpoint.img": []byte("state"), "pages.img": bytes.Repeat([]byte{byte(n)}, 8192), "pages_meta.img": []byte("meta")} {
		if err := os.WriteFile(filepath.Join(d.Image(), name), content, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	m := &snapshot.Manifest{
		Snapshot: &enginev1.Snapshot{
			Kind: enginev1.SnapshotKind_SNAPSHOT_KIND_MEMORY, SandboxId: fmt.Sprint("sb-", n), ImageDigest: digest, RuntimeVersion: "v1", AgentDigest: "a1",
		},
		PausedBox: pausedBox, FrameKey: strings.Repeat("ab", 32), Epoch: 7,
	}
	if _, err := d.Commit(m); err != nil {
		r.t.Fatal(err)
	}
	return id("snap", n)
}

// paused makes a paused box, with a container that may still be named.
func (r *rig) paused(n int) (boxID, snapshotID string) {
	r.t.Helper()
	boxID = id("box", n)
	snapshotID = r.snapshot(n, boxID)
	r.put("boxes/"+boxID+"/box.json", `{"box":{"boxId":"`+boxID+`","sandboxId":"sb-`+fmt.Sprint(n)+`","spec":{"imageDigest":"`+digest+`"},"state":"BOX_STATE_RESUMING","pauseSnapshotId":"`+snapshotID+
		`"},"image_path":"/elsewhere/python.erofs","image_metadata":"{\"digest\":\"`+digest+`\"}","container":{"id":"`+boxID+`","process":{"pid":1,"start_time":1,"boot_id":"b"}},"frozen":true}`)
	return boxID, snapshotID
}

func (r *rig) write(ctx context.Context, change func(*Writing)) (Result, error) {
	r.t.Helper()
	w := Writing{
		Data: r.data, Recipes: r.recipes, File: r.file, Version: "test", StoreFolder: r.t.TempDir(),
		CopyStore: func(_ context.Context, folder string) error {
			if r.atTheStore != nil {
				r.atTheStore()
			}
			return errors.Join(os.WriteFile(filepath.Join(folder, "atoll.db"), []byte("store"), 0o644), os.WriteFile(filepath.Join(folder, "named.json"), []byte(r.named), 0o644))
		},
	}
	if change != nil {
		change(&w)
	}
	return Write(ctx, w)
}

func (r *rig) backup() Result {
	r.t.Helper()
	result, err := r.write(context.Background(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

func (r *rig) restore() (data string, result Restored) {
	r.t.Helper()
	data = filepath.Join(r.t.TempDir(), "new")
	result, err := Restore(context.Background(), Restoring{File: r.file, Data: data, Recipes: r.recipes})
	if err != nil {
		r.t.Fatal(err)
	}
	return data, result
}

func (r *rig) nothingLeft() {
	r.t.Helper()
	for _, name := range []string{r.file, r.file + ".partial"} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			r.t.Errorf("%s is there (%v)", name, err)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWhatIsRestoredIsWhatWasBackedUp(t *testing.T) {
	r := newRig(t)
	box, pause := r.paused(1)
	kept := r.snapshot(2, "")
	golden := r.snapshot(3, "")
	r.named = `{"sandboxes":[{"id":"sb-1","name":"work","state":"PAUSED","box":"` + box + `","paused_in":"` + pause + `"},{"id":"sb-9","state":"RUNNING","box":"` + id("box", 9) + `"}],
		"snapshots":[{"id":"` + kept + `","name":"base","state":"READY","sandbox":"sb-9"}],"images":["` + digest + `"]}`
	result, err := r.write(context.Background(), func(w *Writing) { w.Taken = []string{kept} })
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Missing) > 0 || len(result.Paused) != 1 || result.Paused[0].Name != "work" || result.Running[0].Snapshot != kept || result.Images != 1 {
		t.Errorf("%+v", result)
	}
	if info, err := os.Stat(r.file); err != nil || info.Mode().Perm() != 0o600 || info.Size() != result.Bytes {
		t.Errorf("%v, %v (expected: mode 0600, %d bytes)", info, err, result.Bytes)
	}
	data, restored := r.restore()
	if len(restored.Paused) != 1 || restored.Version != "test" {
		t.Errorf("%+v", restored)
	}
	for name, want := range map[string]string{
		"atoll.db": "store", "secret/master-key": "master", "secret/api-key": "api", "server.conf": "pool.depth=1\n", "epoch": "3", "spool/box/exec-1/1": "printed",
		"templates/logs/build": "log", "runtimes/v1/VERSION": "v1", "runtimes/agents/a1.erofs": "agent", "snapshots/key": read(t, filepath.Join(r.data, "snapshots/key")),
		"snapshots/" + pause + "/image/checkpoint.img": "state",
	} {
		if got := read(t, filepath.Join(data, name)); got != want {
			t.Errorf("%s: %q (expected: %q)", name, got, want)
		}
	}
	for name, want := range map[string]os.FileMode{
		"atoll.db": 0o600, "secret": 0o700, "secret/master-key": 0o600, "snapshots": 0o700, "snapshots/key": 0o600, "boxes": 0o700, "runtimes/v1": 0o755, "runtimes/v1/sub/runsc": 0o755,
	} {
		info, err := os.Stat(filepath.Join(data, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v (expected: %v)", name, info, err, want)
		}
		if own, ok := info.Sys().(*syscall.Stat_t); os.Geteuid() == 0 && (!ok || (own.Uid != 0) != (name == "atoll.db" || strings.HasPrefix(name, "secret"))) {
			t.Errorf("%s is of user %d", name, own.Uid)
		}
	}
	for _, name := range []string{"instance", "layers", "snapshots/" + golden, restoringName} {
		if _, err := os.Lstat(filepath.Join(data, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	// The box is paused, has nothing of another machine, and its image where it is here.
	var record struct {
		Box       struct{ State string }
		ImagePath string `json:"image_path"`
		Container struct {
			ID      string
			Process struct{ PID int }
		}
		Frozen bool
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(data, "boxes", box, "box.json"))), &record); err != nil {
		t.Fatal(err)
	}
	if record.Box.State != "BOX_STATE_PAUSED" || record.ImagePath != filepath.Join(r.recipes, "python-1.erofs") || record.Container.ID != "" || record.Container.Process.PID != 0 || record.Frozen {
		t.Errorf("%+v", record)
	}
	// An engine uses the snapshots, whose checksums nobody had made when they were backed up.
	r.data = data
	r.openSnapshots()
	for _, s := range []string{pause, kept} {
		use, err := r.snapshots.Use(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		use.Close()
	}
}

func TestWhatGoesWhileTheStoreIsCopiedIsInTheBackup(t *testing.T) {
	r := newRig(t)
	box, pause := r.paused(1)
	kept := r.snapshot(2, "")
	var later, laterPause string
	r.atTheStore = func() {
		// Once more: of two pauses, the one that the store names is the one.
		r.snapshot(6, box)
		// Resumed and deleted in the moment that the store is copied in, which names both; another is paused in it.
		if err := errors.Join(r.snapshots.Remove(pause), r.snapshots.Remove(kept), os.RemoveAll(filepath.Join(r.data, "boxes", box))); err != nil {
			t.Error(err)
		}
		later, laterPause = r.paused(3)
		r.named = `{"sandboxes":[{"id":"sb-1","state":"PAUSED","box":"` + box + `","paused_in":"` + pause + `"},{"id":"sb-3","state":"PAUSING","box":"` + later + `","paused_in":"` + laterPause + `"}],"snapshots":[{"id":"` + kept + `","state":"READY"}]}`
	}
	if result := r.backup(); len(result.Missing) > 0 || len(result.Paused) != 2 || len(result.Snapshots) != 1 {
		t.Fatalf("%+v", result)
	}
	data, _ := r.restore()
	for n, s := range map[byte]string{1: pause, 2: kept, 3: laterPause} {
		if got := read(t, filepath.Join(data, "snapshots", s, "image/pages.img")); got != string(bytes.Repeat([]byte{n}, 8192)) {
			t.Errorf("%s is not what it was", s)
		}
	}
}

func TestWhatTheStoreNamesAndIsNotThereIsTold(t *testing.T) {
	r := newRig(t)
	box, pause := r.paused(1)
	changed := r.snapshot(2, "")
	good := r.snapshot(3, "")
	bad, badPause := r.paused(4)
	r.snapshots.Close()
	// Of one that had no checksums, and of one that has: the second is found out only when it is read.
	if err := os.WriteFile(filepath.Join(r.data, "snapshots", changed, "image/checkpoint.img"), []byte("STATE"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.openSnapshots()
	use, err := r.snapshots.Use(context.Background(), badPause)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.snapshots.Begin(id("snap", 5), "snapshot")
	if err != nil {
		t.Fatal(err)
	}
	// Makes checksums of what it links.
	if _, err := d.Link(context.Background(), use); err != nil {
		t.Fatal(err)
	}
	use.Close()
	if err := d.Discard(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.data, "snapshots", badPause, "image/pages.img"), bytes.Repeat([]byte{'x'}, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(r.data, "runtimes/agents/a1.erofs")); err != nil {
		t.Fatal(err)
	}
	r.named = `{"sandboxes":[{"id":"sb-1","state":"PAUSED","box":"` + box + `","paused_in":"` + pause + `"},{"id":"sb-2","state":"PAUSED","box":"` + id("box", 7) + `"},{"id":"sb-4","state":"PAUSED","box":"` + bad + `","paused_in":"` + badPause + `"}],
		"snapshots":[{"id":"` + changed + `","state":"READY"},{"id":"` + id("snap", 8) + `","state":"READY"},{"id":"` + id("snap", 9) + `","state":"CREATING"},{"id":"` + good + `","state":"READY"}],
		"images":["` + strings.Repeat("0", 64) + `"]}`
	result := r.backup()
	var missing []string
	for _, m := range result.Missing {
		missing = append(missing, m.Kind+" "+m.ID)
	}
	slices.Sort(missing)
	// That of a template is no loss: it is made again.
	want := []string{"agent a1", "sandbox sb-2", "sandbox sb-4", "snapshot " + changed, "snapshot " + id("snap", 8)}
	slices.Sort(want)
	if !slices.Equal(missing, want) {
		t.Errorf("%q (expected: %q)\n%+v", missing, want, result.Missing)
	}
	data, _ := r.restore()
	for name, there := range map[string]bool{"snapshots/" + pause: true, "snapshots/" + good: true, "snapshots/" + changed: false, "snapshots/" + badPause: false, "boxes/" + box: true, "boxes/" + bad: false} {
		if _, err := os.Lstat(filepath.Join(data, name)); there != (err == nil) {
			t.Errorf("%s: %v (expected: there %v)", name, err, there)
		}
	}
}

func TestInterruptedBackupLeavesNothing(t *testing.T) {
	for name, spoil := range map[string]func(r *rig, w *Writing, cancel func()){
		"while the store is copied": func(r *rig, w *Writing, cancel func()) { r.atTheStore = cancel },
		"while files are written":   func(r *rig, w *Writing, cancel func()) { w.Progress = func(int64, int64) { cancel() } },
		"the store can't be copied": func(r *rig, w *Writing, cancel func()) {
			w.CopyStore = func(context.Context, string) error { return errors.New("no") }
		},
		"a key is gone": func(r *rig, w *Writing, cancel func()) {
			if err := os.Remove(filepath.Join(r.data, "secret/master-key")); err != nil {
				r.t.Fatal(err)
			}
		},
		"a key is a link": func(r *rig, w *Writing, cancel func()) {
			name := filepath.Join(r.data, "secret/api-key")
			if err := errors.Join(os.Remove(name), os.Symlink("/etc/hostname", name)); err != nil {
				r.t.Fatal(err)
			}
		},
		"a key is a pipe": func(r *rig, w *Writing, cancel func()) {
			name := filepath.Join(r.data, "secret/api-key")
			if err := errors.Join(os.Remove(name), unix.Mkfifo(name, 0o600)); err != nil {
				r.t.Fatal(err)
			}
		},
	} {
		r := newRig(t)
		ctx, cancel := context.WithCancel(context.Background())
		if _, err := r.write(ctx, func(w *Writing) { spoil(r, w, cancel) }); err == nil {
			t.Errorf("%s: no error", name)
		}
		r.nothingLeft()
		cancel()
	}
}

func TestBackupReplacesNoFile(t *testing.T) {
	r := newRig(t)
	if err := os.WriteFile(r.file, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := r.write(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("error %v", err)
	}
	if got := read(t, r.file); got != "mine" {
		t.Errorf("the file is %q", got)
	}
}

// unpacked are the entries of a backup.
func (r *rig) unpacked() (headers []*tar.Header, texts [][]byte) {
	r.t.Helper()
	in, err := zstd.NewReader(strings.NewReader(read(r.t, r.file)))
	if err != nil {
		r.t.Fatal(err)
	}
	defer in.Close()
	archive := tar.NewReader(in)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return headers, texts
		}
		if err != nil {
			r.t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			r.t.Fatal(err)
		}
		headers, texts = append(headers, h), append(texts, text)
	}
}

func (r *rig) pack(headers []*tar.Header, texts [][]byte) {
	r.t.Helper()
	var out bytes.Buffer
	packed, err := zstd.NewWriter(&out)
	if err != nil {
		r.t.Fatal(err)
	}
	archive := tar.NewWriter(packed)
	for i, h := range headers {
		h.Size = int64(len(texts[i]))
		if err := archive.WriteHeader(h); err != nil {
			r.t.Fatal(err)
		}
		if _, err := archive.Write(texts[i]); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), packed.Close(), os.WriteFile(r.file, out.Bytes(), 0o600)); err != nil {
		r.t.Fatal(err)
	}
}

// refused restores what must not be, and sees that nothing is left of it.
func (r *rig) refused(what string) {
	r.t.Helper()
	parent := r.t.TempDir()
	recipes := r.t.TempDir()
	_, err := Restore(context.Background(), Restoring{File: r.file, Data: filepath.Join(parent, "new"), Recipes: recipes})
	if err == nil {
		r.t.Errorf("%s: it was restored", what)
	}
	if _, err := Restore(context.Background(), Restoring{File: r.file}); err == nil {
		r.t.Errorf("%s: it was found whole", what)
	}
	for _, dir := range []string{parent, recipes} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			r.t.Errorf("%s: %v is left (%v)", what, left, err)
		}
	}
}

func TestTruncatedBackupIsRefused(t *testing.T) {
	r := newRig(t)
	box, pause := r.paused(1)
	r.named = `{"sandboxes":[{"id":"sb-1","state":"PAUSED","box":"` + box + `","paused_in":"` + pause + `"}]}`
	r.backup()
	whole := read(t, r.file)
	for n := 0; n < len(whole); n += 1 + len(whole)/40 {
		if err := os.WriteFile(r.file, []byte(whole[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
		r.refused(fmt.Sprint("the first ", n, " of ", len(whole), " bytes"))
	}
	for _, n := range []int{1, 2, 5} {
		if err := os.WriteFile(r.file, []byte(whole[:len(whole)-n]), 0o600); err != nil {
			t.Fatal(err)
		}
		r.refused(fmt.Sprint("all but the last ", n, " bytes"))
	}
	if err := os.WriteFile(r.file, []byte(whole+"more"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.refused("with more at its end")
}

func unpack(packed []byte) ([]byte, error) {
	in, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

func TestChangedBackupIsRefused(t *testing.T) {
	r := newRig(t)
	box, pause := r.paused(1)
	r.named = `{"sandboxes":[{"id":"sb-1","state":"PAUSED","box":"` + box + `","paused_in":"` + pause + `"}]}`
	r.backup()
	whole := []byte(read(t, r.file))
	original, err := unpack(whole)
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for n := 0; n < len(whole); n += 1 + len(whole)/40 {
		changed := bytes.Clone(whole)
		changed[n] ^= 0x10
		if err := os.WriteFile(r.file, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		// There are bits that mean nothing, and others that say the same in another way.
		if unpacked, err := unpack(changed); err == nil && bytes.Equal(unpacked, original) {
			same++
			continue
		}
		r.refused(fmt.Sprint("byte ", n, " of ", len(whole), " changed"))
	}
	if same > 10 {
		t.Fatalf("%d changes of 41 changed nothing", same)
	}
	// Packed again by somebody who knows how.
	for what, change := range map[string]func(headers []*tar.Header, texts [][]byte) ([]*tar.Header, [][]byte){
		"a key is another": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) {
			i := slices.IndexFunc(h, func(h *tar.Header) bool { return h.Name == "data/secret/api-key" })
			t[i] = []byte("mine")
			return h, t
		},
		"a file is not there": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) {
			return slices.Delete(h, 3, 4), slices.Delete(t, 3, 4)
		},
		"two are exchanged": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) {
			h[2], h[3] = h[3], h[2]
			return h, t
		},
		"one more": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) {
			return slices.Insert(h, 1, &tar.Header{Typeflag: tar.TypeReg, Name: "data/extra", Mode: 0o600}), slices.Insert(t, 1, []byte("x"))
		},
		"one that leaves its folder": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) {
			return slices.Insert(h, 1, &tar.Header{Typeflag: tar.TypeReg, Name: "data/../../extra", Mode: 0o600}), slices.Insert(t, 1, []byte("x"))
		},
		"an image that leaves its folder": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) {
			return slices.Insert(h, 1, &tar.Header{Typeflag: tar.TypeReg, Name: "recipes/../x.json", Mode: 0o600}), slices.Insert(t, 1, []byte("x"))
		},
		"a link": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) {
			return slices.Insert(h, 1, &tar.Header{Typeflag: tar.TypeSymlink, Name: "data/secret", Linkname: "/tmp"}), slices.Insert(t, 1, []byte(nil))
		},
		"no list": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) { return h[:len(h)-1], t[:len(t)-1] },
		"a list without the keys": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) {
			return []*tar.Header{h[0], h[len(h)-1]}, [][]byte{t[0], []byte(`{"files":[]}`)}
		},
		"of a newer program": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) {
			t[0] = bytes.Replace(t[0], []byte(`"format":1`), []byte(`"format":2`), 1)
			return h, t
		},
		"of another machine": func(h []*tar.Header, t [][]byte) ([]*tar.Header, [][]byte) {
			t[0] = bytes.Replace(t[0], []byte(`"architecture":"`), []byte(`"architecture":"x`), 1)
			return h, t
		},
	} {
		if err := os.WriteFile(r.file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		r.pack(change(r.unpacked()))
		r.refused(what)
	}
	for _, text := range []string{"", "no backup", "\x28\xb5\x2f\xfd"} {
		if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.refused(fmt.Sprintf("%q", text))
	}
}

func TestOnlyAnEmptyFolderIsRestoredInto(t *testing.T) {
	r := newRig(t)
	r.backup()
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(context.Background(), Restoring{File: r.file, Data: data, Recipes: r.recipes}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	// An empty one stays when the restore fails.
	empty := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Restore(ctx, Restoring{File: r.file, Data: empty, Recipes: r.recipes}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestImageOfARecipeIsPutBesideAnotherOfIt(t *testing.T) {
	r := newRig(t)
	box, pause := r.paused(1)
	r.named = `{"sandboxes":[{"id":"sb-1","state":"PAUSED","box":"` + box + `","paused_in":"` + pause + `"}]}`
	r.backup()
	for name, recipes := range map[string]map[string]string{
		"none":    {},
		"another": {"python-1.json": `{"name":"python","digest":"` + strings.Repeat("2", 64) + `"}`, "python-1.erofs": "other"},
		"it":      {"renamed-1.json": `{"name":"python","digest":"` + digest + `"}`, "renamed-1.erofs": "image"},
	} {
		r.recipes = t.TempDir()
		for file, text := range recipes {
			if err := os.WriteFile(filepath.Join(r.recipes, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		data, _ := r.restore()
		var record struct {
			ImagePath string `json:"image_path"`
		}
		if err := json.Unmarshal([]byte(read(t, filepath.Join(data, "boxes", box, "box.json"))), &record); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"none": "python-1.erofs", "another": "python-" + digest[:32] + ".erofs", "it": "renamed-1.erofs"}[name]
		if record.ImagePath != filepath.Join(r.recipes, want) || read(t, record.ImagePath) != "image" {
			t.Errorf("%s: the image is at %s (expected: %s)", name, record.ImagePath, want)
		}
		for file, text := range recipes {
			if got := read(t, filepath.Join(r.recipes, file)); got != text {
				t.Errorf("%s: %s is now %q", name, file, got)
			}
		}
		if name == "another" {
			// New sandboxes are made of the newest.
			own, err := os.Stat(record.ImagePath)
			there, err2 := os.Stat(filepath.Join(r.recipes, "python-1.erofs"))
			if err := errors.Join(err, err2); err != nil || !own.ModTime().Before(there.ModTime()) {
				t.Errorf("%v is not older than %v (%v)", own.ModTime(), there.ModTime(), err)
			}
		}
		if found, err := os.ReadDir(r.recipes); err != nil || len(found) != max(2, len(recipes)+map[string]int{"another": 2}[name]) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}
