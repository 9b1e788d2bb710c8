package snapshot

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Names in the folder of the snapshots and in that of one of them, for those who write and read backups.
const (
	KeyName      = keyName
	ManifestName = manifestName
	ImageName    = imageName
)

// Held is a snapshot that a backup is being made of: its files are open, so they are there whatever becomes of the snapshot. It needs no engine, and is
// not in the way of one.
type Held struct {
	ID       string
	Manifest *Manifest
	// Files are those of the manifest, in its order.
	Files []*os.File

	key  ed25519.PrivateKey
	seen []identity
}

// Hold opens a snapshot of a data folder. A snapshot that is not there, or not whole yet, is an error that matches os.ErrNotExist.
func Hold(dataDir, id string) (h *Held, err error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("snapshot %.64q: %w", id, os.ErrNotExist)
	}
	dir := filepath.Join(Dir(dataDir), id)
	if !exists(dir) {
		return nil, fmt.Errorf("snapshot %s: %w", id, os.ErrNotExist)
	}
	// Never made here: one that is lost must not be replaced in silence.
	text, err := os.ReadFile(filepath.Join(Dir(dataDir), keyName))
	if err != nil {
		return nil, err
	}
	h = &Held{ID: id}
	if h.key, err = parseKey(keyName, text); err != nil {
		return nil, err
	}
	reader := Store{key: h.key}
	if h.Manifest, err = reader.readManifest(dir); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	opened := h
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	now := map[string]identity{}
	for _, f := range h.Manifest.Files {
		file, err := os.OpenFile(filepath.Join(dir, imageName, f.Name), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return nil, err
		}
		h.Files = append(h.Files, file)
		seen, err := identityOfOpen(file)
		if err != nil {
			return nil, err
		}
		if seen.Size != f.Size {
			return nil, fmt.Errorf("%s has %d bytes (expected: %d)", f.Name, seen.Size, f.Size)
		}
		h.seen, now[f.Name] = append(h.seen, seen), seen
	}
	if !h.Manifest.sealed() && !reader.asNoted(dir, h.Manifest, now) {
		return nil, errors.New("its files were changed before their checksums were made")
	}
	return h, nil
}

// Close closes the files.
func (h *Held) Close() {
	for _, f := range h.Files {
		f.Close()
	}
	h.Files = nil
}

// Sealed returns the signed manifest that goes with files whose checksums, in the manifest's order and in hex, are these: those that were read from the
// open files. It is an error if they are not what they were when the snapshot was made.
func (h *Held) Sealed(sums []string) ([]byte, error) {
	m := h.Manifest.clone()
	sealed := m.sealed()
	for i, f := range m.Files {
		if sealed && f.SHA256 != sums[i] {
			return nil, fmt.Errorf("the checksum of %s is another", f.Name)
		}
		if !sealed {
			now, err := identityOfOpen(h.Files[i])
			// The time of the last change of its names is of no account: it may have been removed meanwhile.
			if now.Ctime = h.seen[i].Ctime; err != nil || now != h.seen[i] {
				return nil, errors.Join(fmt.Errorf("%s was changed before its checksum was made", f.Name), err)
			}
		}
		m.Files[i].SHA256 = sums[i]
	}
	signer := Store{key: h.key}
	return signer.signedManifest(m)
}

// Restored reads the manifest of a restored snapshot: signed with the key that came with it, and with checksums.
func Restored(dataDir, id string) (*Manifest, error) {
	text, err := os.ReadFile(filepath.Join(Dir(dataDir), keyName))
	if err != nil {
		return nil, err
	}
	key, err := parseKey(keyName, text)
	if err != nil {
		return nil, err
	}
	reader := Store{key: key}
	m, err := reader.readManifest(filepath.Join(Dir(dataDir), id))
	if err == nil && !m.sealed() {
		err = errors.New("it has no checksums")
	}
	return m, err
}

func identityOfOpen(f *os.File) (identity, error) {
	info, err := f.Stat()
	if err != nil {
		return identity{}, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return identity{}, fmt.Errorf("%s is no file", filepath.Base(f.Name()))
	}
	return identity{Inode: s.Ino, Size: info.Size(), Mtime: s.Mtim.Nano(), Ctime: s.Ctim.Nano()}, nil
}
