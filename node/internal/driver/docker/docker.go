// Package docker runs boxes in containers of a Docker Engine, for machines and
// templates that need what gVisor can't do. The kernel is the host's, or that of
// the runtime that the engine is set to use (runsc, Kata).
//
// The agent and what lies between it and the engine are the same as in gVisor:
// it opens the box's FIFOs, which are mounted into the container. What Docker can't
// do is write a container's memory to disk: so there are no snapshots and no pauses.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver"
)

// BuildPrefix begins the versions of this driver, so that a box's version tells whose it is.
const BuildPrefix = "docker-"

// DefaultSocket is where Docker listens.
const DefaultSocket = "/var/run/docker.sock"

const (
	instanceLabel = "atoll.instance"
	boxLabel      = "atoll.box"

	// What a container has of its box's folder, out of sight of what runs in it.
	streams = "/.atoll-streams"
	group   = streams + "/memory"
)

// What the agent may do in the container. SYS_ADMIN, SYS_PTRACE and SYS_RESOURCE make the namespaces and limits that user processes
// live in, and none of those gets them (package inner).
var capabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
	"SYS_ADMIN", "SYS_PTRACE", "SYS_RESOURCE",
}

// Options of New.
type Options struct {
	// Socket of the Docker Engine.
	Socket string
	// Runtime is the OCI runtime that Docker is to use; empty: its default.
	Runtime  string
	Instance string
	// DataDir gets the folder docker/ for what containers mount.
	DataDir string
	Cgroups cgroup.Hierarchy
}

// Driver is a client of one Docker Engine.
type Driver struct {
	client  *client
	images  images
	options Options
	version string
	// limitsDisk says that Docker's storage can limit what a container writes.
	limitsDisk bool

	mu sync.Mutex
	// ids by process, of containers that were asked for; guarded by mu.
	ids map[int]string
}

// New reaches the Docker Engine. What comes of it is why there is no driver, in words for people.
func New(ctx context.Context, o Options) (*Driver, error) {
	d := &Driver{client: newClient(o.Socket), options: o, ids: map[int]string{}}
	d.images = images{client: d.client, instance: o.Instance}
	var info struct {
		ServerVersion  string
		Driver         string
		DriverStatus   [][2]string
		Runtimes       map[string]any
		DefaultRuntime string
		OSType         string
	}
	if err := d.client.call(ctx, http.MethodGet, "/info", nil, nil, &info); err != nil {
		if _, statErr := os.Stat(o.Socket); errors.Is(statErr, os.ErrNotExist) {
			return nil, fmt.Errorf("no Docker Engine listens at %s (remedy: install one, or name its socket with --docker-socket)", o.Socket)
		}
		return nil, err
	}
	if _, known := info.Runtimes[o.Runtime]; o.Runtime != "" && !known {
		return nil, fmt.Errorf("docker has no runtime %q (remedy: name it in Docker's daemon.json)", o.Runtime)
	}
	if runtime := max(o.Runtime, info.DefaultRuntime); strings.HasPrefix(runtime, "kata") {
		return nil, fmt.Errorf("docker's runtime %s has a kernel of its own, which the box's pipes do not reach (remedy: use runc or runsc)", runtime)
	}
	d.version = BuildPrefix + info.ServerVersion
	if o.Runtime != "" {
		d.version += "-" + o.Runtime
	}
	for _, status := range info.DriverStatus {
		// The only storage that has quotas by itself.
		if info.Driver == "overlay2" && status[0] == "Backing Filesystem" && status[1] == "xfs" {
			d.limitsDisk = true
		}
	}
	return d, nil
}

// LimitsDisk says whether DiskBytes of a Spec holds.
func (d *Driver) LimitsDisk() bool { return d.limitsDisk }

func (d *Driver) Name() string { return "docker" }

func (d *Driver) Version() string { return d.version }

func (d *Driver) Versions() []string { return []string{d.version} }

func (d *Driver) Can(driver.Ability, string) bool { return false }

// name of a box's container. Whatever is asked of Docker by it is asked of this instance's alone.
func (d *Driver) name(id string) string { return "atoll-" + d.options.Instance + "-" + id }

type mount struct {
	Type     string `json:"Type"`
	Source   string `json:"Source"`
	Target   string `json:"Target"`
	ReadOnly bool   `json:"ReadOnly"`
}

type ulimit struct {
	Name       string `json:"Name"`
	Soft, Hard uint64
}

type hostConfig struct {
	NetworkMode string
	Mounts      []mount
	CapDrop     []string
	CapAdd      []string
	SecurityOpt []string
	ShmSize     uint64
	Ulimits     []ulimit
	LogConfig   struct{ Type string }
	Runtime     string            `json:",omitempty"`
	StorageOpt  map[string]string `json:",omitempty"`
	// Of Docker's own group, in which the box does not stay.
	CgroupnsMode string `json:",omitempty"`
}

type container struct {
	Image      string
	Hostname   string
	User       string
	WorkingDir string
	Env        []string
	Entrypoint []string
	Cmd        []string
	Labels     map[string]string
	HostConfig hostConfig
}

// memoryFolder is where the host shows what a group uses.
func (d *Driver) memoryFolder(groupPath string) string {
	if d.options.Cgroups.Version() == 1 {
		return filepath.Join(cgroup.Root, "memory", groupPath)
	}
	return filepath.Join(cgroup.Root, groupPath)
}

func (d *Driver) config(spec driver.Spec, image, agent string) container {
	c := container{
		Image: image, Hostname: spec.Hostname, User: "0:0", WorkingDir: "/", Cmd: []string{},
		Env:        append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, spec.AgentEnv...),
		Entrypoint: []string{"/.atoll/bin/atoll-agent", "-streams", streams, "-memory", group, "-shared-kernel"},
		Labels:     map[string]string{instanceLabel: d.options.Instance, boxLabel: spec.ID},
	}
	h := &c.HostConfig
	h.NetworkMode, h.CapDrop, h.CapAdd, h.ShmSize, h.Runtime = "none", []string{"ALL"}, capabilities, spec.ShmBytes, d.options.Runtime
	// Docker's profile forbids the mounts that the agent makes. Its filter of system calls stays.
	h.SecurityOpt = []string{"apparmor=unconfined"}
	h.LogConfig.Type = "none"
	// A Docker that may not raise it starts nothing that asks for more than it has.
	files := uint64(spec.MaxOpenFiles)
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err == nil {
		files = min(files, own.Max)
	}
	h.Ulimits = []ulimit{{Name: "nofile", Soft: files, Hard: files}}
	h.Mounts = []mount{
		{Type: "bind", Source: agent, Target: "/.atoll", ReadOnly: true},
		{Type: "bind", Source: d.memoryFolder(spec.CgroupPath), Target: group, ReadOnly: true},
	}
	for _, name := range []string{driver.StdinName, driver.StdoutName, driver.StderrName} {
		h.Mounts = append(h.Mounts, mount{Type: "bind", Source: filepath.Join(spec.Dir, name), Target: filepath.Join(streams, name)})
	}
	if d.limitsDisk {
		h.StorageOpt = map[string]string{"size": strconv.FormatUint(spec.DiskBytes, 10)}
	}
	return c
}

// Prepare starts the agent too: Docker knows no process of a container that was only made. The agent does nothing before its first hello.
func (d *Driver) Prepare(ctx context.Context, spec driver.Spec) (int, error) {
	if spec.DiskBytes == 0 || spec.ShmBytes == 0 || spec.MaxOpenFiles == 0 {
		return 0, fmt.Errorf("box %s: disk %d, shm %d, open files %d (expected: all above 0)", spec.ID, spec.DiskBytes, spec.ShmBytes, spec.MaxOpenFiles)
	}
	if spec.FilesFrom != "" {
		return 0, fmt.Errorf("starting from a files snapshot: %w", driver.ErrUnsupported)
	}
	if err := d.known(spec.Build); err != nil {
		return 0, err
	}
	agent, err := unpackAgent(spec.AgentImagePath, filepath.Join(d.options.DataDir, "docker", "agents"))
	if err != nil {
		return 0, err
	}
	image, err := d.images.ensure(ctx, spec.ImagePath)
	if err != nil {
		return 0, err
	}
	pipes, err := driver.MakePipes(spec.Dir)
	if err != nil {
		return 0, err
	}
	// The FIFOs stay; the container opens them by name.
	pipes.Close()
	name := d.name(spec.ID)
	if err := d.client.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {name}}, d.config(spec, image, agent), nil); err != nil {
		return 0, err
	}
	if err := d.client.call(ctx, http.MethodPost, "/containers/"+name+"/start", nil, nil, nil); err != nil {
		return 0, err
	}
	state, err := d.inspect(ctx, spec.ID, false)
	if err != nil {
		return 0, err
	}
	if state.State.Pid <= 1 {
		return 0, fmt.Errorf("the agent ended at once with exit status %d: %s", state.State.ExitCode, driver.Tail(filepath.Join(spec.Dir, driver.StderrName), 2048))
	}
	if err := d.takeIn(ctx, spec.ID, state.State.Pid); err != nil {
		return 0, err
	}
	d.remember(state.State.Pid, spec.ID)
	return state.State.Pid, nil
}

// takeIn moves a container's processes to the box's own group: there the limits are, and what is counted. Nothing of the user runs yet.
func (d *Driver) takeIn(ctx context.Context, id string, pid int) error {
	target := d.options.Cgroups.Open(id)
	for {
		var left []int
		all, err := d.processes(ctx, id)
		if err != nil {
			return err
		}
		inside, err := target.Pids()
		if err != nil {
			return err
		}
		there := map[int]bool{}
		for _, one := range inside {
			there[one] = true
		}
		for _, one := range all {
			if !there[one] {
				left = append(left, one)
			}
		}
		if len(left) == 0 {
			return nil
		}
		for _, one := range left {
			if err := target.Add(one); err != nil && (one == pid || !isGone(one)) {
				return err
			}
		}
	}
}

func isGone(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return errors.Is(err, os.ErrNotExist)
}

// processes are a container's, by their ids on the host.
func (d *Driver) processes(ctx context.Context, id string) ([]int, error) {
	var top struct{ Processes [][]string }
	if err := d.client.call(ctx, http.MethodGet, "/containers/"+d.name(id)+"/top", url.Values{"ps_args": {"-eo pid"}}, nil, &top); err != nil {
		return nil, err
	}
	var all []int
	for _, line := range top.Processes {
		pid, err := strconv.Atoi(line[0])
		if err != nil {
			return nil, fmt.Errorf("docker names a process %q", line[0])
		}
		all = append(all, pid)
	}
	return all, nil
}

type state struct {
	State struct {
		Pid      int
		ExitCode int
	}
	SizeRw uint64
}

func (d *Driver) inspect(ctx context.Context, id string, size bool) (state, error) {
	var s state
	query := url.Values{}
	if size {
		query.Set("size", "1")
	}
	return s, d.client.call(ctx, http.MethodGet, "/containers/"+d.name(id)+"/json", query, nil, &s)
}

// Launch finds the agent started.
func (d *Driver) Launch(ctx context.Context, id, _, build string) error {
	if err := d.known(build); err != nil {
		return err
	}
	s, err := d.inspect(ctx, id, false)
	if err == nil && s.State.Pid == 0 {
		err = fmt.Errorf("the container has ended with exit status %d", s.State.ExitCode)
	}
	return err
}

func (d *Driver) known(build string) error {
	// Docker itself may have been upgraded under a container that runs on.
	if build != "" && !strings.HasPrefix(build, BuildPrefix) {
		return fmt.Errorf("build %s is none of Docker's", build)
	}
	return nil
}

func (d *Driver) Restore(context.Context, string, string, string, string) error {
	return fmt.Errorf("restoring: %w", driver.ErrUnsupported)
}

func (d *Driver) Pause(context.Context, string, string, string) error {
	return fmt.Errorf("pausing: %w", driver.ErrUnsupported)
}

func (d *Driver) Resume(context.Context, string, string, string) error {
	return fmt.Errorf("resuming: %w", driver.ErrUnsupported)
}

func (d *Driver) Checkpoint(context.Context, string, string, string, string) error {
	return fmt.Errorf("a memory snapshot: %w", driver.ErrUnsupported)
}

func (d *Driver) CheckpointFiles(context.Context, string, string, string, string) error {
	return fmt.Errorf("a files snapshot: %w", driver.ErrUnsupported)
}

func (d *Driver) ExportChanges(context.Context, string, string, string, io.Writer) error {
	return fmt.Errorf("saving what changed as an image: %w", driver.ErrUnsupported)
}

func (d *Driver) Delete(ctx context.Context, id, _ string) error {
	d.forget(id)
	for {
		err := d.client.call(ctx, http.MethodDelete, "/containers/"+d.name(id), url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
		switch {
		case err == nil || isStatus(err, http.StatusNotFound):
			return nil
		case !isStatus(err, http.StatusConflict):
			return err
		}
		// Somebody removes it already.
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (d *Driver) remember(pid int, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids[pid] = id
}

func (d *Driver) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for pid, one := range d.ids {
		if one == id {
			delete(d.ids, pid)
		}
	}
}

// DiskUsed asks Docker, which counts the files that the container has changed.
func (d *Driver) DiskUsed(_ string, pid int, _ string) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	id, err := d.idOf(ctx, pid)
	if err != nil {
		return 0, err
	}
	s, err := d.inspect(ctx, id, true)
	return s.SizeRw, err
}

func (d *Driver) idOf(ctx context.Context, pid int) (string, error) {
	d.mu.Lock()
	id, known := d.ids[pid]
	d.mu.Unlock()
	if known {
		return id, nil
	}
	ids, err := d.list(ctx)
	if err != nil {
		return "", err
	}
	for _, id := range ids {
		if s, err := d.inspect(ctx, id, false); err == nil && s.State.Pid == pid {
			d.remember(pid, id)
			return id, nil
		}
	}
	return "", fmt.Errorf("process %d is no container's", pid)
}

// GuestProcesses leaves out the agent and its init.
func (d *Driver) GuestProcesses(host uint64, _ string) uint64 { return max(host, 2) - 2 }

func (d *Driver) List() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return d.list(ctx)
}

func (d *Driver) list(ctx context.Context) ([]string, error) {
	query := labelled(instanceLabel + "=" + d.options.Instance)
	query.Set("all", "1")
	var there []struct{ Labels map[string]string }
	if err := d.client.call(ctx, http.MethodGet, "/containers/json", query, nil, &there); err != nil {
		return nil, err
	}
	var ids []string
	for _, one := range there {
		if id := one.Labels[boxLabel]; id != "" {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Prune removes the images that Docker was given and whose files are gone.
func (d *Driver) Prune(ctx context.Context) error { return d.images.prune(ctx, false) }

// Purge removes all images that Docker was given. Requires: no box is left.
func (d *Driver) Purge(ctx context.Context) error { return d.images.prune(ctx, true) }
