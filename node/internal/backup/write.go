package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"atoll/node/internal/box"
	"atoll/node/internal/image"
	"atoll/node/internal/snapshot"
)

// Writing says what is backed up, and to where.
type Writing struct {
	// Data is the data folder, Recipes the one with the images of recipes.
	Data, Recipes string
	// File must not exist. It is there when it is whole.
	File string
	// Version of Atoll.
	Version string
	// CopyStore copies the store to atoll.db in a folder, and writes what it names to named.json there.
	CopyStore func(ctx context.Context, folder string) error
	// StoreFolder is for that copy; the caller makes and removes it.
	StoreFolder string
	// Taken are the snapshots that were made of running sandboxes for this backup.
	Taken []string
	// Progress hears how many of how many bytes are in it; may be nil.
	Progress func(done, total int64)
}

// Result is what has been written.
type Result struct {
	File string `json:"file"`
	// Bytes is its size, Holds that of the files in it.
	Bytes  int64  `json:"bytes"`
	Holds  int64  `json:"holds_bytes"`
	SHA256 string `json:"sha256"`
	Report
}

// item is one file on its way into the archive.
type item struct {
	name string
	mode fs.FileMode
	// atoll says that it belongs to the server's user.
	atoll    bool
	modified time.Time
	size     int64
	// One of these has the content.
	text []byte
	file *os.File
	// needed: without it there is no backup. Else it is dropped, with the folder that drops names.
	needed bool
	drops  string
	// sum is set when it has been written.
	sum string
}

type writer struct {
	Writing
	root     *os.Root
	held     map[string]*snapshot.Held
	boxes    map[string]box.Backed
	refused  map[string]string
	items    []*item
	archive  *tar.Writer
	contents contents
	done     int64
	total    int64
}

// Write makes a backup. Until it is whole it has another name, and whatever ends it leaves nothing of it.
func Write(ctx context.Context, w Writing) (result Result, err error) {
	if _, err := os.Lstat(w.File); err == nil {
		return Result{}, fmt.Errorf("%s is there already (remedy: name another file)", w.File)
	}
	root, err := os.OpenRoot(w.Data)
	if err != nil {
		return Result{}, err
	}
	defer root.Close()
	b := &writer{Writing: w, root: root, held: map[string]*snapshot.Held{}, boxes: map[string]box.Backed{}, refused: map[string]string{}}
	defer b.close()
	// First of all: a file that can't be written is known before the work is done.
	partial := w.File + ".partial"
	out, err := os.OpenFile(partial, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return Result{}, err
	}
	defer out.Close()
	if err := unix.FcntlFlock(out.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return Result{}, fmt.Errorf("%s is being written by another backup: %w", partial, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreAbsence(os.Remove(partial)))
		}
	}()
	// It holds keys, whoever began an earlier one.
	if err := errors.Join(out.Chmod(0o600), out.Truncate(0)); err != nil {
		return Result{}, err
	}
	if err := b.collect(ctx); err != nil {
		return Result{}, err
	}
	sum := sha256.New()
	counter := &counting{w: io.MultiWriter(out, sum)}
	if err := b.write(ctx, counter); err != nil {
		return Result{}, err
	}
	if err := out.Sync(); err != nil {
		return Result{}, err
	}
	// Not over a file that has come meanwhile.
	if err := unix.Renameat2(unix.AT_FDCWD, partial, unix.AT_FDCWD, w.File, unix.RENAME_NOREPLACE); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = os.Rename(partial, w.File)
		if err != nil {
			return Result{}, err
		}
	} else if err != nil {
		return Result{}, fmt.Errorf("%s: %w", w.File, err)
	}
	if err := snapshot.SyncDir(filepath.Dir(w.File)); err != nil {
		return Result{}, err
	}
	return Result{File: w.File, Bytes: counter.n, Holds: b.total, SHA256: hex.EncodeToString(sum.Sum(nil)), Report: b.contents.Report}, nil
}

func ignoreAbsence(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (b *writer) close() {
	for _, h := range b.held {
		h.Close()
	}
	for _, i := range b.items {
		if i.file != nil {
			i.file.Close()
		}
	}
}

// collect opens all that goes into the backup.
func (b *writer) collect(ctx context.Context) error {
	b.hold()
	copied := make(chan error, 1)
	go func() { copied <- b.CopyStore(ctx, b.StoreFolder) }()
	tick := time.NewTicker(holdInterval)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case err := <-copied:
			if err != nil {
				return err
			}
			done = true
		case <-tick.C:
		}
		// The moment that the copy is of is one in between, and what is paused then may be resumed before the copy is done.
		b.hold()
	}
	list, err := openPlain(filepath.Join(b.StoreFolder, "named.json"))
	if err != nil {
		return err
	}
	defer list.Close()
	text, err := io.ReadAll(list)
	if err != nil {
		return err
	}
	var n named
	if err := json.Unmarshal(text, &n); err != nil {
		return fmt.Errorf("what the store names: %w", err)
	}
	if err := b.essentials(); err != nil {
		return err
	}
	wanted := b.choose(n)
	for _, digest := range n.Images {
		if _, ok := wanted[digest]; !ok {
			// Of a template: what is not there any more is made when it is used.
			wanted[digest] = ""
		}
	}
	if err := b.images(wanted); err != nil {
		return err
	}
	if err := b.runtimes(); err != nil {
		return err
	}
	return errors.Join(b.tree("templates", true), b.tree("spool", false))
}

// holdInterval is shorter than any pause that is of use to anybody.
const holdInterval = 20 * time.Millisecond

// hold opens the snapshots that there are at this moment, and reads the records of the boxes. What was opened before stays.
func (b *writer) hold() {
	entries, _ := os.ReadDir(filepath.Join(b.Data, "boxes"))
	for _, e := range entries {
		if _, known := b.boxes[e.Name()]; known || !box.ValidID(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(b.Data, "boxes", e.Name(), box.RecordName))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var found box.Backed
		ok := false
		if err == nil {
			found, ok, err = box.Backup(text)
		}
		if err != nil {
			b.refused[e.Name()] = err.Error()
		} else if ok && found.ID == e.Name() {
			b.boxes[found.ID] = found
		}
	}
	entries, _ = os.ReadDir(snapshot.Dir(b.Data))
	for _, e := range entries {
		if b.held[e.Name()] != nil || !snapshot.ValidID(e.Name()) {
			continue
		}
		h, err := snapshot.Hold(b.Data, e.Name())
		switch {
		case err == nil:
			b.held[e.Name()] = h
			delete(b.refused, e.Name())
		case !errors.Is(err, os.ErrNotExist):
			b.refused[e.Name()] = err.Error()
		}
	}
}

func (b *writer) add(i *item) { b.items = append(b.items, i) }

// open adds a file of the data folder. It follows no link out of it, and takes nothing but files.
func (b *writer) open(name string, change func(*item)) error {
	f, err := b.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return b.addOpen(dataPrefix+filepath.ToSlash(name), f, change)
}

func (b *writer) addOpen(name string, f *os.File, change func(*item)) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", name)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	i := &item{name: name, mode: info.Mode().Perm(), modified: info.ModTime(), size: info.Size(), file: f}
	if change != nil {
		change(i)
	}
	b.add(i)
	return nil
}

// openPlain opens a file where the server's user may write.
func openPlain(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
}

func essential(i *item) { i.needed = true }

func ofServer(i *item) { i.needed, i.atoll = true, true }

// essentials are the store, the keys and the settings.
func (b *writer) essentials() error {
	store, err := openPlain(filepath.Join(b.StoreFolder, storeName))
	if err != nil {
		return err
	}
	err = b.addOpen(dataPrefix+storeName, store, func(i *item) { i.needed, i.atoll, i.mode = true, true, 0o600 })
	for _, name := range []string{"secret/master-key", "secret/api-key"} {
		err = errors.Join(err, b.open(name, ofServer))
	}
	err = errors.Join(err, ignoreAbsence(b.open("server.conf", essential)), ignoreAbsence(b.open("epoch", essential)))
	// There is none before the engine has run for the first time.
	return errors.Join(err, ignoreAbsence(b.open(filepath.Join("snapshots", snapshot.KeyName), essential)))
}

func (b *writer) missing(kind, id, why string) {
	b.contents.Report.Missing = append(b.contents.Report.Missing, Missing{Kind: kind, ID: id, Why: why})
}

// choose takes of what is held what the store names, and returns the images that it needs, with what for.
func (b *writer) choose(n named) map[string]string {
	images := map[string]string{}
	chosen := map[string]bool{}
	r := &b.contents.Report
	r.Paused, r.Running, r.Snapshots, r.Missing = []Sandbox{}, []Sandbox{}, []Snapshot{}, []Missing{}
	taken := map[string]string{}
	for _, s := range n.Snapshots {
		h := b.held[s.ID]
		if h == nil {
			if s.State == "READY" {
				b.missing("snapshot", s.ID, b.why(s.ID, "it was not there"))
			}
			continue
		}
		chosen[s.ID] = true
		images[h.Manifest.Snapshot.GetImageDigest()] = "snapshot " + s.ID
		r.Snapshots = append(r.Snapshots, Snapshot{ID: s.ID, Name: s.Name})
		if slices.Contains(b.Taken, s.ID) {
			taken[s.Sandbox] = s.ID
		}
	}
	for _, s := range n.Sandboxes {
		found, known := b.boxes[s.Box]
		h := b.held[s.PausedIn]
		switch {
		case h != nil && h.Manifest.PausedBox == s.Box && known && s.State != "RUNNING" && s.State != "CREATING":
			record, err := found.PausedTo(s.PausedIn, h.Manifest.Bytes()).Record("")
			if err != nil {
				b.missing("sandbox", s.ID, err.Error())
				continue
			}
			chosen[s.PausedIn] = true
			images[found.ImageDigest] = "sandbox " + s.ID
			b.add(&item{name: path.Join("data/boxes", found.ID, box.RecordName), mode: 0o600, size: int64(len(record)), text: record, needed: true})
			r.Paused = append(r.Paused, Sandbox{ID: s.ID, Name: s.Name})
		case s.State != "PAUSED":
			// One that was being paused goes on, as after a crash; so does one that was being rolled back.
			r.Running = append(r.Running, Sandbox{ID: s.ID, Name: s.Name, Snapshot: taken[s.ID]})
		case !known:
			b.missing("sandbox", s.ID, b.why(s.Box, "its box is not there"))
		default:
			b.missing("sandbox", s.ID, b.why(s.PausedIn, "what it was paused to is not there"))
		}
	}
	for id, h := range b.held {
		if !chosen[id] {
			h.Close()
			delete(b.held, id)
		}
	}
	return images
}

func (b *writer) why(id, otherwise string) string {
	if why := b.refused[id]; why != "" {
		return why
	}
	return otherwise
}

// images adds images by their digests, with who needs them; nobody's may be missing.
func (b *writer) images(wanted map[string]string) error {
	for _, place := range []struct{ dir, prefix string }{{filepath.Join(b.Data, "images"), "data/images/"}, {b.Recipes, recipesPrefix}} {
		if place.dir == "" {
			continue
		}
		store := image.NewStore(place.dir)
		for digest := range wanted {
			found, err := store.Find(digest)
			if err != nil {
				continue
			}
			delete(wanted, digest)
			b.contents.Report.Images++
			metadata := strings.TrimSuffix(filepath.Base(found.Path), ".erofs") + ".json"
			if found.Metadata.File != "" {
				metadata = digest + ".json"
			}
			b.add(&item{name: place.prefix + metadata, mode: 0o644, modified: found.Built, size: int64(len(found.JSON)), text: []byte(found.JSON), needed: true})
			if name := place.prefix + filepath.Base(found.Path); !slices.ContainsFunc(b.items, func(i *item) bool { return i.name == name }) {
				f, err := os.Open(found.Path)
				if err != nil {
					return err
				}
				if err := b.addOpen(name, f, func(i *item) { i.needed = true }); err != nil {
					return err
				}
			}
		}
	}
	for digest, who := range wanted {
		if who != "" {
			b.missing("image", digest, "of "+who+": it is not there")
		}
	}
	return nil
}

// runtimes adds the builds of runsc and the agents' images that the snapshots need.
func (b *writer) runtimes() error {
	folders, agents := map[string]bool{}, map[string]bool{}
	for _, h := range b.held {
		folders[h.Manifest.Snapshot.GetRuntimeVersion()] = true
		agents[h.Manifest.Snapshot.GetAgentDigest()] = true
	}
	for version := range folders {
		dir := filepath.Join("runtimes", version)
		if !filepath.IsLocal(version) || strings.Contains(version, "/") {
			return fmt.Errorf("runtime %.40q", version)
		}
		if _, err := b.root.Stat(dir); errors.Is(err, os.ErrNotExist) {
			b.missing("runtime", version, "it is not there: what it made can't be resumed")
		} else if err := b.tree(dir, false); err != nil {
			return err
		}
	}
	for digest := range agents {
		if !filepath.IsLocal(digest) || strings.Contains(digest, "/") {
			return fmt.Errorf("agent %.80q", digest)
		}
		err := b.open(filepath.Join("runtimes", "agents", digest+".erofs"), essential)
		if errors.Is(err, os.ErrNotExist) {
			b.missing("agent", digest, "it is not there: what it is in can't be resumed")
		} else if err != nil {
			return err
		}
	}
	return nil
}

// tree adds the files below a folder of the data folder. What goes meanwhile is left out.
func (b *writer) tree(dir string, atoll bool) error {
	err := fs.WalkDir(b.root.FS(), dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return ignoreAbsence(err)
		}
		err = b.open(name, func(i *item) { i.atoll, i.drops = atoll, i.name })
		if errors.Is(err, unix.ELOOP) {
			// It has become something else.
			return nil
		}
		return ignoreAbsence(err)
	})
	return ignoreAbsence(err)
}

type counting struct {
	w io.Writer
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (b *writer) write(ctx context.Context, out io.Writer) error {
	for _, i := range b.items {
		b.total += i.size
	}
	for _, h := range b.held {
		b.total += int64(h.Manifest.Bytes())
	}
	buffered := bufio.NewWriterSize(out, 1<<20)
	packed, err := zstd.NewWriter(buffered, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)))
	if err != nil {
		return err
	}
	b.archive = tar.NewWriter(packed)
	if err := b.writeAll(ctx); err != nil {
		// What the encoder holds is not wanted any more; its goroutines end with this.
		packed.Reset(nil)
		return err
	}
	return errors.Join(b.archive.Close(), packed.Close(), buffered.Flush())
}

func (b *writer) writeAll(ctx context.Context) error {
	instance, err := b.root.ReadFile("instance")
	if err != nil {
		return err
	}
	head := Head{
		Format: format, Version: b.Version, Architecture: runtime.GOARCH, Instance: strings.TrimSpace(string(instance)),
		MadeAt: time.Now().UTC().Format(time.RFC3339),
	}
	if err := b.describe(headName, encode(head)); err != nil {
		return err
	}
	for _, i := range b.items {
		if err := b.writeItem(ctx, i); err != nil {
			return err
		}
		if i.file != nil {
			i.file.Close()
		}
	}
	ids := make([]string, 0, len(b.held))
	for id := range b.held {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if err := b.writeSnapshot(ctx, b.held[id]); err != nil {
			return err
		}
		b.held[id].Close()
	}
	return b.describe(contentsName, encode(b.contents))
}

// describe writes one of the archive's own files.
func (b *writer) describe(name string, text []byte) error {
	err := b.archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), Mode: 0o600, Format: tar.FormatPAX})
	if err == nil {
		_, err = b.archive.Write(text)
	}
	return err
}

// writeSnapshot writes a snapshot's files and then, since their checksums may not have been known, its manifest.
func (b *writer) writeSnapshot(ctx context.Context, h *snapshot.Held) error {
	folder := path.Join("data/snapshots", h.ID)
	var sums []string
	var failure error
	for n, f := range h.Manifest.Files {
		i := &item{name: path.Join(folder, snapshot.ImageName, f.Name), mode: 0o600, size: f.Size, file: h.Files[n], drops: folder + "/"}
		if err := b.writeItem(ctx, i); err != nil {
			return err
		}
		sums = append(sums, i.sum)
	}
	if slices.Contains(b.contents.Dropped, folder+"/") {
		failure = errors.New("a file of it could not be read")
	}
	text, err := h.Sealed(sums)
	if failure = errors.Join(failure, err); failure != nil {
		b.dropSnapshot(h, folder+"/", failure)
		return nil
	}
	return b.writeItem(ctx, &item{name: path.Join(folder, snapshot.ManifestName), mode: 0o600, size: int64(len(text)), text: text, needed: true})
}

// dropSnapshot leaves out a snapshot that is damaged, and the sandbox that was paused to it.
func (b *writer) dropSnapshot(h *snapshot.Held, folder string, why error) {
	r := &b.contents.Report
	b.contents.Dropped = append(b.contents.Dropped, folder)
	r.Snapshots = slices.DeleteFunc(r.Snapshots, func(s Snapshot) bool { return s.ID == h.ID })
	if h.Manifest.PausedBox == "" {
		b.missing("snapshot", h.ID, "it is damaged: "+why.Error())
		return
	}
	id := h.Manifest.Snapshot.GetSandboxId()
	r.Paused = slices.DeleteFunc(r.Paused, func(s Sandbox) bool { return s.ID == id })
	b.contents.Dropped = append(b.contents.Dropped, path.Join("data/boxes", h.Manifest.PausedBox)+"/")
	b.missing("sandbox", id, "what it was paused to is damaged: "+why.Error())
}

// writeItem writes one file with its checksum. One that can't be read to its end is filled up, and dropped if it may be.
func (b *writer) writeItem(ctx context.Context, i *item) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: i.name, Size: i.size, Mode: int64(i.mode), ModTime: i.modified, Uname: "root", Gname: "root", Format: tar.FormatPAX}
	if i.atoll {
		header.Uname, header.Gname = "atoll", "atoll"
	}
	if err := b.archive.WriteHeader(header); err != nil {
		return err
	}
	sum := sha256.New()
	to := io.MultiWriter(b.archive, sum)
	var from io.Reader = bytes.NewReader(i.text)
	if i.file != nil {
		if _, err := i.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		from = i.file
	}
	left := i.size
	for left > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		source := &readError{r: from}
		n, err := io.CopyN(to, source, min(left, 1<<20))
		left -= n
		b.progress(n)
		if err == nil {
			continue
		}
		if source.err == nil {
			return err
		}
		if i.needed {
			return fmt.Errorf("%s: %w", i.name, source.err)
		}
		b.contents.Dropped = append(b.contents.Dropped, i.drops)
		if i.drops == i.name {
			b.missing("file", strings.TrimPrefix(i.name, dataPrefix), "it was shortened meanwhile, or can't be read")
		}
		from = zeros{}
	}
	i.sum = hex.EncodeToString(sum.Sum(nil))
	b.contents.Files = append(b.contents.Files, entry{Name: i.name, Size: i.size, SHA256: i.sum})
	return nil
}

func (b *writer) progress(n int64) {
	b.done += n
	if b.Progress != nil {
		b.Progress(b.done, b.total)
	}
}

// readError keeps an error of what is read, as one of what is written is another thing.
type readError struct {
	r   io.Reader
	err error
}

func (r *readError) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil {
		r.err = err
	}
	return n, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
