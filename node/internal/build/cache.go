package build

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Cache says which snapshots of build boxes are kept. A snapshot's id follows from its key, so what is there is known by the snapshots
// alone, and lasts as they do; the folder only tells when each was used last.
type Cache struct {
	sandboxes Sandboxes
	dir       string
	quota     uint64
	logger    *slog.Logger
	mu        sync.Mutex
}

// DefaultQuota is how many bytes of snapshots are kept.
const DefaultQuota = 20 << 30

// OpenCache takes over what is there and removes what is of no use any more. quota 0: DefaultQuota.
func OpenCache(sandboxes Sandboxes, dir string, quota uint64, logger *slog.Logger) (*Cache, error) {
	if quota == 0 {
		quota = DefaultQuota
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c := &Cache{sandboxes: sandboxes, dir: dir, quota: quota, logger: logger}
	c.evict()
	return c, nil
}

// key is what a snapshot is found by: over what its files depend on.
type key [sha256.Size]byte

// keyOf is the key of what is made of the state before by something that values, which encode as JSON, describe.
func keyOf(before key, values ...any) (key, error) {
	text, err := json.Marshal(values)
	if err != nil {
		return key{}, err
	}
	return sha256.Sum256(append(before[:], text...)), nil
}

// snapshot is the id of a key's snapshot.
func (k key) snapshot() string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	id := make([]byte, 26)
	for i := range id {
		id[i] = alphabet[k[i]&31]
	}
	return "snap-" + string(id)
}

// has says whether there is a snapshot, as far as is known without reading it, and counts that as a use.
func (c *Cache) has(k key) bool {
	id := k.snapshot()
	if _, there := c.sandboxes.Snapshots()[id]; !there {
		return false
	}
	c.used(id)
	return true
}

func (c *Cache) used(id string) {
	path := filepath.Join(c.dir, id)
	now := time.Now()
	err := os.Chtimes(path, now, now)
	if errors.Is(err, os.ErrNotExist) {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		c.logger.Warn("when a build's cache was used is not on record", "error", err)
	}
}

// saved makes room after a snapshot was made.
func (c *Cache) saved(k key) {
	c.used(k.snapshot())
	c.evict()
}

func (c *Cache) remove(k key) {
	if err := c.sandboxes.Remove(k.snapshot()); err != nil {
		c.logger.Warn("a build's snapshot is still there", "snapshot", k.snapshot(), "error", err)
	}
}

// Clear removes all that is kept, and says how many bytes that were.
func (c *Cache) Clear() uint64 { return c.shrink(0) }

func (c *Cache) evict() { c.shrink(c.quota) }

// shrink removes what was used longest ago until so many bytes are left. A box that is being made of a snapshot has it to its end.
func (c *Cache) shrink(quota uint64) (freed uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type entry struct {
		id    string
		bytes uint64
		used  time.Time
	}
	var all []entry
	var sum uint64
	sizes := c.sandboxes.Snapshots()
	for id, bytes := range sizes {
		e := entry{id: id, bytes: bytes}
		if info, err := os.Stat(filepath.Join(c.dir, id)); err == nil {
			e.used = info.ModTime()
		}
		all = append(all, e)
		sum += bytes
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.id, b.id)) })
	for _, e := range all {
		if sum <= quota {
			break
		}
		if err := c.sandboxes.Remove(e.id); err != nil {
			c.logger.Warn("a build's snapshot is still there", "snapshot", e.id, "error", err)
			continue
		}
		delete(sizes, e.id)
		sum -= e.bytes
		freed += e.bytes
	}
	notes, err := os.ReadDir(c.dir)
	if err != nil {
		return freed
	}
	for _, note := range notes {
		if _, there := sizes[note.Name()]; !there {
			_ = os.Remove(filepath.Join(c.dir, note.Name())) // it is looked at again with the next build
		}
	}
	return freed
}
