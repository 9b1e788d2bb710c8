// Package oci gets images from registries, archives and a Docker daemon.
//
// What it returns is a configuration and layers as they came: compressed tar streams that nobody has looked into yet. Package image merges
// them, in a process without privileges. Here every byte is held against the digest that the manifest names for it.
package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"atoll/node/internal/image"
)

// Errors that a caller tells apart. All others are faults of this machine.
var (
	// ErrNotFound: there is no such image, or none for this machine's architecture.
	ErrNotFound = errors.New("no such image")
	// ErrDenied: the registry refuses the credentials, or wants some.
	ErrDenied = errors.New("the registry refuses access")
	// ErrInvalid: what came is no image.
	ErrInvalid = errors.New("not an image")
	// ErrUnavailable: the registry or the daemon can't be reached, or fails.
	ErrUnavailable = errors.New("can't be reached")
	// ErrTooLarge: a limit is passed, or the disk has no room.
	ErrTooLarge = errors.New("the image is too large")
)

// Limits of what comes from outside.
const (
	maxManifest = 4 << 20
	maxConfig   = 8 << 20
	maxLayers   = 512
	// maxCompressed is for all layers of an image together, as they are sent.
	maxCompressed = 24 << 30
)

// Progress hears of parts that come: "layer sha256:0123456789ab", how much of it is there, and how much it is (0: not known). It may be
// called from several goroutines at the same time. It may be nil.
type Progress func(what string, done, total uint64)

func (p Progress) tell(what string, done, total uint64) {
	if p != nil {
		p(what, done, total)
	}
}

// imageConfig is the part of an OCI image's configuration that counts here.
type imageConfig struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		User         string              `json:"User"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
		Env          []string            `json:"Env"`
		Entrypoint   []string            `json:"Entrypoint"`
		Cmd          []string            `json:"Cmd"`
		Volumes      map[string]struct{} `json:"Volumes"`
		WorkingDir   string              `json:"WorkingDir"`
		Labels       map[string]string   `json:"Labels"`
		StopSignal   string              `json:"StopSignal"`
		Healthcheck  json.RawMessage     `json:"Healthcheck"`
		Shell        []string            `json:"Shell"`
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// parseConfig reads a configuration, and returns the sha256 of each layer without compression too, in hex.
func parseConfig(text []byte, layers int) (image.Config, []string, error) {
	var c imageConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return image.Config{}, nil, fmt.Errorf("%w: its configuration is no JSON: %w", ErrInvalid, err)
	}
	if c.OS != "" && c.OS != "linux" || c.Architecture != "" && c.Architecture != runtime.GOARCH {
		return image.Config{}, nil, fmt.Errorf("%w for linux/%s: it is for %s/%s", ErrNotFound, runtime.GOARCH, c.OS, c.Architecture)
	}
	if len(c.RootFS.DiffIDs) != layers {
		return image.Config{}, nil, fmt.Errorf("%w: its configuration has %d layers, its manifest %d", ErrInvalid, len(c.RootFS.DiffIDs), layers)
	}
	var ids []string
	for _, id := range c.RootFS.DiffIDs {
		hex, err := sha256Of(id)
		if err != nil {
			return image.Config{}, nil, err
		}
		ids = append(ids, hex)
	}
	healthcheck := c.Config.Healthcheck
	if string(healthcheck) == "null" {
		healthcheck = nil
	}
	return image.Config{
		Env: namesAndValues(c.Config.Env), User: c.Config.User, Workdir: c.Config.WorkingDir, Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd,
		ExposedPorts: keys(c.Config.ExposedPorts), Labels: c.Config.Labels, StopSignal: c.Config.StopSignal, Healthcheck: healthcheck,
		Volumes: keys(c.Config.Volumes), Shell: c.Config.Shell,
	}, ids, nil
}

// namesAndValues leaves out what is no variable, as runtimes do.
func namesAndValues(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.IndexByte(e, '=') <= 0 })
}

func keys(set map[string]struct{}) []string {
	var all []string
	for k := range set {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// sha256Of checks a digest and returns its hex part.
func sha256Of(digest string) (string, error) {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%w: digest %.80q (expected: sha256: and 64 hex digits)", ErrInvalid, digest)
	}
	return hex, nil
}
