// Command atoll-engine is the one process of a node that is root. It owns
// everything that Linux has of Atoll: sandboxes, control groups, namespaces,
// pipes and spools.
//
//	atoll-engine [serve] --data DIR --run DIR --instance ID --runsc DIR --agent-image FILE --images DIR --recipes DIR --socket-group GROUP
//	atoll-engine purge  --data DIR --run DIR --instance ID --runsc DIR
//	atoll-engine check  --data DIR --runsc DIR [...]
//	atoll-engine backup --data DIR --images DIR --file FILE --store-folder DIR -- COMMAND [ARGUMENT...]
//	atoll-engine restore --file FILE [--data DIR --images DIR]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/box"
	"atoll/node/internal/build"
	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver/gvisor"
	"atoll/node/internal/engine"
	"atoll/node/internal/failpoint"
	"atoll/node/internal/image"
	"atoll/node/internal/net"
	"atoll/node/internal/oci"
	"atoll/node/internal/reap"
	"atoll/node/internal/snapshot"
	"atoll/node/internal/spool"
)

func init() {
	// The main goroutine keeps the main thread, so that no goroutine which changes
	// its thread for good (see the net package) ever gets it.
	runtime.LockOSThread()
}

type options struct {
	data, run, instance, runsc, agentImage, images, socketGroup string
	// recipes is the folder with build.sh; cache is what it keeps its results in; imageBuilder is the program atoll-image.
	recipes, cache, imageBuilder, dockerSocket, dockerRuntime string
	// layersMiB is how much of pulled layers is kept.
	layersMiB uint64
	// buildsMiB is how much of what steps of builds have made is kept.
	buildsMiB uint64
	// failPoints are steps that are to fail, in tests.
	failPoints string
	grace      time.Duration
}

func main() {
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	slog.SetDefault(logger)
	arguments := os.Args[1:]
	command := "serve"
	if len(arguments) > 0 && len(arguments[0]) > 0 && arguments[0][0] != '-' {
		command, arguments = arguments[0], arguments[1:]
	}
	if run := backups[command]; run != nil {
		os.Exit(run(arguments))
	}
	o, err := parse(command, arguments)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		switch command {
		case "serve":
			err = serve(o, logger)
		case "purge":
			err = purge(o, logger)
		case "check":
			err = check(o)
		default:
			err = fmt.Errorf("command %q (expected: serve, purge, check, backup or restore)", command)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "atoll-engine: "+err.Error())
		os.Exit(1)
	}
}

var instancePattern = regexp.MustCompile(`^[a-z0-9]{1,16}$`)

func parse(command string, arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("atoll-engine "+command, flag.ContinueOnError)
	flags.StringVar(&o.data, "data", "/var/lib/atoll", "folder of boxes and spools")
	flags.StringVar(&o.instance, "instance", "default", "short id that every name on the host carries: lower-case letters and digits")
	flags.StringVar(&o.run, "run", "", "folder of the socket and of runtime state (default /run/atoll-<instance>)")
	flags.StringVar(&o.runsc, "runsc", "", "folder of a runsc build: runsc, gvisor-bin/ and VERSION")
	flags.StringVar(&o.agentImage, "agent-image", "", "EROFS file with the agent and the kernels")
	flags.StringVar(&o.images, "images", "", "folder of images and their metadata")
	flags.StringVar(&o.recipes, "recipes", "", "folder with build.sh and recipes/; without it no recipe can be built")
	flags.StringVar(&o.cache, "cache", "", "where recipes are built (default: the folder above --images)")
	flags.StringVar(&o.imageBuilder, "image-builder", "", "the program atoll-image (default: beside this one)")
	flags.StringVar(&o.dockerSocket, "docker-socket", oci.DefaultDaemon, "where a Docker daemon listens that images are taken from, and that runs the boxes whose runtime is docker")
	flags.StringVar(&o.dockerRuntime, "docker-runtime", "", "OCI runtime that Docker is to use for boxes (default: Docker's own)")
	flags.Uint64Var(&o.buildsMiB, "builds-mib", 20<<10, "how much of what steps of Dockerfiles have made is kept for the next build, in MiB")
	flags.Uint64Var(&o.layersMiB, "layers-mib", 10<<10, "how much of pulled layers is kept for the next pull, in MiB")
	flags.StringVar(&o.socketGroup, "socket-group", "atoll", "group whose members may use the socket")
	flags.DurationVar(&o.grace, "shutdown-grace", 2*time.Second, "how long calls may take to end at shutdown")
	flags.StringVar(&o.failPoints, "fail-points", "", "for tests: steps that are to fail, such as pause.written=kill,resume.saved=enospc")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("argument %q (expected: flags only)", flags.Arg(0))
	}
	if !instancePattern.MatchString(o.instance) {
		return o, fmt.Errorf("--instance: %q (expected: 1 to 16 lower-case letters and digits)", o.instance)
	}
	if o.run == "" {
		o.run = "/run/atoll-" + o.instance
	}
	if o.cache == "" && o.images != "" {
		o.cache = filepath.Dir(o.images)
	}
	if o.imageBuilder == "" {
		self, err := os.Executable()
		if err != nil {
			return o, err
		}
		o.imageBuilder = filepath.Join(filepath.Dir(self), "atoll-image")
	}
	for _, path := range []*string{&o.data, &o.run, &o.runsc, &o.agentImage, &o.images, &o.recipes, &o.cache, &o.imageBuilder, &o.dockerSocket} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return o, err
		}
		*path = absolute
	}
	return o, nil
}

func (o options) socket() string { return filepath.Join(o.run, "engine.sock") }

func (o options) netns() string { return filepath.Join(o.run, "netns") }

// lock makes sure that one engine at a time works on a data folder. It is a lock
// of the process: one of the open file would live on in a child that was
// forked, and not yet executed, when its engine was killed.
func lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "engine.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(lockPatience)
	for {
		err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		if err == nil {
			return f, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("another engine works on %s: %w", dir, err), f.Close())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// lockPatience is for an engine that has just been killed and is not quite dead.
const lockPatience = time.Second

func serve(o options, logger *slog.Logger) error {
	if err := calmMonitor(); err != nil {
		logger.Warn("the engine takes more CPU than it needs", "error", err)
	}
	started := time.Now()
	if os.Geteuid() != 0 {
		return errors.New("the engine must run as root (remedy: sudo, or the container image)")
	}
	for name, value := range map[string]string{"--runsc": o.runsc, "--agent-image": o.agentImage, "--images": o.images} {
		if value == "" {
			return fmt.Errorf("%s is missing", name)
		}
	}
	if _, err := os.Stat(o.agentImage); err != nil {
		return fmt.Errorf("agent image: %w (remedy: run ./atoll up, which builds it)", err)
	}
	if err := failpoint.Enable(o.failPoints); err != nil {
		return err
	}
	locked, err := lock(o.data)
	if err != nil {
		return err
	}
	defer locked.Close()
	reaper, err := reap.Start()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.run, 0o710); err != nil {
		return err
	}
	if err := net.Shared(o.netns()); err != nil {
		return err
	}
	groups, err := cgroup.Detect(cgroup.Root, o.instance)
	if err != nil {
		return err
	}
	own, err := gvisor.New(gvisor.Options{
		RunscDir: o.runsc, RuntimesDir: gvisor.RuntimesDir(o.data), RunDir: o.run, NetworkNamespace: o.netns(), Reaper: reaper,
	})
	if err != nil {
		return err
	}
	defer own.Close()
	runtime, abilities := runtimes(o, own, groups)
	if _, err := gvisor.KeepBuild(o.data, o.runsc); err != nil {
		return err
	}
	agent, err := gvisor.KeepAgent(o.data, o.agentImage)
	if err != nil {
		return err
	}
	spools, problems, err := spool.Open(filepath.Join(o.data, "spool"), spool.Sizes{})
	if err != nil {
		return err
	}
	for _, problem := range problems {
		logger.Warn(problem)
	}
	claims, err := engine.OpenClaims(o.data)
	if err != nil {
		return err
	}
	images, err := image.Open(image.Options{Recipes: o.images, Dir: filepath.Join(o.data, "images"), Builder: o.imageBuilder, Reaper: reaper})
	if err != nil {
		return err
	}
	layers, err := oci.OpenCache(filepath.Join(o.data, "layers"), o.layersMiB<<20)
	if err != nil {
		return err
	}
	snapshots, err := snapshot.Open(o.data, logger)
	if err != nil {
		return err
	}
	defer snapshots.Close()
	node, err := box.Open(box.Config{
		DataDir: o.data, Driver: runtime, Cgroups: groups, Images: images, Spool: spools, Snapshots: snapshots,
		Reaper: reaper, Logger: logger,
		Kept: box.Kept{
			Agent: agent, AgentPath: func(digest string) string { return gvisor.AgentImage(o.data, digest) },
			RemoveOthers: func(builds, agents map[string]bool) error { return gvisor.RemoveBuilds(o.data, builds, agents) },
		},
	})
	if err != nil {
		return err
	}
	listener, err := engine.Listen(o.socket(), o.socketGroup, logger)
	if err != nil {
		return err
	}
	sandboxes, err := build.NewBoxes(node)
	if err != nil {
		return err
	}
	cached, err := build.OpenCache(sandboxes, filepath.Join(o.data, "build-cache"), o.buildsMiB<<20, logger)
	if err != nil {
		return err
	}
	builds := &build.Builder{Sandboxes: sandboxes, Dir: filepath.Join(o.data, "builds"), Cache: cached, Logger: logger}
	if err := builds.Open(); err != nil {
		return err
	}
	makes := &engine.ImageMaker{
		Builds: builds,
		Images: images, Layers: layers, Node: node, Reaper: reaper, Recipes: o.recipes, Cache: o.cache, DockerSocket: o.dockerSocket, DataDir: o.data,
	}
	server := engine.NewServer(claims)
	enginev1.RegisterEngineServer(server, &engine.Service{
		Node: node, Images: images, Makes: makes, Claims: claims, Instance: o.instance, RuntimeVersion: runtime.Version(),
		// With the agent and kernels that new boxes get: what was made ahead with others is then made anew.
		EngineVersion: engine.Version + " agent " + agent[:min(12, len(agent))],
		CgroupVersion: groups.Version(), DataDir: o.data, StartedAt: started, Warnings: factsOf(o).Warnings,
		SnapshotKey: snapshots.PublicKey(), RuntimeVersions: runtime.Versions, Runtimes: abilities,
	})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	logger.Info("engine is ready", "socket", o.socket(), "instance", o.instance, "runsc", runtime.Version(), "boxes", len(node.List()),
		"ms", time.Since(started).Milliseconds())
	select {
	case err := <-failed:
		return err
	case s := <-signals:
		logger.Info("engine stops; sandboxes go on", "signal", s.String())
	}
	stop(server, o.grace)
	node.Close()
	return nil
}

// stop lets running calls end; streams that follow an execution would take as long as it does.
func stop(server *grpc.Server, grace time.Duration) {
	timer := time.AfterFunc(grace, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
}

func purge(o options, logger *slog.Logger) error {
	if os.Geteuid() != 0 {
		return errors.New("purge must run as root (remedy: sudo)")
	}
	locked, err := lock(o.data)
	if err != nil {
		return fmt.Errorf("%w (remedy: stop the engine first)", err)
	}
	defer locked.Close()
	reaper, err := reap.Start()
	if err != nil {
		return err
	}
	groups, err := cgroup.Detect(cgroup.Root, o.instance)
	if err != nil {
		return err
	}
	// Without its runsc, what the runtime keeps is only files in the run folder.
	runtime := gvisor.ForPurge(gvisor.Options{RunscDir: o.runsc, RuntimesDir: gvisor.RuntimesDir(o.data), RunDir: o.run, NetworkNamespace: o.netns(), Reaper: reaper})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// Docker's containers first: their processes' groups can only go when they have.
	err = errors.Join(purgeDocker(ctx, o, groups), box.Purge(ctx, o.data, runtime, groups))
	err = errors.Join(err, runtime.Unmount(), net.Remove(o.netns()), os.RemoveAll(o.run))
	if err == nil {
		logger.Info("nothing of the instance is left on the host", "instance", o.instance)
	}
	return err
}
