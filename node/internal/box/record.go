package box

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/image"
	"atoll/node/internal/snapshot"
)

const (
	recordName = "box.json"
	keyName    = "key"
	// unknownAgent stands for the agent of a box that an engine made which kept none: it can't be brought to life again.
	unknownAgent = "unknown"
)

// record is what a restarted engine must know of a box. It is written before
// the step it announces. It is not synced to the disk: it has to outlive a killed
// engine, not a machine without power, whose boxes are gone anyway.
//
// What is paused outlives the machine's end as well: those records are synced.
type record struct {
	box      *enginev1.Box
	env      map[string]string
	hostname string
	image    image.Image
	// container is the one that the box lives in; without an id where there is none.
	container containerRecord
	// frozen says that the container may stand still because a snapshot was being made of it.
	frozen bool
	// build says that it is a build box.
	build bool
	// owner is set in the folder of a container that belongs to another box; then nothing else is.
	owner string
}

// process is the one whose end is the box's end.
type process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"`
	BootID    string `json:"boot_id"`
}

type recordFile struct {
	Box       json.RawMessage   `json:"box,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Hostname  string            `json:"hostname,omitempty"`
	ImagePath string            `json:"image_path,omitempty"`
	ImageJSON string            `json:"image_metadata,omitempty"`
	// Process stands for Container in the records of earlier engines.
	Process   *process         `json:"process,omitempty"`
	Container *containerRecord `json:"container,omitempty"`
	Frozen    bool             `json:"frozen,omitempty"`
	Build     bool             `json:"build,omitempty"`
	Owner     string           `json:"owner,omitempty"`
}

func (r *record) encode() ([]byte, error) {
	if r.owner != "" {
		return json.Marshal(recordFile{Owner: r.owner})
	}
	box, err := protojson.Marshal(r.box)
	if err != nil {
		return nil, fmt.Errorf("box record: %w", err)
	}
	text, err := json.Marshal(recordFile{
		Box: box, Env: r.env, Hostname: r.hostname, ImagePath: r.image.Path, ImageJSON: r.image.JSON,
		Container: &r.container, Frozen: r.frozen, Build: r.build,
	})
	if err != nil {
		return nil, fmt.Errorf("box record: %w", err)
	}
	return text, nil
}

func (r *record) write(dir string) error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, recordName), text)
}

func (r *record) writeSynced(dir string) error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	if err := snapshot.WriteSynced(filepath.Join(dir, recordName), text); err != nil {
		return err
	}
	// The folder itself may be as new as the record.
	return snapshot.SyncDir(filepath.Dir(dir))
}

// syncRecord does for a record that was written what writeSynced does.
func syncRecord(dir string) error {
	for _, path := range []string{filepath.Join(dir, recordName), dir, filepath.Dir(dir)} {
		if err := snapshot.SyncDir(path); err != nil {
			return err
		}
	}
	return nil
}

func readRecord(dir string) (*record, error) {
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return nil, err
	}
	return decodeRecord(text)
}

func decodeRecord(text []byte) (*record, error) {
	var f recordFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("box record: %w", err)
	}
	if f.Owner != "" {
		return &record{owner: f.Owner}, nil
	}
	r := &record{box: &enginev1.Box{}, env: f.Env, hostname: f.Hostname, frozen: f.Frozen, build: f.Build}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(f.Box, r.box); err != nil {
		return nil, fmt.Errorf("box record: %w", err)
	}
	switch {
	case f.Container != nil:
		r.container = *f.Container
	case f.Process != nil:
		r.container = containerRecord{
			ID: r.box.GetBoxId(), Process: *f.Process, Build: r.box.GetRuntimeVersion(), Agent: unknownAgent, Shape: shapeOf(r.box.GetLimits()),
		}
	}
	r.image.Path, r.image.JSON = f.ImagePath, f.ImageJSON
	if err := json.Unmarshal([]byte(f.ImageJSON), &r.image.Metadata); err != nil {
		return nil, fmt.Errorf("box record: image metadata: %w", err)
	}
	return r, nil
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, content []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return os.Rename(temporary, path)
}

func writeKey(dir string, key [32]byte) error {
	return os.WriteFile(filepath.Join(dir, keyName), []byte(hex.EncodeToString(key[:])), 0o600)
}

func readKey(dir string) (key [32]byte, err error) {
	text, err := os.ReadFile(filepath.Join(dir, keyName))
	if err != nil {
		return key, err
	}
	n, err := hex.Decode(key[:], text)
	if err == nil && n != len(key) {
		err = errors.New("too short")
	}
	if err != nil {
		return key, fmt.Errorf("box key: %w", err)
	}
	return key, nil
}

// bootID changes when process ids begin anew: when the machine starts, or the
// container that we are in, with all that ran in it gone.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	first, err := startTime(1)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/%d", strings.TrimSpace(string(text)), first), nil
}
