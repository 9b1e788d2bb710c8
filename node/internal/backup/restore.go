package backup

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"atoll/node/internal/box"
	"atoll/node/internal/image"
	"atoll/node/internal/snapshot"
)

// restoringName is the folder in the new data folder, and precedes the names of images, in which all lies until it is known to be whole.
const restoringName = ".restoring"

// serverUser is whose the store and the keys are.
const serverUser = "atoll"

// Restoring says what is restored, and to where.
type Restoring struct {
	File string
	// Data must be empty, or not there. Nothing is written if it is not named: then the backup is only read.
	Data string
	// Recipes is the folder with the images of recipes, which other installations use too.
	Recipes string
	// Progress hears how many of how many bytes of the file are read; may be nil.
	Progress func(done, total int64)
}

// Restored is what has been restored.
type Restored struct {
	Data    string `json:"data,omitempty"`
	Version string `json:"version"`
	MadeAt  string `json:"made_at"`
	Bytes   int64  `json:"bytes"`
	Report
}

// ErrDamaged says that a file is no whole backup.
var ErrDamaged = errors.New("the backup is damaged, or the file is none")

func damaged(format string, values ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, values...))
}

type reader struct {
	Restoring
	// root is the folder in which the data folder comes into being; nil: nothing is written.
	root *os.Root
	uid  int
	gid  int
	// files are those read so far.
	files []entry
	seen  map[string]bool
	// staged are the images of recipes, by the name that they will have.
	staged []string
	// skipped are recipes' images that are there already, by the name that they have in the backup.
	skipped map[string]bool
	// made says that the data folder was not there.
	made  bool
	total int64
	read  int64
}

// Restore makes a data folder of a backup, or only checks it. What it has written is gone again if it fails.
func Restore(ctx context.Context, o Restoring) (result Restored, err error) {
	in, err := os.Open(o.File)
	if err != nil {
		return Restored{}, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return Restored{}, err
	}
	if info.IsDir() {
		return Restored{}, fmt.Errorf("%s is a folder (expected: the file that a backup has written)", o.File)
	}
	r := &reader{Restoring: o, seen: map[string]bool{}, skipped: map[string]bool{}, total: info.Size(), uid: -1, gid: -1}
	if o.Data != "" {
		if err := r.begin(); err != nil {
			return Restored{}, err
		}
		defer func() {
			if r.root != nil {
				r.root.Close()
			}
			if err != nil {
				err = errors.Join(err, r.undo())
			}
		}()
	}
	head, c, err := r.readAll(ctx, in)
	if err != nil {
		return Restored{}, err
	}
	if o.Data != "" {
		if err := r.finish(c); err != nil {
			return Restored{}, err
		}
	}
	return Restored{Data: o.Data, Version: head.Version, MadeAt: head.MadeAt, Bytes: info.Size(), Report: c.Report}, nil
}

// begin makes the folder that the data folder comes into being in.
func (r *reader) begin() error {
	err := os.Mkdir(r.Data, 0o755)
	switch {
	case err == nil:
		r.made = true
	case !errors.Is(err, os.ErrExist):
		return err
	}
	entries, err := os.ReadDir(r.Data)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != "lost+found" }) {
		return fmt.Errorf("%s is not empty (remedy: restore into a new folder)", r.Data)
	}
	if os.Geteuid() == 0 {
		if u, err := user.Lookup(serverUser); err == nil {
			r.uid, _ = strconv.Atoi(u.Uid)
			r.gid, _ = strconv.Atoi(u.Gid)
		} else {
			return err
		}
	}
	if err := os.Mkdir(r.work(), 0o700); err != nil {
		return err
	}
	r.root, err = os.OpenRoot(r.work())
	return err
}

func (r *reader) work() string { return filepath.Join(r.Data, restoringName) }

// undo removes what a restore has written that has failed.
func (r *reader) undo() error {
	err := os.RemoveAll(r.work())
	for _, name := range r.staged {
		err = errors.Join(err, ignoreAbsence(os.Remove(r.stage(name))))
	}
	if r.made {
		err = errors.Join(err, ignoreAbsence(os.Remove(r.Data)))
	}
	return err
}

func (r *reader) stage(name string) string {
	return filepath.Join(r.Recipes, restoringName+"-"+strconv.Itoa(os.Getpid())+"-"+name+".part")
}

// progressing counts what is read of the file, and ends with its context.
type progressing struct {
	r    *reader
	from io.Reader
	ctx  context.Context
}

func (p progressing) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := p.from.Read(b)
	p.r.read += int64(n)
	if p.r.Progress != nil {
		p.r.Progress(p.r.read, p.r.total)
	}
	return n, err
}

// readAll reads the whole file, checks all of it, and writes it below root.
func (r *reader) readAll(ctx context.Context, in io.Reader) (head Head, c contents, err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = ctx.Err()
		}
	}()
	unpacked, err := zstd.NewReader(bufio.NewReaderSize(progressing{r, in, ctx}, 1<<20), zstd.WithDecoderConcurrency(0))
	if err != nil {
		return head, c, damaged("%w", err)
	}
	defer unpacked.Close()
	archive := tar.NewReader(unpacked)
	text, err := r.text(archive, headName)
	if err != nil {
		return head, c, err
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return head, c, damaged("%s: %w", headName, err)
	}
	if err := head.check(); err != nil {
		return head, c, err
	}
	for {
		next, err := archive.Next()
		if err == io.EOF {
			return head, c, damaged("it ends before %s", contentsName)
		}
		if err != nil {
			return head, c, damaged("%w", err)
		}
		if next.Name == contentsName {
			if text, err = readText(archive, next); err != nil {
				return head, c, err
			}
			break
		}
		if err := r.file(archive, next); err != nil {
			return head, c, err
		}
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return head, c, damaged("%s: %w", contentsName, err)
	}
	if _, err := archive.Next(); err != io.EOF {
		return head, c, damaged("it goes on after %s", contentsName)
	}
	// To the very end of the file, so that nothing of it is unread.
	if n, err := io.Copy(io.Discard, unpacked); err != nil || n > 1<<20 {
		return head, c, damaged("after its end: %d bytes, %v", n, err)
	}
	return head, c, r.compare(c)
}

func (r *reader) compare(c contents) error {
	if len(c.Files) != len(r.files) {
		return damaged("%d files (expected: %d)", len(r.files), len(c.Files))
	}
	for i, want := range c.Files {
		if have := r.files[i]; have != want {
			return damaged("file %.200q is not what it was (or is in the place of %.200q)", have.Name, want.Name)
		}
	}
	for _, name := range []string{storeName, "secret/master-key", "secret/api-key"} {
		if !r.seen[dataPrefix+name] {
			return damaged("%s is not in it", name)
		}
	}
	return nil
}

func (r *reader) text(archive *tar.Reader, name string) ([]byte, error) {
	next, err := archive.Next()
	if err != nil {
		return nil, damaged("%w", err)
	}
	if next.Name != name {
		return nil, damaged("it begins with %.100q (expected: %s)", next.Name, name)
	}
	return readText(archive, next)
}

func readText(archive *tar.Reader, h *tar.Header) ([]byte, error) {
	if h.Size > maxText || h.Typeflag != tar.TypeReg {
		return nil, damaged("%.100q has %d bytes", h.Name, h.Size)
	}
	text, err := io.ReadAll(archive)
	if err != nil {
		return nil, damaged("%w", err)
	}
	return text, nil
}

// file reads one file, and writes it where that is wanted.
func (r *reader) file(archive *tar.Reader, h *tar.Header) error {
	if err := checkName(h.Name); err != nil {
		return damaged("%w", err)
	}
	if h.Typeflag != tar.TypeReg || r.seen[h.Name] {
		return damaged("file %.200q is there twice, or is none", h.Name)
	}
	r.seen[h.Name] = true
	out, err := r.create(h)
	if err != nil {
		return err
	}
	sum := sha256.New()
	var to io.Writer = sum
	if out != nil {
		to = io.MultiWriter(out, sum)
	}
	source := &readError{r: archive}
	n, err := io.CopyBuffer(to, source, make([]byte, 1<<18))
	if out != nil {
		err = errors.Join(err, r.complete(out, h))
	}
	if source.err != nil && source.err != io.EOF {
		return damaged("%.200q: %w", h.Name, source.err)
	}
	if err != nil {
		return err
	}
	r.files = append(r.files, entry{Name: h.Name, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}

// create opens the file that is to be written, if there is one.
func (r *reader) create(h *tar.Header) (*os.File, error) {
	if r.Data == "" {
		return nil, nil
	}
	if name, ok := strings.CutPrefix(h.Name, recipesPrefix); ok {
		return r.createRecipe(name)
	}
	name := strings.TrimPrefix(h.Name, dataPrefix)
	if err := r.makeFolders(path.Dir(name)); err != nil {
		return nil, err
	}
	return r.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// createRecipe stages a file of an image that installations share, unless it is there. Images that are there are found by their digest: the file of the
// metadata comes before that of the image.
func (r *reader) createRecipe(name string) (*os.File, error) {
	if r.Recipes == "" || r.skipped[name] {
		return nil, nil
	}
	if err := os.MkdirAll(r.Recipes, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(r.stage(name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o644)
	if err == nil {
		r.staged = append(r.staged, name)
	}
	return f, err
}

// complete closes a file that was written, and makes it what it was.
func (r *reader) complete(f *os.File, h *tar.Header) error {
	mode := h.FileInfo().Mode().Perm() &^ 0o022
	err := f.Chmod(mode)
	if r.uid >= 0 && h.Uname == serverUser && strings.HasPrefix(h.Name, dataPrefix) {
		err = errors.Join(err, f.Chown(r.uid, r.gid))
	}
	if h.ModTime.Unix() > 0 {
		t := unix.NsecToTimeval(h.ModTime.UnixNano())
		err = errors.Join(err, unix.Futimes(int(f.Fd()), []unix.Timeval{t, t}))
	}
	// Started now, so that the last step waits for little.
	err = errors.Join(err, unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE), f.Close())
	if name, ok := strings.CutPrefix(h.Name, recipesPrefix); ok && err == nil && strings.HasSuffix(name, ".json") {
		return r.known(name)
	}
	return err
}

// known finds out whether the image of a metadata file that was staged is there already.
func (r *reader) known(name string) error {
	text, err := os.ReadFile(r.stage(name))
	if err != nil {
		return err
	}
	var m image.Metadata
	if err := json.Unmarshal(text, &m); err != nil {
		return damaged("%s: %w", name, err)
	}
	digest := strings.TrimPrefix(m.Digest, "sha256:")
	if len(digest) != 2*sha256.Size {
		return damaged("%s: digest %.80q", name, m.Digest)
	}
	_, err = image.NewStore(r.Recipes).Find(digest)
	if errors.Is(err, image.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r.skipped[strings.TrimSuffix(name, ".json")+".erofs"] = true
	r.staged = slices.DeleteFunc(r.staged, func(s string) bool { return s == name })
	return os.Remove(r.stage(name))
}

// makeFolders makes the folders of a file, as the server and the engine make them.
func (r *reader) makeFolders(name string) error {
	if name == "." {
		return nil
	}
	if _, err := r.root.Stat(name); err == nil {
		return nil
	}
	if err := r.makeFolders(path.Dir(name)); err != nil {
		return err
	}
	mode, ofServer := fs.FileMode(0o700), false
	switch top, below, _ := strings.Cut(name, "/"); top {
	case "runtimes":
		if below != "" {
			mode = 0o755
		}
	case "secret", "templates":
		ofServer = true
	}
	err := errors.Join(r.root.Mkdir(name, mode), r.root.Chmod(name, mode))
	if ofServer && r.uid >= 0 {
		err = errors.Join(err, r.root.Chown(name, r.uid, r.gid))
	}
	return err
}

// finish drops what is of no use, tells boxes where their images are, and puts all in its place.
func (r *reader) finish(c contents) error {
	for _, name := range c.Dropped {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(name, "/"), dataPrefix); !ok || !filepath.IsLocal(rest) {
			return damaged("what was dropped: %.200q", name)
		} else if err := r.root.RemoveAll(rest); err != nil {
			return err
		}
	}
	if err := r.placeRecipes(); err != nil {
		return err
	}
	if err := r.placeBoxes(); err != nil {
		return err
	}
	// One journey to the disk for all.
	f, err := os.Open(r.Data)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return err
	}
	entries, err := os.ReadDir(r.work())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(r.work(), e.Name()), filepath.Join(r.Data, e.Name())); err != nil {
			// What is in its place already must not look like an installation.
			for _, e := range entries {
				err = errors.Join(err, ignoreAbsence(os.RemoveAll(filepath.Join(r.Data, e.Name()))))
			}
			return err
		}
	}
	return errors.Join(os.Remove(r.work()), snapshot.SyncDir(r.Data))
}

// placeRecipes gives images their names: the metadata last, as without it there is no image.
func (r *reader) placeRecipes() error {
	for _, name := range r.staged {
		metadata, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		text, err := os.ReadFile(r.stage(name))
		if err != nil {
			return err
		}
		var m image.Metadata
		if err := json.Unmarshal(text, &m); err != nil {
			return damaged("%s: %w", name, err)
		}
		target := metadata
		if _, err := os.Lstat(filepath.Join(r.Recipes, target+".json")); err == nil {
			// Another image of the same recipe: it keeps its name, and stays what new sandboxes are made of.
			if target, err = r.beside(target, m); err != nil {
				return err
			}
		}
		for _, ending := range []string{".erofs", ".json"} {
			if err := errors.Join(snapshot.SyncDir(r.stage(metadata+ending)), os.Rename(r.stage(metadata+ending), filepath.Join(r.Recipes, target+ending))); err != nil {
				return err
			}
		}
	}
	return nil
}

// beside returns a name for an image of a recipe of which there is one already, and makes the image older than that.
func (r *reader) beside(name string, m image.Metadata) (string, error) {
	there, err := os.Stat(filepath.Join(r.Recipes, name+".erofs"))
	if err == nil {
		older := there.ModTime().Add(-time.Second)
		if own, err := os.Stat(r.stage(name + ".erofs")); err == nil && own.ModTime().After(older) {
			if err := os.Chtimes(r.stage(name+".erofs"), older, older); err != nil {
				return "", err
			}
		}
	}
	recipe := strings.TrimSuffix(name, "-"+name[strings.LastIndex(name, "-")+1:])
	return recipe + "-" + strings.TrimPrefix(m.Digest, "sha256:")[:32], nil
}

// placeBoxes writes the records of the paused boxes, with the place of their images here.
func (r *reader) placeBoxes() error {
	entries, err := fs.ReadDir(r.root.FS(), "boxes")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// Where they will be.
	made := filepath.Join(r.Data, "images")
	for _, e := range entries {
		name := path.Join("boxes", e.Name(), box.RecordName)
		text, err := r.root.ReadFile(name)
		if err != nil {
			return err
		}
		found, ok, err := box.Backup(text)
		if err != nil || !ok || found.ID != e.Name() || found.Snapshot == "" {
			return damaged("%s: %v", name, err)
		}
		if m, err := snapshot.Restored(r.work(), found.Snapshot); err != nil || m.PausedBox != found.ID {
			return damaged("what %s was paused to: %v", found.ID, err)
		}
		image, err := r.imagePath(found.ImageDigest, made)
		if err != nil {
			return err
		}
		record, err := found.Record(image)
		if err != nil {
			return err
		}
		if err := r.root.WriteFile(name, record, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// imagePath is where an image with a digest will be; empty where it is not there, which whoever resumes is told.
func (r *reader) imagePath(digest, made string) (string, error) {
	for _, dir := range []string{filepath.Join(r.work(), "images"), r.Recipes} {
		if dir == "" {
			continue
		}
		found, err := image.NewStore(dir).Find(digest)
		if errors.Is(err, image.ErrNotFound) {
			continue
		}
		if err != nil {
			return "", err
		}
		if dir != r.Recipes {
			return filepath.Join(made, filepath.Base(found.Path)), nil
		}
		return found.Path, nil
	}
	return "", nil
}
