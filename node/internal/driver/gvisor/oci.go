package gvisor

import (
	"encoding/json"
	"fmt"
	"strconv"

	"atoll/node/internal/driver"
)

// agentPath is where the second image holds the agent.
const agentPath = "/.atoll/bin/atoll-agent"

// capabilities are those a container's root usually has, without NET_RAW (no
// raw sockets in any box), and SYS_ADMIN, SYS_RESOURCE and SYS_PTRACE: the agent
// makes the namespaces and sets the limits that user processes live in. They
// are the sentry's to grant; none of them reaches the host's kernel.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
}

// The parts of an OCI runtime specification that Atoll uses.
type (
	ociSpec struct {
		Version     string            `json:"ociVersion"`
		Process     ociProcess        `json:"process"`
		Root        ociRoot           `json:"root"`
		Hostname    string            `json:"hostname"`
		Mounts      []ociMount        `json:"mounts"`
		Annotations map[string]string `json:"annotations"`
		Linux       ociLinux          `json:"linux"`
	}
	ociProcess struct {
		User            ociUser             `json:"user"`
		Args            []string            `json:"args"`
		Env             []string            `json:"env"`
		Cwd             string              `json:"cwd"`
		Capabilities    map[string][]string `json:"capabilities"`
		Rlimits         []ociRlimit         `json:"rlimits"`
		NoNewPrivileges bool                `json:"noNewPrivileges"`
	}
	ociUser struct {
		UID uint32 `json:"uid"`
		GID uint32 `json:"gid"`
	}
	ociRlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	ociRoot struct {
		Path     string `json:"path"`
		Readonly bool   `json:"readonly"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	ociLinux struct {
		Namespaces  []ociNamespace `json:"namespaces"`
		CgroupsPath string         `json:"cgroupsPath"`
	}
	ociNamespace struct {
		Type string `json:"type"`
		Path string `json:"path,omitempty"`
	}
)

func ociConfig(spec driver.Spec, empty, netns string) ([]byte, error) {
	if spec.DiskBytes == 0 || spec.ShmBytes == 0 || spec.MaxOpenFiles == 0 {
		// Without a size gVisor's file systems have none: a box could fill the host.
		return nil, fmt.Errorf("box %s: disk %d, shm %d, open files %d (expected: all above 0)", spec.ID, spec.DiskBytes, spec.ShmBytes, spec.MaxOpenFiles)
	}
	files := uint64(spec.MaxOpenFiles)
	return json.Marshal(ociSpec{
		Version: "1.1.0",
		Process: ociProcess{
			Args: []string{agentPath},
			Env:  append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, spec.AgentEnv...),
			Cwd:  "/",
			Capabilities: map[string][]string{
				"bounding": capabilities, "effective": capabilities, "permitted": capabilities, "inheritable": {}, "ambient": {},
			},
			Rlimits: []ociRlimit{{Type: "RLIMIT_NOFILE", Hard: files, Soft: files}},
		},
		Root:     ociRoot{Path: empty},
		Hostname: spec.Hostname,
		Mounts: []ociMount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777", "size=" + strconv.FormatUint(spec.ShmBytes, 10)}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/.atoll", Type: "erofs", Source: spec.AgentImagePath, Options: []string{"ro"}},
			// gVisor puts a memory file system without a size over an empty /tmp, which
			// would count as the box's memory. A mount below makes /tmp not empty, so
			// it stays on the disk overlay with its quota.
			{Destination: "/tmp/.atoll", Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "nosuid", "nodev", "noexec", "mode=0555", "size=4096"}},
		},
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.source": spec.ImagePath,
			"dev.gvisor.spec.rootfs.type":   "erofs",
			// That it is on disk; which folder, the flag --overlay2 says.
			"dev.gvisor.spec.rootfs.overlay": "dir=/overlay",
			"dev.gvisor.spec.rootfs.options": "size=" + strconv.FormatUint(spec.DiskBytes, 10),
		},
		Linux: ociLinux{
			Namespaces: []ociNamespace{
				{Type: "pid"}, {Type: "mount"}, {Type: "ipc"}, {Type: "uts"}, {Type: "network", Path: netns},
			},
			CgroupsPath: spec.CgroupPath,
		},
	})
}
