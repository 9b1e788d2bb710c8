package assemble

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User and group of the process. Not in any list of users, and below 65536, so that they exist in a container too.
const processUser = 65533

// confined is the argument that says that the process has given everything up.
const confined = "confined"

// memoryLimit is what the collector keeps to; the hard limit leaves room above.
const memoryLimit = 1 << 30

// Main is the command: it makes itself powerless, then reads a job and does it.
//
//	atoll-image FOLDER    becomes powerless, with the empty FOLDER as its root, and starts itself anew
func Main(arguments []string) error {
	if len(arguments) == 1 && arguments[0] == confined {
		return serve()
	}
	if len(arguments) != 1 {
		return errors.New("usage: atoll-image EMPTY_FOLDER (the engine starts it)")
	}
	return confine(arguments[0])
}

// confine gives up privileges, network and file system, and executes this program anew, which then is a process that never had them.
func confine(root string) error {
	runtime.LockOSThread()
	parent := os.Getppid()
	self, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening itself: %w", err)
	}
	steps := []struct {
		what string
		do   func() error
	}{}
	add := func(what string, do func() error) {
		steps = append(steps, struct {
			what string
			do   func() error
		}{what, do})
	}
	if os.Geteuid() == 0 {
		add("namespaces", func() error {
			return unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNS)
		})
		add("chroot", func() error { return unix.Chroot(root) })
		add("chdir", func() error { return unix.Chdir("/") })
		add("groups", func() error { return raw(unix.SYS_SETGROUPS, 0, 0, 0) })
		add("group", func() error { return raw(unix.SYS_SETRESGID, processUser, processUser, processUser) })
		add("user", func() error { return raw(unix.SYS_SETRESUID, processUser, processUser, processUser) })
	}
	for resource, limit := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_DATA: 3 << 30, unix.RLIMIT_NOFILE: 2048, unix.RLIMIT_CPU: 3600} {
		add("limits", func() error { return unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}) })
	}
	add("no new privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
	// Whoever changes its user loses this.
	add("parent's death", func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) })
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	if os.Getppid() != parent {
		return errors.New("the engine has ended")
	}
	return execute(self, "atoll-image", confined)
}

func raw(number, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(number, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// execute is execveat(2) of an open file, without an environment.
func execute(fd int, arguments ...string) error {
	var argv []*byte
	for _, argument := range arguments {
		p, err := unix.BytePtrFromString(argument)
		if err != nil {
			return err
		}
		argv = append(argv, p)
	}
	argv = append(argv, nil)
	var empty byte
	var env *byte
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(&empty)), uintptr(unsafe.Pointer(&argv[0])),
		uintptr(unsafe.Pointer(&env)), unix.AT_EMPTY_PATH, 0)
	return fmt.Errorf("executing itself: %w", errno)
}

// serve does one job and says how it went.
func serve() error {
	debug.SetMemoryLimit(memoryLimit)
	messages := json.NewEncoder(os.Stdout)
	result, err := answer(func(read uint64) { _ = messages.Encode(Message{Read: read}) })
	if err == nil {
		return messages.Encode(Message{Done: result})
	}
	var known *Error
	if !errors.As(err, &known) {
		known = &Error{Kind: Internal, Text: err.Error()}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			known = &Error{Kind: TooLarge, Text: "the disk is full: " + err.Error()}
		}
	}
	return messages.Encode(Message{Error: known})
}

func answer(progress func(uint64)) (*Result, error) {
	var job Job
	if err := json.NewDecoder(io.LimitReader(os.Stdin, 64<<20)).Decode(&job); err != nil {
		return nil, fmt.Errorf("reading the job: %w", err)
	}
	var layers []io.Reader
	for n := range job.Layers {
		layers = append(layers, os.NewFile(uintptr(firstLayer+n), fmt.Sprintf("layer %d", n+1)))
	}
	return run(job, os.NewFile(outputFile, "image"), os.NewFile(baseFile, "base"), layers, progress)
}
