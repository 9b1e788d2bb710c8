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
)

const (
	recordName = "box.json"
	keyName    = "key"
)

// record is what a restarted engine must know of a box. It is written before
// the step it announces. It is not synced to the disk: it has to outlive a killed
// engine, not a machine without power, whose boxes are gone anyway.
type record struct {
	box      *enginev1.Box
	env      map[string]string
	hostname string
	image    image.Image
	process  process
}

// process is the one whose end is the box's end.
type process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"`
	BootID    string `json:"boot_id"`
}

type recordFile struct {
	Box       json.RawMessage   `json:"box"`
	Env       map[string]string `json:"env"`
	Hostname  string            `json:"hostname"`
	ImagePath string            `json:"image_path"`
	ImageJSON string            `json:"image_metadata"`
	Process   process           `json:"process"`
}

func (r *record) write(dir string) error {
	box, err := protojson.Marshal(r.box)
	if err != nil {
		return fmt.Errorf("box record: %w", err)
	}
	text, err := json.Marshal(recordFile{
		Box: box, Env: r.env, Hostname: r.hostname, ImagePath: r.image.Path, ImageJSON: r.image.JSON, Process: r.process,
	})
	if err != nil {
		return fmt.Errorf("box record: %w", err)
	}
	return replaceFile(filepath.Join(dir, recordName), text)
}

func readRecord(dir string) (*record, error) {
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return nil, err
	}
	var f recordFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("box record: %w", err)
	}
	r := &record{box: &enginev1.Box{}, env: f.Env, hostname: f.Hostname, process: f.Process}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(f.Box, r.box); err != nil {
		return nil, fmt.Errorf("box record: %w", err)
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
		return err
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
