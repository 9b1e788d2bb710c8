package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Cache keeps blobs by their sha256, so that images that share layers fetch them once. A blob that is not whole yet keeps what has come,
// and the next attempt goes on from there, also after a crash.
type Cache struct {
	dir string
	// quota is how much it keeps when nobody uses it.
	quota uint64

	mu sync.Mutex
	// busy are blobs that are fetched, and used those that are read; both guarded by mu.
	busy map[string]chan struct{}
	used map[string]int
}

const (
	partSuffix = ".part"
	// partAge is how long an unfinished blob waits for its next attempt.
	partAge = 24 * time.Hour
)

// OpenCache makes the folder where it is missing. Only one process may have it open.
func OpenCache(dir string, quota uint64) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("layer cache: %w", err)
	}
	c := &Cache{dir: dir, quota: quota, busy: map[string]chan struct{}{}, used: map[string]int{}}
	_, err := c.Collect()
	return c, err
}

func (c *Cache) path(sum string) string { return filepath.Join(c.dir, sum) }

// blob is one that is whole, and stays until it is released.
type blob struct {
	cache *Cache
	sum   string
}

func (b blob) open() (*os.File, error) { return os.Open(b.cache.path(b.sum)) }

func (b blob) release() {
	b.cache.mu.Lock()
	defer b.cache.mu.Unlock()
	if b.cache.used[b.sum]--; b.cache.used[b.sum] == 0 {
		delete(b.cache.used, b.sum)
	}
}

// get returns a blob, and lets fetch bring it where it is missing. fetch appends to the file what is missing from the offset on; the sum is
// checked here.
func (c *Cache) get(ctx context.Context, sum string, size int64, fetch func(ctx context.Context, part *os.File, from int64) error) (blob, error) {
	for {
		c.mu.Lock()
		other := c.busy[sum]
		if other == nil {
			c.busy[sum] = make(chan struct{})
			c.used[sum]++
			c.mu.Unlock()
			break
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return blob{}, ctx.Err()
		}
	}
	b := blob{c, sum}
	err := c.bring(ctx, sum, size, fetch)
	c.mu.Lock()
	close(c.busy[sum])
	delete(c.busy, sum)
	c.mu.Unlock()
	if err != nil {
		b.release()
		return blob{}, err
	}
	return b, nil
}

func (c *Cache) bring(ctx context.Context, sum string, size int64, fetch func(context.Context, *os.File, int64) error) error {
	path := c.path(sum)
	if info, err := os.Stat(path); err == nil && info.Size() == size {
		now := time.Now()
		return os.Chtimes(path, now, now)
	}
	if err := c.room(size); err != nil {
		return err
	}
	part, err := os.OpenFile(path+partSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("layer cache: %w", err)
	}
	defer part.Close()
	from, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("layer cache: %w", err)
	}
	if from > size {
		if from, err = 0, errors.Join(part.Truncate(0), seekStart(part)); err != nil {
			return fmt.Errorf("layer cache: %w", err)
		}
	}
	if from < size || size == 0 {
		if err := fetch(ctx, part, from); err != nil {
			return err
		}
	}
	if err := seekStart(part); err != nil {
		return fmt.Errorf("layer cache: %w", err)
	}
	h := sha256.New()
	n, err := io.Copy(h, part)
	if err != nil {
		return fmt.Errorf("layer cache: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum || n != size {
		// Nothing of it can be trusted, so the next attempt begins anew.
		return errors.Join(fmt.Errorf("%w: %d bytes with sha256 %s came (expected: %d with %s)", ErrInvalid, n, got, size, sum), os.Remove(path+partSuffix))
	}
	if err := part.Sync(); err != nil {
		return fmt.Errorf("layer cache: %w", err)
	}
	if err := os.Rename(path+partSuffix, path); err != nil {
		return fmt.Errorf("layer cache: %w", err)
	}
	return nil
}

func seekStart(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// room keeps a twentieth of the disk free.
func (c *Cache) room(size int64) error {
	var s unix.Statfs_t
	if err := unix.Statfs(c.dir, &s); err != nil {
		return fmt.Errorf("layer cache: %w", err)
	}
	free, all := s.Bavail*uint64(s.Bsize), s.Blocks*uint64(s.Bsize)
	if uint64(size)+all/20 > free {
		return fmt.Errorf("%w: a layer of %d MiB does not fit on the disk, of which %d MiB are free (remedy: delete sandboxes, snapshots or images)", ErrTooLarge, size>>20, free>>20)
	}
	return nil
}

// Collect removes what was not used for the longest time until the rest is within the quota, and returns how many bytes that were.
func (c *Cache) Collect() (freed uint64, err error) { return c.shrink(c.quota) }

// Clear removes all that nobody uses.
func (c *Cache) Clear() (freed uint64, err error) { return c.shrink(0) }

func (c *Cache) shrink(quota uint64) (freed uint64, err error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return 0, fmt.Errorf("layer cache: %w", err)
	}
	type kept struct {
		name string
		size uint64
		at   time.Time
	}
	var all []kept
	var total uint64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		k := kept{e.Name(), uint64(info.Size()), info.ModTime()}
		if strings.HasSuffix(k.name, partSuffix) && time.Since(k.at) > partAge {
			k.at = time.Time{}
		}
		all = append(all, k)
		total += k.size
	}
	slices.SortFunc(all, func(a, b kept) int { return a.at.Compare(b.at) })
	for _, k := range all {
		if total <= quota && !k.at.IsZero() {
			break
		}
		if c.remove(k.name) {
			freed += k.size
			total -= k.size
		}
	}
	return freed, nil
}

func (c *Cache) remove(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used[strings.TrimSuffix(name, partSuffix)] > 0 {
		return false
	}
	return os.Remove(filepath.Join(c.dir, name)) == nil
}
