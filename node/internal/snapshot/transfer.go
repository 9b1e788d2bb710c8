package snapshot

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	"atoll/node/gen/enginev1"
)

// Export writes a snapshot as one file: a tar archive of its signed manifest, then its files.
func (s *Store) Export(ctx context.Context, id string, w io.Writer) error {
	use, err := s.Use(ctx, id)
	if err != nil {
		return err
	}
	defer use.Close()
	// Whoever reads it elsewhere has nothing but the checksums.
	if err := s.seal(ctx, use.entry); err != nil {
		return err
	}
	s.mu.Lock()
	m := use.entry.manifest
	s.mu.Unlock()
	text, err := os.ReadFile(filepath.Join(use.entry.dir, manifestName))
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	header := func(name string, size int64) error {
		return archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: time.UnixMilli(m.Snapshot.GetCreatedAtUnixMs()), Format: tar.FormatPAX,
		})
	}
	if err := header(manifestName, int64(len(text))); err != nil {
		return err
	}
	if _, err := archive.Write(text); err != nil {
		return err
	}
	for _, f := range m.Files {
		if err := header(imageName+"/"+f.Name, f.Size); err != nil {
			return err
		}
		if err := copyFile(ctx, archive, filepath.Join(use.Image(), f.Name)); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return archive.Close()
}

func copyFile(ctx context.Context, w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := io.CopyN(w, f, 1<<20); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Importing says how a snapshot's file is taken.
type Importing struct {
	// ID it gets here.
	ID     string
	Labels map[string]string
	// Trusted are public keys beside this installation's own.
	Trusted []string
	// Accept refuses what can't be used here, once the manifest is read and before the files are.
	Accept func(*Manifest) error
}

// Import reads what Export wrote. Nothing is left of what is refused.
func (s *Store) Import(ctx context.Context, i Importing, r io.Reader) (*enginev1.Snapshot, error) {
	draft, err := s.Begin(i.ID, "import")
	if err != nil {
		return nil, err
	}
	m, err := s.receive(ctx, i, draft, r)
	if err != nil {
		return nil, errors.Join(err, draft.Discard())
	}
	return draft.Commit(m)
}

func damaged(format string, values ...any) error {
	return fmt.Errorf("%w: the file is damaged, or no snapshot's: %w", ErrUnusable, fmt.Errorf(format, values...))
}

func (s *Store) receive(ctx context.Context, i Importing, draft *Draft, r io.Reader) (*Manifest, error) {
	archive := tar.NewReader(r)
	next, err := archive.Next()
	if err != nil {
		return nil, damaged("%w", err)
	}
	if next.Name != manifestName || next.Size > maxManifest {
		return nil, damaged("it begins with %.100q of %d bytes (expected: %s)", next.Name, next.Size, manifestName)
	}
	text, err := io.ReadAll(archive)
	if err != nil {
		return nil, damaged("%w", err)
	}
	content, err := open(text, manifestName, append([]string{s.PublicKey()}, i.Trusted...))
	if errors.Is(err, errUntrusted) {
		return nil, fmt.Errorf("%w: it %w", ErrUnusable, err)
	}
	if err != nil {
		return nil, damaged("%w", err)
	}
	m, err := decodeManifest(content)
	if err != nil {
		return nil, damaged("%w", err)
	}
	if !m.sealed() {
		return nil, damaged("it has no checksums")
	}
	if err := i.Accept(m); err != nil {
		return nil, err
	}
	if err := os.Mkdir(draft.Image(), 0o700); err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := receiveFile(archive, f, draft.Image()); err != nil {
			return nil, err
		}
	}
	if next, err := archive.Next(); err != io.EOF {
		return nil, damaged("it goes on after its last file (%v, %w)", next, err)
	}
	// The archive's reader stops at the archive's end, whatever comes after that.
	switch _, err := io.ReadFull(r, make([]byte, 1)); err {
	case io.EOF:
	case nil:
		return nil, damaged("more follows after its end")
	default:
		return nil, damaged("%w", err)
	}
	m.PausedBox = ""
	m.Snapshot = proto.CloneOf(m.Snapshot)
	m.Snapshot.Labels = i.Labels
	return m, nil
}

func receiveFile(archive *tar.Reader, f File, dir string) error {
	next, err := archive.Next()
	if err != nil {
		return damaged("before %s: %w", f.Name, err)
	}
	if next.Name != imageName+"/"+f.Name || next.Size != f.Size || next.Typeflag != tar.TypeReg {
		return damaged("%.100q of %d bytes (expected: %s of %d)", next.Name, next.Size, f.Name, f.Size)
	}
	// The name is one of those that a manifest may have.
	out, err := os.OpenFile(filepath.Join(dir, f.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	source := &sourceReader{r: archive}
	_, err = io.Copy(io.MultiWriter(out, sum), source)
	if err := errors.Join(err, out.Close()); err != nil {
		if source.failed {
			return damaged("%s: %w", f.Name, err)
		}
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return damaged("the checksum of %s is another", f.Name)
	}
	return nil
}

// sourceReader tells an error of what is read from one of what is written.
type sourceReader struct {
	r      io.Reader
	failed bool
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.failed = err != nil && err != io.EOF
	return n, err
}

// readPausedBox says of which box a manifest file is the pause, empty if of none.
func readPausedBox(path string) string {
	var e envelope
	var m Manifest
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &e) != nil || json.Unmarshal(e.Content, &m) != nil {
		return ""
	}
	return m.PausedBox
}
