package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver"
	"atoll/node/internal/driver/docker"
)

// dockerPatience is for a Docker that is busy. The engine comes up without it.
const dockerPatience = 10 * time.Second

// dockerDriver reaches the Docker Engine, if there is one; else the error says why not.
func dockerDriver(o options, groups cgroup.Hierarchy) (*docker.Driver, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	return docker.New(ctx, docker.Options{Socket: o.dockerSocket, Runtime: o.dockerRuntime, Instance: o.instance, DataDir: o.data, Cgroups: groups})
}

// runtimes makes one driver of gVisor and Docker, and says what each can do.
func runtimes(o options, gvisor driver.Driver, groups cgroup.Hierarchy) (*driver.Set, []*enginev1.Runtime) {
	var second driver.Driver
	about := &enginev1.Runtime{Name: "docker", Lacks: []string{string(driver.MemorySnapshots), string(driver.FilesSnapshots), string(driver.Export)}}
	if d, err := dockerDriver(o, groups); err != nil {
		second = driver.Absent{Runtime: "docker", Reason: err}
		about.Problem = err.Error()
	} else {
		second = d
		ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
		defer cancel()
		if err := d.Prune(ctx); err != nil {
			slog.Warn("images that nothing needs are still in Docker", "error", err)
		}
		about.Available, about.Version = true, d.Version()
		if !d.LimitsDisk() {
			about.Lacks = append(about.Lacks, "disk_limit")
			about.Problem = "Docker's storage can't limit the disk of a container (remedy: overlay2 on an xfs with project quotas)"
		}
	}
	first := &enginev1.Runtime{Name: gvisor.Name(), Version: gvisor.Version(), Available: true}
	return driver.NewSet(gvisor, driver.Member{Driver: second, Prefix: docker.BuildPrefix}), []*enginev1.Runtime{first, about}
}

// purgeDocker ends what is left of the boxes in Docker, and removes what Docker was given. Nothing is asked of a Docker that got nothing.
func purgeDocker(ctx context.Context, o options, groups cgroup.Hierarchy) error {
	if _, err := os.Stat(filepath.Join(o.data, "docker")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	d, err := dockerDriver(o, groups)
	if err != nil {
		return err
	}
	ids, err := d.List()
	if err != nil {
		return err
	}
	var failures []error
	for _, id := range ids {
		failures = append(failures, d.Delete(ctx, id, ""))
	}
	return errors.Join(errors.Join(failures...), d.Purge(ctx), os.RemoveAll(filepath.Join(o.data, "docker")))
}
