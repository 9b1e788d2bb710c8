package inner

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// forbidden are the calls that Docker forbids too, but not to a container that has CAP_SYS_ADMIN, as the agent must have. Without this
// the kernel's own checks would be left, and who makes a user namespace passes most of them.
var forbidden = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE,
	unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_INIT_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL, unix.SYS_MOUNT,
	unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIVOT_ROOT,
	unix.SYS_QUOTACTL, unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME, unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY,
	unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG, unix.SYS_UMOUNT2, unix.SYS_UNSHARE, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP,
}

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// machine is what the kernel says to a filter of the calls that a program of this architecture makes, and x32 is a bit of theirs that only
// programs of another kind set.
var machines = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

const x32 = 0x40000000

// Offsets in the kernel's struct seccomp_data; the first argument's lower half, on little-endian machines.
const (
	callNumber   = 0
	callMachine  = 4
	callArgument = 16
)

func callFilter(machine uint32) []bpf.Instruction {
	refuse := func(errno unix.Errno) bpf.Instruction {
		return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: callMachine, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: machine, SkipTrue: 1},
		// The numbers mean something else there.
		refuse(unix.ENOSYS),
		bpf.LoadAbsolute{Off: callNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: x32, SkipTrue: 1},
		refuse(unix.ENOSYS),
		// Its flags lie in memory, where a filter can't look. C libraries fall back to clone.
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1},
		refuse(unix.ENOSYS),
	}
	for _, call := range forbidden {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: 1}, refuse(unix.EPERM))
	}
	return append(program,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE, SkipTrue: 3},
		bpf.LoadAbsolute{Off: callArgument, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: newNamespaces, SkipTrue: 1},
		refuse(unix.EPERM),
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	)
}

// forbidCalls takes system calls from the calling thread and all that it will start. Requires: CAP_SYS_ADMIN; with it, no_new_privs stays
// off, so that sudo goes on to work.
func forbidCalls() error {
	machine, known := machines[runtime.GOARCH]
	if !known {
		return fmt.Errorf("inner init: no system call filter for %s", runtime.GOARCH)
	}
	raw, err := bpf.Assemble(callFilter(machine))
	if err != nil {
		return fmt.Errorf("inner init: system call filter: %w", err)
	}
	instructions := make([]unix.SockFilter, len(raw))
	for i, one := range raw {
		instructions[i] = unix.SockFilter{Code: one.Op, Jt: one.Jt, Jf: one.Jf, K: one.K}
	}
	program := unix.SockFprog{Len: uint16(len(instructions)), Filter: &instructions[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(instructions)
	if errno != 0 {
		return fmt.Errorf("inner init: system call filter: %w", errno)
	}
	return nil
}
