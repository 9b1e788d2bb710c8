// Package snapshot keeps snapshots on the disk: whole or not at all, and as they were made or not used.
//
// A snapshot is a folder <data>/snapshots/<id>/ with image/ (what the runtime wrote), manifest.json and identity.json. It is written as
// <id>.partial and renamed when all of it is on the disk; what is to go is first renamed to <id>.gone. The manifest is signed with the
// installation's key from the first moment. The checksums of the files, which take a second for 500 MB, are added in the background
// (sealing); until then, and after, files count as unchanged as long as inode, size and times are those in identity.json, which is signed too.
// Otherwise the checksums decide.
package snapshot

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"google.golang.org/protobuf/encoding/protojson"

	"atoll/node/gen/enginev1"
)

// format is raised when older engines can't use a manifest.
const format = 1

const (
	manifestName = "manifest.json"
	identityName = "identity.json"
	imageName    = "image"
	// Of a manifest. A hundred contexts are some kilobytes.
	maxManifest = 4 << 20
)

// Shape is what a container must be made like for a snapshot to be restored in it.
type Shape struct {
	DiskBytes    uint64 `json:"disk_bytes"`
	ShmBytes     uint64 `json:"shm_bytes"`
	MaxOpenFiles uint32 `json:"max_open_files"`
	CPUMillis    uint32 `json:"cpu_millis"`
}

// Manifest describes a snapshot. Environment and policy of a sandbox are not in it: they come from whoever restores it.
type Manifest struct {
	Format int `json:"format"`
	// Snapshot is what callers see of it, without sizes.
	Snapshot *enginev1.Snapshot `json:"-"`
	// PausedBox is the box that this is the pause of, or empty.
	PausedBox string `json:"paused_box,omitempty"`
	// Build says that it is of a build box: a cache, which no caller sees.
	Build    bool   `json:"build,omitempty"`
	Shape    Shape  `json:"shape"`
	Hostname string `json:"hostname"`
	// FrameKey is what the agent inside checks the engine by, as hex.
	FrameKey string `json:"frame_key"`
	// Epoch is above every one that the agent inside has served.
	Epoch uint64 `json:"epoch"`
	Files []File `json:"files"`
}

// File is one file of the image.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	// SHA256 as hex; empty until the snapshot is sealed.
	SHA256 string `json:"sha256,omitempty"`
}

func (m *Manifest) sealed() bool {
	return !slices.ContainsFunc(m.Files, func(f File) bool { return f.SHA256 == "" })
}

// Bytes is the size of all files.
func (m *Manifest) Bytes() uint64 {
	var sum uint64
	for _, f := range m.Files {
		sum += uint64(f.Size)
	}
	return sum
}

// clone copies all that is changed in a manifest after it was made.
func (m *Manifest) clone() *Manifest {
	c := *m
	c.Files = slices.Clone(m.Files)
	return &c
}

type manifestFile struct {
	Manifest
	Snapshot json.RawMessage `json:"snapshot"`
}

func (m *Manifest) encode() ([]byte, error) {
	text, err := protojson.Marshal(m.Snapshot)
	if err != nil {
		return nil, err
	}
	return json.Marshal(manifestFile{Manifest: *m, Snapshot: text})
}

func decodeManifest(text []byte) (*Manifest, error) {
	var f manifestFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	m := &f.Manifest
	if m.Format != format {
		return nil, fmt.Errorf("format %d (expected: %d)", m.Format, format)
	}
	m.Snapshot = &enginev1.Snapshot{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(f.Snapshot, m.Snapshot); err != nil {
		return nil, err
	}
	return m, m.check()
}

// required are the files without which a runtime can't restore a kind.
var required = map[enginev1.SnapshotKind][]string{
	enginev1.SnapshotKind_SNAPSHOT_KIND_MEMORY: {"checkpoint.img", "pages.img", "pages_meta.img"},
	enginev1.SnapshotKind_SNAPSHOT_KIND_FILES:  {"fscheckpoint.pb", "multitar.img", "pages.img", "pages_meta.img"},
}

// mayBeEmpty are the files that are so where nothing was written.
var mayBeEmpty = map[string]bool{"pages.img": true, "pages_meta.img": true}

func (m *Manifest) check() error {
	want, ok := required[m.Snapshot.GetKind()]
	if !ok {
		return fmt.Errorf("kind %v", m.Snapshot.GetKind())
	}
	var have []string
	for _, f := range m.Files {
		have = append(have, f.Name)
		if f.Size < 0 || f.Size == 0 && !(m.Snapshot.GetKind() == enginev1.SnapshotKind_SNAPSHOT_KIND_FILES && mayBeEmpty[f.Name]) {
			return fmt.Errorf("%s has %d bytes", f.Name, f.Size)
		}
		if f.Name == "pages.img" && f.Size%4096 != 0 {
			return fmt.Errorf("%s has %d bytes, which are no whole pages", f.Name, f.Size)
		}
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		return fmt.Errorf("files %q (expected: %q)", have, want)
	}
	if key, err := hex.DecodeString(m.FrameKey); err != nil || len(key) != 32 {
		return errors.New("no frame key")
	}
	return nil
}

// Key is the frame key.
func (m *Manifest) Key() (key [32]byte) {
	// Checked when the manifest was read or made.
	_, _ = hex.Decode(key[:], []byte(m.FrameKey))
	return key
}

// identity is how a file on this disk is told from a changed one without reading it.
type identity struct {
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime_ns"`
	Ctime int64  `json:"ctime_ns"`
}

type identities struct {
	Manifest string              `json:"manifest_sha256"`
	Files    map[string]identity `json:"files"`
}

func identityOf(path string) (identity, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return identity{}, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return identity{}, fmt.Errorf("%s is no file", filepath.Base(path))
	}
	return identity{Inode: s.Ino, Size: info.Size(), Mtime: s.Mtim.Nano(), Ctime: s.Ctim.Nano()}, nil
}

// envelope is a signed text.
type envelope struct {
	Content   json.RawMessage `json:"content"`
	Key       string          `json:"key"`
	Signature string          `json:"signature"`
}

// purpose keeps a signature of one kind of file from being used for another.
func purpose(name string, content []byte) []byte {
	return append([]byte("atoll "+name+"\n"), content...)
}

func sign(key ed25519.PrivateKey, name string, content []byte) ([]byte, error) {
	return json.Marshal(envelope{
		Content: content, Key: hex.EncodeToString(key.Public().(ed25519.PublicKey)),
		Signature: hex.EncodeToString(ed25519.Sign(key, purpose(name, content))),
	})
}

var errUntrusted = errors.New("is signed with a key that is not trusted here")

// open returns a signed text's content, if one of the keys has signed it.
func open(text []byte, name string, trusted []string) ([]byte, error) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, err
	}
	if !slices.Contains(trusted, e.Key) {
		return nil, fmt.Errorf("%w (%.64q)", errUntrusted, e.Key)
	}
	key, err := hex.DecodeString(e.Key)
	signature, err2 := hex.DecodeString(e.Signature)
	if err := errors.Join(err, err2); err != nil || len(key) != ed25519.PublicKeySize {
		return nil, errors.Join(errors.New("no such signature"), err)
	}
	if !ed25519.Verify(key, purpose(name, e.Content), signature) {
		return nil, errors.New("the signature is not of this content")
	}
	return e.Content, nil
}
