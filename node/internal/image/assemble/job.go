// Package assemble is what the command atoll-image does: it merges a base image and layers into an EROFS file.
//
// Layers come from strangers, so this runs in a process that can do nothing: without privileges, in an empty root, in namespaces of its
// own. It has a descriptor for each layer, one for the base, and one for the file to write. Nothing is unpacked; the tree is in memory.
package assemble

import (
	"encoding/json"
	"fmt"
)

// Descriptors of the process beside the job (0), the messages (1) and what it has to say (2).
const (
	outputFile = 3
	baseFile   = 4
	firstLayer = 5
)

// Job is what the process reads first.
type Job struct {
	HasBase bool    `json:"has_base,omitempty"`
	Layers  []Layer `json:"layers,omitempty"`
	Config  Config  `json:"config"`
	// Bare leaves out the user and what else a sandbox wants in its image.
	Bare   bool   `json:"bare,omitempty"`
	Limits Limits `json:"limits"`
}

// Layer is a tar stream, as it is or compressed with gzip or zstd.
type Layer struct {
	// Overlay: deletions are devices 0/0 and hard links to them, as overlayfs has them, and not names that begin with ".wh.".
	Overlay bool `json:"overlay,omitempty"`
	// DiffID is the sha256 of the stream without compression, in hex; empty: not checked.
	DiffID string `json:"diff_id,omitempty"`
	// Root is the folder that the layer lies in, such as "/app"; empty: the root.
	Root string `json:"root,omitempty"`
}

// Limits bound what the layers can ask for; 0 is the default of each.
type Limits struct {
	// Bytes of all streams without compression, and of all files.
	Bytes uint64 `json:"bytes,omitempty"`
	// Entries is how many files, directories and links an image has.
	Entries int `json:"entries,omitempty"`
	// NameBytes is how much their names and links may be together.
	NameBytes int `json:"name_bytes,omitempty"`
	Layers    int `json:"layers,omitempty"`
}

// Defaults of Limits.
const (
	DefaultBytes     = 32 << 30
	DefaultEntries   = 1_000_000
	DefaultNameBytes = 256 << 20
	DefaultLayers    = 512
)

// WithDefaults fills in what is 0.
func (l Limits) WithDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = DefaultBytes
	}
	if l.Entries == 0 {
		l.Entries = DefaultEntries
	}
	if l.NameBytes == 0 {
		l.NameBytes = DefaultNameBytes
	}
	if l.Layers == 0 {
		l.Layers = DefaultLayers
	}
	return l
}

// Config is how an image wants to be run: what a Dockerfile's ENV, USER, WORKDIR, ENTRYPOINT, CMD, EXPOSE, LABEL, STOPSIGNAL, HEALTHCHECK
// and VOLUME say.
type Config struct {
	// Env holds "NAME=value".
	Env []string `json:"env,omitempty"`
	// User is "name", "name:group", or the same in numbers; empty is root.
	User         string            `json:"user,omitempty"`
	Workdir      string            `json:"workdir,omitempty"`
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Cmd          []string          `json:"cmd,omitempty"`
	ExposedPorts []string          `json:"exposed_ports,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	StopSignal   string            `json:"stop_signal,omitempty"`
	// Healthcheck is as OCI writes it: {"Test": ["CMD", …], "Interval": nanoseconds, …}.
	Healthcheck json.RawMessage `json:"healthcheck,omitempty"`
	Volumes     []string        `json:"volumes,omitempty"`
	// Shell is what the shell form of commands runs in; empty: /bin/sh -c.
	Shell []string `json:"shell,omitempty"`
	// OnBuild are instructions that run in builds of other images from this one.
	OnBuild []string `json:"on_build,omitempty"`
}

// Message is one line of what the process says; the last has Done or Error.
type Message struct {
	// Read is how many bytes of the layers are merged.
	Read  uint64  `json:"read,omitempty"`
	Done  *Result `json:"done,omitempty"`
	Error *Error  `json:"error,omitempty"`
}

// Result says what was written.
type Result struct {
	Size    uint64 `json:"size"`
	Entries int    `json:"entries"`
	// User is the one that runs things, with where it is at home.
	User    string `json:"user"`
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	Home    string `json:"home"`
	Shell   string `json:"shell,omitempty"`
	Workdir string `json:"workdir"`
	// DiffIDs of the layers, in hex.
	DiffIDs []string `json:"diff_ids,omitempty"`
	// Languages that it has interpreters for, and where those are.
	Interpreters []Interpreter `json:"interpreters,omitempty"`
	// Left out: devices, and files of a kind that is not known.
	Devices int `json:"devices,omitempty"`
}

// Interpreter is a program of the image that runs a language.
type Interpreter struct {
	// Name is "python3", "bun", "deno", "node", "go" or "bash".
	Name string `json:"name"`
	// Path is where it is found on the image's PATH.
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
}

// Error is a fault, and whose: the layers', or ours.
type Error struct {
	Kind ErrorKind `json:"kind"`
	Text string    `json:"text"`
}

// ErrorKind is whose fault an error is.
type ErrorKind string

// Kinds of errors.
const (
	// Invalid: a layer is not what a layer may be.
	Invalid ErrorKind = "invalid"
	// TooLarge: a limit is passed.
	TooLarge ErrorKind = "too_large"
	// Internal: reading or writing failed.
	Internal ErrorKind = "internal"
)

func (e *Error) Error() string { return e.Text }

func invalid(format string, arguments ...any) error {
	return &Error{Kind: Invalid, Text: fmt.Sprintf(format, arguments...)}
}

func tooLarge(format string, arguments ...any) error {
	return &Error{Kind: TooLarge, Text: fmt.Sprintf(format, arguments...)}
}
