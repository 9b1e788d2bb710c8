package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"atoll/node/internal/box"
	"atoll/node/internal/cgroup"
	"atoll/node/internal/engine"
)

// facts are what a doctor wants to know of a machine.
type facts struct {
	EngineVersion        string   `json:"engine_version"`
	RuntimeVersion       string   `json:"runtime_version"`
	RuntimeBuiltUnix     int64    `json:"runtime_built_unix"`
	Kernel               string   `json:"kernel"`
	CPUs                 int      `json:"cpus"`
	CgroupVersion        int      `json:"cgroup_version"`
	MemoryTotalBytes     uint64   `json:"memory_total_bytes"`
	MemoryAvailableBytes uint64   `json:"memory_available_bytes"`
	DiskTotalBytes       uint64   `json:"disk_total_bytes"`
	DiskAvailableBytes   uint64   `json:"disk_available_bytes"`
	Root                 bool     `json:"root"`
	Warnings             []string `json:"warnings"`
}

func factsOf(o options) facts {
	f := facts{EngineVersion: engine.Version, CPUs: runtime.NumCPU(), Root: os.Geteuid() == 0, Warnings: []string{}}
	warn := func(format string, values ...any) { f.Warnings = append(f.Warnings, fmt.Sprintf(format, values...)) }
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		f.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if !f.Root {
		warn("the engine needs root (remedy: sudo, or the container image)")
	}
	if groups, err := cgroup.Detect(cgroup.Root, o.instance); err != nil {
		warn("%v", err)
	} else {
		f.CgroupVersion = groups.Version()
		if f.CgroupVersion == 1 {
			warn("this host uses control groups version 1; version 2 starts sandboxes faster (remedy: boot with systemd.unified_cgroup_hierarchy=1)")
		}
	}
	if space, err := box.HostSpace(existing(o.data)); err != nil {
		warn("%v", err)
	} else {
		f.MemoryTotalBytes, f.MemoryAvailableBytes = space.MemoryTotal, space.MemoryAvailable
		f.DiskTotalBytes, f.DiskAvailableBytes = space.DiskTotal, space.DiskAvailable
		if used := space.DiskTotal - space.DiskAvailable; used*100 >= space.DiskTotal*80 {
			warn("the disk of %s is %d %% full; from 90 %% on no sandboxes are made", o.data, used*100/space.DiskTotal)
		}
	}
	if o.runsc != "" {
		path := filepath.Join(o.runsc, "VERSION")
		text, err := os.ReadFile(path)
		if err != nil {
			warn("no runsc build in %s (remedy: run ./atoll up, which builds it)", o.runsc)
		} else {
			f.RuntimeVersion = strings.TrimSpace(string(text))
			if info, err := os.Stat(path); err == nil {
				f.RuntimeBuiltUnix = info.ModTime().Unix()
			}
		}
	}
	if _, err := user.LookupGroup(o.socketGroup); err != nil {
		warn("group %q does not exist (remedy: groupadd --system %s, or --socket-group)", o.socketGroup, o.socketGroup)
	}
	return f
}

// existing is the nearest folder above a path that is there.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == "/" || path == "." {
			return path
		}
		path = filepath.Dir(path)
	}
}

func check(o options) error {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(factsOf(o))
}
