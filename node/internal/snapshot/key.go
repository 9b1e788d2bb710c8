package snapshot

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// keyName is the key's among the snapshots.
const keyName = "key"

// openKey reads the installation's key, or makes it at the first start.
func openKey(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return makeKey(path)
	}
	if err != nil {
		return nil, err
	}
	return parseKey(path, text)
}

func parseKey(path string, text []byte) (ed25519.PrivateKey, error) {
	seed, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%s: %d bytes (expected: %d, as hex)", path, len(seed), ed25519.SeedSize)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

func makeKey(path string) (ed25519.PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := rand.Read(seed); err != nil {
		return nil, err
	}
	if err := WriteSynced(path, []byte(hex.EncodeToString(seed))); err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// WriteSynced replaces a file so that neither a crash nor a power cut leaves less than one of the two.
func WriteSynced(path string, content []byte) error {
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir writes a folder's names to the disk, or a file.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncAll writes files and folders to the disk.
func syncAll(paths []string) error {
	results := make(chan error, len(paths))
	for _, path := range paths {
		go func() { results <- SyncDir(path) }()
	}
	var failures []error
	for range paths {
		failures = append(failures, <-results)
	}
	return errors.Join(failures...)
}
