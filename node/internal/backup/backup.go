// Package backup writes an installation's data folder to one file while server and sandboxes go on, and makes a folder of such a file again.
//
// A backup is a tar archive, compressed with zstd: backup.json, which says what it is; the files; contents.json, with the checksum of each, what is to be
// left out of them, and what there is in it. Only the last one makes it whole.
//
// Order is what makes it consistent. Files of paused sandboxes and snapshots never change, they only come and go. So all that there are get opened, then
// the store is copied as it is at one moment, and what comes until that is done is opened too: whatever the copy names is open, also if it is removed before
// it is written. Whatever is missing nevertheless is told. Nothing is linked: a link changes a time by which the engine knows a snapshot as unchanged.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// format is raised when older programs can't read a backup.
const format = 1

const (
	headName     = "backup.json"
	contentsName = "contents.json"
	// dataPrefix and recipesPrefix are the two places that files go to: the data folder, and the images of recipes, which installations share.
	dataPrefix    = "data/"
	recipesPrefix = "recipes/"
	storeName     = "atoll.db"
	// maxText bounds the two descriptions: a million files.
	maxText = 512 << 20
)

// Head is what a backup begins with.
type Head struct {
	Format       int    `json:"format"`
	Version      string `json:"version"`
	Architecture string `json:"architecture"`
	Instance     string `json:"instance"`
	MadeAt       string `json:"made_at"`
}

func (h Head) check() error {
	switch {
	case h.Format < 1:
		return errors.New("it does not say what it is")
	case h.Format > format:
		return fmt.Errorf("it was made by a newer Atoll, %.40q (remedy: restore it with that one)", h.Version)
	case h.Architecture != runtime.GOARCH:
		return fmt.Errorf("it was made on %.20q (expected: %s, as this machine)", h.Architecture, runtime.GOARCH)
	}
	return nil
}

// contents is what a backup ends with.
type contents struct {
	Files []entry `json:"files"`
	// Dropped are names, or with a slash at their end folders, of files that are in the archive and turned out to be of no use.
	Dropped []string `json:"dropped,omitempty"`
	Report  Report   `json:"report"`
}

type entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Report says what is in a backup and what is not.
type Report struct {
	// Paused are the sandboxes that will be there again.
	Paused []Sandbox `json:"paused"`
	// Running are those that will not: they are on record, and end as lost.
	Running   []Sandbox  `json:"running"`
	Snapshots []Snapshot `json:"snapshots"`
	// Missing is what the store names and the backup has not got.
	Missing []Missing `json:"missing"`
	Images  int       `json:"images"`
}

// Sandbox is one that had not ended.
type Sandbox struct {
	ID   string `json:"sandbox_id"`
	Name string `json:"name,omitempty"`
	// Snapshot was made of a running one for this backup.
	Snapshot string `json:"snapshot_id,omitempty"`
}

// Snapshot is one that is kept.
type Snapshot struct {
	ID   string `json:"snapshot_id"`
	Name string `json:"name,omitempty"`
}

// Missing is something that could not be backed up.
type Missing struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Why  string `json:"why"`
}

// named is what the copy of the store names and does not hold.
type named struct {
	Sandboxes []struct {
		ID, Name, State, Box string
		PausedIn             string `json:"paused_in"`
	}
	Snapshots []struct{ ID, Name, State, Sandbox string }
	Images    []string
}

// checkName refuses whatever does not stay below the folder it is meant for.
func checkName(name string) error {
	rest, data := strings.CutPrefix(name, dataPrefix)
	if !data {
		var recipe bool
		if rest, recipe = strings.CutPrefix(name, recipesPrefix); !recipe || strings.Contains(rest, "/") {
			return fmt.Errorf("file %.100q", name)
		}
	}
	if !filepath.IsLocal(rest) || path.Clean(rest) != rest || strings.HasPrefix(path.Base(rest), restoringName) {
		return fmt.Errorf("file %.100q", name)
	}
	return nil
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		// Only of types that JSON can't have.
		panic(err)
	}
	return text
}
