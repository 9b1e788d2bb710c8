package agent

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	"atoll/node/internal/agent/inner"
	"atoll/node/internal/frame"
)

const defaultMemoryBytes = 64 << 20

// Mount puts folders and files, or memory, over others.
func (a *Agent) Mount(ctx context.Context, request *agentv1.MountRequest) (*agentv1.Empty, error) {
	mounts := &inner.Mounts{}
	for _, m := range request.Mounts {
		one := inner.Mount{Target: m.Target, Source: m.Source, ReadOnly: m.ReadOnly, Bytes: m.SizeBytes, Mode: m.Mode}
		if one.Bytes == 0 {
			one.Bytes = defaultMemoryBytes
		}
		if one.Mode == 0 {
			one.Mode = 0o1777
		}
		mounts.Add = append(mounts.Add, one)
	}
	return a.mounts(ctx, mounts)
}

// Unmount takes them away.
func (a *Agent) Unmount(ctx context.Context, request *agentv1.UnmountRequest) (*agentv1.Empty, error) {
	return a.mounts(ctx, &inner.Mounts{Remove: request.Targets})
}

func (a *Agent) mounts(ctx context.Context, mounts *inner.Mounts) (*agentv1.Empty, error) {
	t, err := a.currentTree()
	if err != nil {
		return nil, &frame.Status{Code: codes.Unavailable, Message: err.Error()}
	}
	_, err = t.call(ctx, &inner.Request{Mounts: mounts})
	switch {
	case err == nil:
		return &agentv1.Empty{}, nil
	case errors.Is(err, errTreeDied):
		return nil, &frame.Status{Code: codes.Unavailable, Message: err.Error()}
	case errors.Is(err, unix.ENOENT):
		return nil, &frame.Status{Code: codes.NotFound, Message: err.Error()}
	case ctx.Err() != nil:
		return nil, err
	}
	return nil, &frame.Status{Code: codes.FailedPrecondition, Message: err.Error()}
}
