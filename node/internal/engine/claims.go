package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
)

// EpochKey is the metadata key of a caller's epoch.
const EpochKey = "atoll-epoch"

// Claims fences servers: one that was replaced can change nothing any more.
type Claims struct {
	path string

	mu sync.RWMutex
	// current is guarded by mu.
	current uint64
}

// OpenClaims reads the last claim.
func OpenClaims(dataDir string) (*Claims, error) {
	c := &Claims{path: filepath.Join(dataDir, "claim")}
	text, err := os.ReadFile(c.path)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if c.current, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
		return nil, fmt.Errorf("%s: %w", c.path, err)
	}
	return c, nil
}

// Current is the epoch of the last claim, 0 before the first.
func (c *Claims) Current() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.current
}

// Claim takes an epoch that is newer than any before. The same epoch again is the same claim.
func (c *Claims) Claim(epoch uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == 0 || epoch < c.current {
		return status.Errorf(codes.FailedPrecondition, "epoch: %d (expected: at least %d): a newer server owns this node", epoch, max(c.current, 1))
	}
	if epoch == c.current {
		return nil
	}
	if err := writeSynced(c.path, strconv.FormatUint(epoch, 10)); err != nil {
		return err
	}
	c.current = epoch
	return nil
}

// writeSynced replaces a file so that neither a crash nor a power cut brings the old one back.
func writeSynced(path, text string) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// mutating are the calls that only the node's owner may make.
var mutating = map[string]bool{
	enginev1.Engine_MakeImage_FullMethodName:        true,
	enginev1.Engine_DeleteImage_FullMethodName:      true,
	enginev1.Engine_PruneImages_FullMethodName:      true,
	enginev1.Engine_CreateBox_FullMethodName:        true,
	enginev1.Engine_AssignBox_FullMethodName:        true,
	enginev1.Engine_UpdateLimits_FullMethodName:     true,
	enginev1.Engine_PrepareBox_FullMethodName:       true,
	enginev1.Engine_RestoreBox_FullMethodName:       true,
	enginev1.Engine_PauseBox_FullMethodName:         true,
	enginev1.Engine_ResumeBox_FullMethodName:        true,
	enginev1.Engine_RollbackBox_FullMethodName:      true,
	enginev1.Engine_SetDeadline_FullMethodName:      true,
	enginev1.Engine_CreateSnapshot_FullMethodName:   true,
	enginev1.Engine_DeleteSnapshot_FullMethodName:   true,
	enginev1.Engine_ImportSnapshot_FullMethodName:   true,
	enginev1.Engine_DeleteBox_FullMethodName:        true,
	enginev1.Engine_OpenContext_FullMethodName:      true,
	enginev1.Engine_RestartContext_FullMethodName:   true,
	enginev1.Engine_CloseContext_FullMethodName:     true,
	enginev1.Engine_Execute_FullMethodName:          true,
	enginev1.Engine_Interrupt_FullMethodName:        true,
	enginev1.Engine_ForgetExecutions_FullMethodName: true,
	enginev1.Engine_StartProcess_FullMethodName:     true,
	enginev1.Engine_WriteInput_FullMethodName:       true,
	enginev1.Engine_SignalProcess_FullMethodName:    true,
	enginev1.Engine_ResizeTerminal_FullMethodName:   true,
	enginev1.Engine_File_FullMethodName:             true,
	enginev1.Engine_WriteFile_FullMethodName:        true,
	enginev1.Engine_Tunnel_FullMethodName:           true,
}

func (c *Claims) check(ctx context.Context, method string) error {
	if !mutating[method] {
		return nil
	}
	values := metadata.ValueFromIncomingContext(ctx, EpochKey)
	if len(values) != 1 {
		return status.Errorf(codes.FailedPrecondition, "metadata %s: %d values (expected: the epoch of the last Claim)", EpochKey, len(values))
	}
	epoch, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "metadata %s: %q (expected: a number)", EpochKey, values[0])
	}
	if current := c.Current(); epoch != current {
		return status.Errorf(codes.FailedPrecondition, "metadata %s: %d (expected: %d, the epoch of the last Claim)", EpochKey, epoch, current)
	}
	return nil
}

// Unary fences unary calls.
func (c *Claims) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := c.check(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

// Stream fences streaming calls.
func (c *Claims) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := c.check(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(server, stream)
}
