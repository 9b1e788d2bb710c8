package snapshot

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/failpoint"
)

// Errors of the store that callers tell apart.
var (
	ErrNotFound = errors.New("no such snapshot")
	ErrExists   = errors.New("the snapshot exists already")
	// ErrUnusable says that a snapshot is not what it was, or can't be used here.
	ErrUnusable = errors.New("the snapshot can't be used")
	// ErrNoRoom says that the disk is too full.
	ErrNoRoom = errors.New("no room on the disk")
)

const (
	partialSuffix = ".partial"
	goneSuffix    = ".gone"
	// Most boxes that are paused are resumed later than this, and those that are resumed sooner need no checksums of what is then removed.
	sealPauseAfter = 10 * time.Second
	sealAfter      = time.Second
	// Long enough for some megabytes to come together.
	writeBackInterval = 10 * time.Millisecond
)

var idPattern = regexp.MustCompile(`^snap-[0-9a-hjkmnp-tv-z]{26}$`)

// ValidID says whether an id is one of a snapshot.
func ValidID(id string) bool { return idPattern.MatchString(id) }

// Store holds the snapshots of one node.
type Store struct {
	dir    string
	key    ed25519.PrivateKey
	logger *slog.Logger

	mu sync.Mutex
	// All below is guarded by mu.
	entries map[string]*entry
	// drafts are the ids that are being written.
	drafts map[string]bool
	closed bool
}

// entry is one snapshot that is whole.
type entry struct {
	id, dir string
	// sealing is held while checksums are made or checked, so that it happens once.
	sealing sync.Mutex

	// All below is guarded by the store's mu.
	manifest *Manifest
	// broken is why it can't be used whatever the node has.
	broken string
	users  int
	doomed bool
	timer  *time.Timer
}

// Open reads the snapshots in <data>/snapshots and removes what was not finished. The signing key is made at the first start.
func Open(dataDir string, logger *slog.Logger) (*Store, error) {
	dir := Dir(dataDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// Not among the server's secrets: whoever may write there could have root write elsewhere by a link, or sign what he likes.
	key, err := openKey(filepath.Join(dir, keyName))
	if err != nil {
		return nil, fmt.Errorf("signing key of snapshots: %w", err)
	}
	s := &Store{dir: dir, key: key, logger: logger, entries: map[string]*entry{}, drafts: map[string]bool{}}
	found, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		path := filepath.Join(s.dir, f.Name())
		if f.Name() == keyName {
			continue
		}
		if !ValidID(f.Name()) {
			logger.Info("removing a snapshot that was not finished, or not gone", "path", path)
			if err := os.RemoveAll(path); err != nil {
				logger.Error("remains of a snapshot are still there", "path", path, "error", err)
			}
			continue
		}
		e := &entry{id: f.Name(), dir: path}
		if e.manifest, err = s.readManifest(path); err != nil {
			e.manifest = &Manifest{Snapshot: &enginev1.Snapshot{}}
			e.broken = "its manifest is damaged: " + err.Error()
			logger.Error("snapshot is damaged", "snapshot", e.id, "error", err)
		}
		s.entries[e.id] = e
		if e.broken == "" && !e.manifest.sealed() {
			s.sealLater(e)
		}
	}
	return s, nil
}

// Dir is the folder of the snapshots.
func Dir(dataDir string) string { return filepath.Join(dataDir, "snapshots") }

// PublicKey is what this installation's snapshots are signed with, as hex.
func (s *Store) PublicKey() string {
	return hex.EncodeToString(s.key.Public().(ed25519.PublicKey))
}

// Close stops what is done in the background.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, e := range s.entries {
		if e.timer != nil {
			e.timer.Stop()
		}
	}
}

func (s *Store) readManifest(dir string) (*Manifest, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	var why *os.PathError
	if errors.As(err, &why) {
		// Paths of the host are for nobody who asks for a snapshot.
		return nil, fmt.Errorf("%s: %w", manifestName, why.Err)
	}
	if err != nil {
		return nil, err
	}
	content, err := open(text, manifestName, []string{s.PublicKey()})
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(content)
	if err != nil {
		return nil, err
	}
	if id := m.Snapshot.GetSnapshotId(); id != filepath.Base(dir) && id+partialSuffix != filepath.Base(dir) {
		return nil, fmt.Errorf("it is of snapshot %q", id)
	}
	return m, nil
}

func (s *Store) writeManifest(dir string, m *Manifest) error {
	text, err := s.signedManifest(m)
	if err != nil {
		return err
	}
	return WriteSynced(filepath.Join(dir, manifestName), text)
}

func (s *Store) signedManifest(m *Manifest) ([]byte, error) {
	content, err := m.encode()
	if err != nil {
		return nil, err
	}
	return sign(s.key, manifestName, content)
}

// writeIdentities takes note of the files as they are.
func (s *Store) writeIdentities(dir string, m *Manifest, files map[string]identity) error {
	text, err := s.signedIdentities(m, files)
	if err != nil {
		return err
	}
	return WriteSynced(filepath.Join(dir, identityName), text)
}

func (s *Store) signedIdentities(m *Manifest, files map[string]identity) ([]byte, error) {
	content, err := json.Marshal(identities{Manifest: keyOf(m), Files: files})
	if err != nil {
		return nil, err
	}
	return sign(s.key, identityName, content)
}

// keyOf is what ties identities to a manifest: it stays the same when checksums are added.
func keyOf(m *Manifest) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s\n", m.Snapshot.GetSnapshotId(), m.FrameKey)
	for _, f := range m.Files {
		fmt.Fprintf(sum, "%s %d\n", f.Name, f.Size)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func identitiesIn(dir string, m *Manifest) (map[string]identity, error) {
	all := map[string]identity{}
	for _, f := range m.Files {
		i, err := identityOf(filepath.Join(dir, imageName, f.Name))
		if err != nil {
			return nil, err
		}
		all[f.Name] = i
	}
	return all, nil
}

// Draft is a snapshot in the making.
type Draft struct {
	store *Store
	id    string
	dir   string
	// operation names the fail points.
	operation string
	done      bool
}

// Begin makes the folder of a new snapshot. The operation names its fail points.
func (s *Store) Begin(id, operation string) (*Draft, error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("snapshot_id %.64q (expected: \"snap-\" and 26 characters of Crockford's base32)", id)
	}
	s.mu.Lock()
	if s.entries[id] != nil || s.drafts[id] {
		s.mu.Unlock()
		return nil, ErrExists
	}
	s.drafts[id] = true
	s.mu.Unlock()
	d := &Draft{store: s, id: id, dir: filepath.Join(s.dir, id+partialSuffix), operation: operation}
	if err := os.RemoveAll(d.dir); err != nil {
		return nil, errors.Join(err, d.Discard())
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return nil, errors.Join(err, d.Discard())
	}
	return d, nil
}

// Image is the folder for the runtime's files. It does not exist yet.
func (d *Draft) Image() string { return filepath.Join(d.dir, imageName) }

// WriteBack has the kernel write to the disk what the runtime is writing to the image, while it does, until stop is called. Commit then
// waits for little.
func (d *Draft) WriteBack() (stop func()) {
	over := make(chan struct{})
	go func() {
		opened := map[string]*os.File{}
		defer func() {
			for _, f := range opened {
				f.Close()
			}
		}()
		tick := time.NewTicker(writeBackInterval)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			// What fails here is left to Commit.
			found, _ := os.ReadDir(d.Image())
			for _, entry := range found {
				f := opened[entry.Name()]
				if f == nil {
					var err error
					if f, err = os.OpenFile(filepath.Join(d.Image(), entry.Name()), os.O_RDONLY|unix.O_NOFOLLOW, 0); err != nil {
						continue
					}
					opened[entry.Name()] = f
				}
				_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
			}
		}
	}()
	return sync.OnceFunc(func() { close(over) })
}

// Discard removes a draft that was not committed. It does nothing after Commit.
func (d *Draft) Discard() error {
	if d.done {
		return nil
	}
	d.done = true
	err := os.RemoveAll(d.dir)
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	delete(d.store.drafts, d.id)
	return err
}

// Commit checks what was written and makes it a snapshot that survives a power cut. On error it is discarded.
func (d *Draft) Commit(m *Manifest) (*enginev1.Snapshot, error) {
	if err := d.commit(m); err != nil {
		// A folder that was renamed already goes as a whole.
		if path := filepath.Join(d.store.dir, d.id); exists(path) {
			err = errors.Join(err, os.Rename(path, d.dir))
		}
		return nil, errors.Join(err, d.Discard())
	}
	d.done = true
	e := &entry{id: d.id, dir: filepath.Join(d.store.dir, d.id), manifest: m}
	d.store.mu.Lock()
	delete(d.store.drafts, d.id)
	d.store.entries[d.id] = e
	d.store.mu.Unlock()
	if !m.sealed() {
		d.store.sealLater(e)
	}
	return d.store.view(e, m), nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (d *Draft) commit(m *Manifest) error {
	hit := func(step string) error { return failpoint.Hit(d.operation + "." + step) }
	if err := hit("written"); err != nil {
		return err
	}
	m.Format, m.Snapshot.SnapshotId = format, d.id
	sums := map[string]string{}
	for _, f := range m.Files {
		sums[f.Name] = f.SHA256
	}
	m.Files = nil
	found, err := os.ReadDir(d.Image())
	if err != nil {
		return err
	}
	for _, f := range found {
		info, err := f.Info()
		if err != nil {
			return err
		}
		if info.Mode() != 0o600 {
			if err := os.Chmod(filepath.Join(d.Image(), f.Name()), 0o600); err != nil {
				return err
			}
		}
		m.Files = append(m.Files, File{Name: f.Name(), Size: info.Size(), SHA256: sums[f.Name()]})
	}
	if err := m.check(); err != nil {
		return fmt.Errorf("what the runtime wrote is not whole: %w", err)
	}
	if err := hit("verified"); err != nil {
		return err
	}
	files, err := identitiesIn(d.dir, m)
	if err != nil {
		return err
	}
	// Nobody looks into the folder before it has its name, so these need no names of their own until they are whole.
	identity, err := d.store.signedIdentities(m, files)
	if err != nil {
		return err
	}
	text, err := d.store.signedManifest(m)
	if err != nil {
		return err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(d.dir, identityName), identity, 0o600), os.WriteFile(filepath.Join(d.dir, manifestName), text, 0o600))
	if err != nil {
		return err
	}
	// At the same time: the disk makes one journey of it.
	paths := []string{filepath.Join(d.dir, identityName), filepath.Join(d.dir, manifestName), d.Image(), d.dir}
	for _, f := range m.Files {
		paths = append(paths, filepath.Join(d.Image(), f.Name))
	}
	if err := syncAll(paths); err != nil {
		return err
	}
	if err := hit("synced"); err != nil {
		return err
	}
	if err := os.Rename(d.dir, filepath.Join(d.store.dir, d.id)); err != nil {
		return err
	}
	if err := SyncDir(d.store.dir); err != nil {
		return err
	}
	return hit("renamed")
}

// Link fills a draft with the files of a snapshot, which stay one on the disk, and returns the manifest that goes with them.
func (d *Draft) Link(ctx context.Context, from *Use) (*Manifest, error) {
	e := from.entry
	// How many names a file has is a part of its times: from now on, whenever one of the two goes, the checksums of the other decide.
	if err := d.store.seal(ctx, e); err != nil {
		return nil, err
	}
	if err := os.Mkdir(d.Image(), 0o700); err != nil {
		return nil, err
	}
	e.sealing.Lock()
	defer e.sealing.Unlock()
	d.store.mu.Lock()
	m := e.manifest.clone()
	d.store.mu.Unlock()
	for _, f := range m.Files {
		if err := os.Link(filepath.Join(e.dir, imageName, f.Name), filepath.Join(d.Image(), f.Name)); err != nil {
			return nil, err
		}
	}
	m.Snapshot = proto.CloneOf(m.Snapshot)
	files, err := identitiesIn(e.dir, m)
	if err != nil {
		return nil, err
	}
	return m, d.store.writeIdentities(e.dir, m, files)
}

// Use is a snapshot that is being read, and stays until it is closed.
type Use struct {
	// Manifest is not to be changed.
	Manifest *Manifest
	store    *Store
	entry    *entry
	once     sync.Once
}

// Image is the folder of the runtime's files.
func (u *Use) Image() string { return filepath.Join(u.entry.dir, imageName) }

// Close ends the use.
func (u *Use) Close() {
	u.once.Do(func() {
		u.store.mu.Lock()
		u.entry.users--
		remove := u.entry.doomed && u.entry.users == 0
		u.store.mu.Unlock()
		if remove {
			u.store.erase(u.entry)
		}
	})
}

// Use returns a snapshot for reading, its files as they were made. One that is removed meanwhile is there until the use is closed.
func (s *Store) Use(ctx context.Context, id string) (*Use, error) {
	s.mu.Lock()
	e := s.entries[id]
	if e == nil {
		s.mu.Unlock()
		return nil, ErrNotFound
	}
	if e.broken != "" {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: %s", ErrUnusable, e.broken)
	}
	e.users++
	u := &Use{Manifest: e.manifest, store: s, entry: e}
	s.mu.Unlock()
	if err := s.verify(ctx, e, u.Manifest); err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
}

// verify finds out whether the files are what they were.
func (s *Store) verify(ctx context.Context, e *entry, m *Manifest) error {
	changed := func(format string, values ...any) error {
		return fmt.Errorf("%w: it was changed since it was made: %s", ErrUnusable, fmt.Sprintf(format, values...))
	}
	now, err := identitiesIn(e.dir, m)
	if err != nil {
		return changed("%v", err)
	}
	for _, f := range m.Files {
		if size := now[f.Name].Size; size != f.Size {
			return changed("%s has %d bytes (expected: %d)", f.Name, size, f.Size)
		}
	}
	if s.asNoted(e.dir, m, now) {
		return nil
	}
	e.sealing.Lock()
	defer e.sealing.Unlock()
	s.mu.Lock()
	m = e.manifest
	s.mu.Unlock()
	if now, err = identitiesIn(e.dir, m); err == nil && s.asNoted(e.dir, m, now) {
		return nil
	}
	if !m.sealed() {
		return changed("its files are others, and there are no checksums of them yet")
	}
	for _, f := range m.Files {
		sum, err := hash(ctx, filepath.Join(e.dir, imageName, f.Name))
		if err != nil {
			return err
		}
		if sum != f.SHA256 {
			return changed("the checksum of %s is another", f.Name)
		}
	}
	if err := s.writeIdentities(e.dir, m, now); err != nil {
		s.logger.Warn("files of a snapshot are read again the next time", "snapshot", e.id, "error", err)
	}
	return nil
}

// asNoted says whether files are those that were noted.
func (s *Store) asNoted(dir string, m *Manifest, now map[string]identity) bool {
	text, err := os.ReadFile(filepath.Join(dir, identityName))
	if err != nil {
		return false
	}
	content, err := open(text, identityName, []string{s.PublicKey()})
	if err != nil {
		return false
	}
	var noted identities
	if json.Unmarshal(content, &noted) != nil || noted.Manifest != keyOf(m) {
		return false
	}
	for _, f := range m.Files {
		if noted.Files[f.Name] != now[f.Name] {
			return false
		}
	}
	return true
}

func hash(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if _, err := io.CopyN(sum, f, 4<<20); err == io.EOF {
			return hex.EncodeToString(sum.Sum(nil)), nil
		} else if err != nil {
			return "", err
		}
	}
}

func (s *Store) sealLater(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	after := sealAfter
	if e.manifest.PausedBox != "" {
		after = sealPauseAfter
	}
	e.timer = time.AfterFunc(after, func() {
		if err := s.seal(context.Background(), e); err != nil && !errors.Is(err, ErrNotFound) {
			s.logger.Error("snapshot has no checksums", "snapshot", e.id, "error", err)
		}
	})
}

// seal adds the checksums of a snapshot's files, if they are still what they were.
func (s *Store) seal(ctx context.Context, e *entry) error {
	s.mu.Lock()
	if e.doomed || s.closed {
		s.mu.Unlock()
		return ErrNotFound
	}
	e.users++
	u := &Use{store: s, entry: e}
	s.mu.Unlock()
	defer u.Close()
	e.sealing.Lock()
	defer e.sealing.Unlock()
	s.mu.Lock()
	m := e.manifest.clone()
	s.mu.Unlock()
	if m.sealed() {
		return nil
	}
	for i, f := range m.Files {
		sum, err := hash(ctx, filepath.Join(e.dir, imageName, f.Name))
		if err != nil {
			return err
		}
		m.Files[i].SHA256 = sum
	}
	now, err := identitiesIn(e.dir, m)
	if err != nil {
		return err
	}
	if !s.asNoted(e.dir, m, now) {
		return errors.New("its files were changed before their checksums were made")
	}
	if err := failpoint.Hit("snapshot.sealed"); err != nil {
		return err
	}
	if err := s.writeManifest(e.dir, m); err != nil {
		return err
	}
	s.mu.Lock()
	e.manifest = m
	s.mu.Unlock()
	return nil
}

// Remove removes a snapshot, at once or with its last use. It succeeds for one that is not there.
func (s *Store) Remove(id string) error {
	s.mu.Lock()
	e := s.entries[id]
	if e == nil {
		s.mu.Unlock()
		return nil
	}
	e.doomed = true
	delete(s.entries, id)
	used := e.users > 0
	if e.timer != nil {
		e.timer.Stop()
	}
	// Gone for whoever looks from here on, also after a crash.
	gone := filepath.Join(s.dir, id+goneSuffix)
	err := os.RemoveAll(gone)
	if !used && err == nil {
		err = os.Rename(e.dir, gone)
	}
	s.mu.Unlock()
	if used || err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

// erase removes the files of a snapshot that nobody uses any more.
func (s *Store) erase(e *entry) {
	gone := e.dir + goneSuffix
	if err := os.Rename(e.dir, gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.logger.Error("remains of a snapshot are still there", "snapshot", e.id, "error", err)
		return
	}
	if err := os.RemoveAll(gone); err != nil {
		s.logger.Error("remains of a snapshot are still there", "snapshot", e.id, "error", err)
	}
}

// Has says whether a snapshot is there and whole.
func (s *Store) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[id] != nil
}

// Find returns what callers see of a snapshot, and its manifest.
func (s *Store) Find(id string) (*enginev1.Snapshot, *Manifest, error) {
	s.mu.Lock()
	e := s.entries[id]
	s.mu.Unlock()
	if e == nil {
		return nil, nil, ErrNotFound
	}
	s.mu.Lock()
	m := e.manifest
	s.mu.Unlock()
	return s.view(e, m), m, nil
}

func (s *Store) view(e *entry, m *Manifest) *enginev1.Snapshot {
	v := proto.CloneOf(m.Snapshot)
	v.SnapshotId, v.SizeBytes, v.Unusable = e.id, m.Bytes(), e.broken
	return v
}

// List returns those that are not the pause of a box.
func (s *Store) List() []*enginev1.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*enginev1.Snapshot, 0, len(s.entries))
	for _, e := range s.entries {
		if e.manifest.PausedBox == "" {
			all = append(all, s.view(e, e.manifest))
		}
	}
	return all
}

// NotePause has a snapshot count as the pause of a box whose record says so, where its own manifest can't be read any more.
func (s *Store) NotePause(id, box string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[id]; e != nil && e.broken != "" {
		e.manifest.PausedBox = box
	}
}

// Pauses returns the pauses of boxes: the box by the snapshot's id.
func (s *Store) Pauses() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]string{}
	for id, e := range s.entries {
		if box := e.manifest.PausedBox; box != "" {
			all[id] = box
		}
	}
	return all
}

// Each calls f with the manifest of every snapshot, pauses too.
func (s *Store) Each(f func(*Manifest)) {
	s.mu.Lock()
	all := make([]*Manifest, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, e.manifest)
	}
	s.mu.Unlock()
	for _, m := range all {
		f(m)
	}
}

// RemovePauses removes the pauses of boxes that are all gone, and what was not finished. Snapshots stay. For a node that is not open.
func RemovePauses(dataDir string) error {
	found, err := os.ReadDir(Dir(dataDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failures []error
	for _, f := range found {
		path := filepath.Join(Dir(dataDir), f.Name())
		if readPausedBox(filepath.Join(path, manifestName)) != "" || !ValidID(f.Name()) && (strings.HasSuffix(f.Name(), partialSuffix) || strings.HasSuffix(f.Name(), goneSuffix)) {
			failures = append(failures, os.RemoveAll(path))
		}
	}
	return errors.Join(failures...)
}
