package build

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/gen/filev1"
	"atoll/node/internal/box"
)

// Boxes makes build boxes of a node.
type Boxes struct{ Node *box.Node }

// NewBoxes also removes the snapshots that boxes can't be made of any more.
func NewBoxes(node *box.Node) (*Boxes, error) {
	var failures []error
	for _, s := range node.BuildSnapshots() {
		if !s.Usable {
			failures = append(failures, node.RemoveBuildSnapshot(s.ID))
		}
	}
	return &Boxes{Node: node}, errors.Join(failures...)
}

const (
	// Ending a box takes some milliseconds; on a machine that does much else, more.
	closeTimeout = time.Minute
	uploadPiece  = 256 << 10
	root         = "0"
)

func randomID(prefix string) string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	id := make([]byte, 26)
	_, _ = rand.Read(id) // never fails
	for i := range id {
		id[i] = alphabet[id[i]&31]
	}
	return prefix + string(id)
}

// Start makes a box of an image.
func (b *Boxes) Start(ctx context.Context, image string, limits *execv1.Limits) (Sandbox, error) {
	id := randomID("box-")
	if err := b.Node.CreateBuild(ctx, &enginev1.CreateBoxRequest{BoxId: id, Spec: &enginev1.BoxSpec{ImageDigest: image, Limits: limits}}); err != nil {
		return nil, err
	}
	return &boxSandbox{node: b.Node, id: id}, nil
}

// Restore makes a box of a snapshot.
func (b *Boxes) Restore(ctx context.Context, snapshot string, limits *execv1.Limits) (Sandbox, error) {
	id := randomID("box-")
	err := b.Node.RestoreBuild(ctx, &enginev1.RestoreBoxRequest{BoxId: id, SnapshotId: snapshot, Limits: limits})
	var known *box.Fault
	switch {
	case err == nil:
		return &boxSandbox{node: b.Node, id: id}, nil
	case ctx.Err() != nil, errors.As(err, &known) && known.Kind == box.Exhausted:
		return nil, err
	}
	// Whatever is wrong with it: without it the build takes longer, and that is all.
	return nil, fmt.Errorf("%w: %w", ErrNoSnapshot, err)
}

// Version is the node's.
func (b *Boxes) Version() string { return b.Node.BuildVersion() }

// Snapshots lists those that can be used.
func (b *Boxes) Snapshots() map[string]uint64 {
	found := map[string]uint64{}
	for _, s := range b.Node.BuildSnapshots() {
		if s.Usable {
			found[s.ID] = s.Bytes
		}
	}
	return found
}

// Remove removes a snapshot.
func (b *Boxes) Remove(snapshot string) error { return b.Node.RemoveBuildSnapshot(snapshot) }

// boxSandbox is a build box of a node.
type boxSandbox struct {
	node *box.Node
	id   string
	// running are processes whose end was not waited for.
	running []string
}

func (s *boxSandbox) Run(ctx context.Context, c Command, output func(data []byte, stderr bool)) (Outcome, error) {
	env := maps.Clone(c.Env)
	if c.Network != nil {
		end, err := s.listen(ctx, c.Network, env)
		if err != nil {
			return Outcome{}, err
		}
		defer end()
	}
	user := c.User
	if user == "" {
		user = root
	}
	spec := &execv1.ProcessSpec{
		ProcessId: randomID(box.BuildProcess), Argv: c.Argv, Cwd: c.Dir, Env: env, User: user, TimeoutMs: uint64(max(1, c.Timeout.Milliseconds())),
	}
	if _, err := s.node.StartProcess(ctx, s.id, spec); err != nil {
		return Outcome{}, err
	}
	defer func() {
		if s.node.Forget([]string{spec.ProcessId}, false) != nil {
			s.running = append(s.running, spec.ProcessId)
		}
	}()
	log, err := s.node.Output(ctx, s.id, spec.ProcessId)
	if err != nil {
		return Outcome{}, err
	}
	reader := log.Read(0)
	defer reader.Close()
	for {
		event, err := reader.Next(ctx)
		if err != nil {
			return Outcome{}, err
		}
		switch e := event.GetEvent().(type) {
		case *execv1.ExecutionEvent_Output:
			output(e.Output.GetData(), e.Output.GetStream() == execv1.Stream_STREAM_STDERR)
		case *execv1.ExecutionEvent_Gap:
			output(fmt.Appendf(nil, "\n(%d bytes were dropped here)\n", e.Gap.GetBytes()), true)
		case *execv1.ExecutionEvent_Finished:
			// What it has left behind, in the background, is not to change files once they are saved. It may all be gone.
			_ = s.node.Signal(ctx, s.id, &execv1.SignalRequest{ProcessId: spec.ProcessId, Signal: 9, Target: execv1.SignalTarget_SIGNAL_TARGET_TREE})
			return outcomeOf(e.Finished), nil
		}
	}
}

func outcomeOf(f *execv1.Finished) Outcome {
	o := Outcome{ExitCode: int(f.GetExitCode())}
	detail := f.GetDetail()
	switch f.GetReason() {
	case execv1.ExitReason_EXIT_REASON_EXITED, execv1.ExitReason_EXIT_REASON_COMPLETED:
		if f.GetSignal() == 0 {
			return o
		}
		if detail == "" {
			detail = fmt.Sprintf("it was ended by signal %d", f.GetSignal())
		}
	case execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY:
		detail = "out of memory: " + detail
	case execv1.ExitReason_EXIT_REASON_TIMEOUT:
		detail = "timeout: " + detail
	case execv1.ExitReason_EXIT_REASON_SANDBOX_ENDED:
		detail = "the build sandbox ended: " + detail
	default:
		detail = f.GetReason().String() + ": " + detail
	}
	o.Problem = shorten(detail, 1000)
	return o
}

// listen has programs reach out, and tells them how. end returns when no connection is left.
func (s *boxSandbox) listen(ctx context.Context, serve func(context.Context, Conn), env map[string]string) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	ports := make(chan int, 1)
	done := make(chan error, 1)
	go func() {
		done <- s.node.Outward(ctx, s.id, maxConnections, func(port int) { ports <- port },
			func(ctx context.Context, c *box.OutwardConn) { serve(ctx, c) })
	}()
	select {
	case port := <-ports:
		proxy := "http://127.0.0.1:" + strconv.Itoa(port)
		for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
			env[name] = proxy
		}
		// Servers that a step starts itself.
		for _, name := range []string{"no_proxy", "NO_PROXY"} {
			if _, set := env[name]; !set {
				env[name] = "localhost,127.0.0.1,::1"
			}
		}
	case err := <-done:
		cancel()
		if err == nil {
			err = ctx.Err()
		}
		return nil, err
	}
	return func() { cancel(); <-done }, nil
}

func (s *boxSandbox) Unpack(ctx context.Context, folder string, archive io.Reader) error {
	open := &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Open{Open: &filev1.WriteFileOpen{
		User: root, Path: folder, Archive: filev1.ArchiveFormat_ARCHIVE_FORMAT_TAR, Preserve: true,
	}}}
	over := false
	next := func() (*filev1.WriteFileRequest, error) {
		if over {
			return nil, io.EOF
		}
		piece := make([]byte, uploadPiece)
		n, err := io.ReadFull(archive, piece)
		if n > 0 {
			return &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Data{Data: piece[:n]}}, nil
		}
		if !errors.Is(err, io.EOF) {
			return nil, err
		}
		over = true
		return &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Commit_{Commit: &filev1.WriteFileRequest_Commit{}}}, nil
	}
	_, err := s.node.WriteFile(ctx, s.id, open, next, nil)
	return fileError(err)
}

func (s *boxSandbox) read(ctx context.Context, request *filev1.ReadFileRequest, take func(data []byte) error) error {
	request.User = root
	return fileError(s.node.ReadFile(ctx, s.id, request, func(raw []byte) error {
		piece := &filev1.FilePiece{}
		if err := proto.Unmarshal(raw, piece); err != nil {
			return fmt.Errorf("the sandbox's agent: %w", err)
		}
		return take(piece.GetData())
	}))
}

func (s *boxSandbox) Pack(ctx context.Context, name string, w io.Writer) error {
	return s.read(ctx, &filev1.ReadFileRequest{Path: name, Archive: filev1.ArchiveFormat_ARCHIVE_FORMAT_TAR}, func(data []byte) error {
		_, err := w.Write(data)
		return err
	})
}

var errTooLarge = errors.New("it is too large")

func (s *boxSandbox) ReadSmall(ctx context.Context, name string, limit int) ([]byte, error) {
	var content []byte
	err := s.read(ctx, &filev1.ReadFileRequest{Path: name}, func(data []byte) error {
		if len(content)+len(data) > limit {
			return fmt.Errorf("%s: %w (at most %d bytes)", shorten(name, 200), errTooLarge, limit)
		}
		content = append(content, data...)
		return nil
	})
	return content, err
}

// fileError is an agent's refusal in this package's terms.
func fileError(err error) error {
	var refused *box.Refusal
	if errors.As(err, &refused) && refused.Code == codes.NotFound {
		return fmt.Errorf("%w: %s", ErrNoFile, refused.Message)
	}
	return err
}

func (s *boxSandbox) file(ctx context.Context, request *filev1.FileRequest) (*filev1.FileReply, error) {
	request.User = root
	raw, err := s.node.File(ctx, s.id, request)
	if err != nil {
		return nil, fileError(err)
	}
	// It came unread; its size was looked at.
	encoded, err := proto.Marshal(raw)
	if err != nil {
		return nil, err
	}
	reply := &filev1.FileReply{}
	if err := proto.Unmarshal(encoded, reply); err != nil {
		return nil, fmt.Errorf("the sandbox's agent: %w", err)
	}
	return reply, nil
}

func fileOf(info *filev1.FileInfo) File {
	f := File{Name: path.Base(info.GetPath()), Mode: info.GetMode() & 0o7777, UID: info.GetUid(), GID: info.GetGid(), Target: info.GetLinkTarget()}
	if name := info.GetName(); name != "" {
		f.Name = name
	}
	switch info.GetType() {
	case filev1.FileType_FILE_TYPE_FILE:
		f.Kind = RegularFile
	case filev1.FileType_FILE_TYPE_DIRECTORY:
		f.Kind = Folder
	case filev1.FileType_FILE_TYPE_SYMLINK:
		f.Kind = Symlink
	default:
		f.Kind = OtherFile
	}
	return f
}

func (s *boxSandbox) Stat(ctx context.Context, name string, follow bool) (File, error) {
	reply, err := s.file(ctx, &filev1.FileRequest{Operation: &filev1.FileRequest_Stat{Stat: &filev1.Stat{Path: name, Follow: follow}}})
	if err != nil {
		return File{}, err
	}
	return fileOf(reply.GetFile()), nil
}

func (s *boxSandbox) List(ctx context.Context, folder string) ([]File, error) {
	var all []File
	after := ""
	for {
		reply, err := s.file(ctx, &filev1.FileRequest{Operation: &filev1.FileRequest_List{List: &filev1.List{Path: folder, Hidden: true, After: after}}})
		if err != nil {
			return nil, err
		}
		for _, info := range reply.GetEntries() {
			all = append(all, fileOf(info))
		}
		if reply.GetNext() == "" || reply.GetNext() == after || len(all) > maxEntries {
			return all, nil
		}
		after = reply.GetNext()
	}
}

func (s *boxSandbox) MakeFolders(ctx context.Context, name string) error {
	_, err := s.file(ctx, &filev1.FileRequest{Operation: &filev1.FileRequest_MakeDirectory{
		MakeDirectory: &filev1.MakeDirectory{Path: name, Parents: true, Mode: 0o755, ExistOk: true},
	}})
	return err
}

func (s *boxSandbox) Change(ctx context.Context, name string, mode *uint32, uid, gid uint32, recursive bool) error {
	_, err := s.file(ctx, &filev1.FileRequest{Operation: &filev1.FileRequest_Chmod{Chmod: &filev1.Chmod{
		Path: name, Mode: mode, Owner: strconv.FormatUint(uint64(uid), 10), Group: strconv.FormatUint(uint64(gid), 10), Recursive: recursive,
	}}})
	return err
}

func (s *boxSandbox) Remove(ctx context.Context, name string) error {
	_, err := s.file(ctx, &filev1.FileRequest{Operation: &filev1.FileRequest_Remove{Remove: &filev1.Remove{Path: name, Recursive: true, Force: true}}})
	return err
}

func (s *boxSandbox) Mount(ctx context.Context, mounts []Mount) error {
	var all []*agentv1.Mount
	for _, m := range mounts {
		all = append(all, &agentv1.Mount{Target: m.Target, Source: m.Source, ReadOnly: m.ReadOnly, SizeBytes: m.Bytes, Mode: m.Mode})
	}
	return s.node.Mount(ctx, s.id, all)
}

func (s *boxSandbox) Unmount(ctx context.Context, targets []string) error {
	if len(targets) == 0 {
		return nil
	}
	return s.node.Unmount(ctx, s.id, targets)
}

func (s *boxSandbox) Save(ctx context.Context, snapshot string) error {
	return s.node.SaveBuild(ctx, s.id, snapshot)
}

// Export leaves out the mount points of the runtime, which no image has.
func (s *boxSandbox) Export(ctx context.Context, w io.Writer) error {
	return stream(func(w io.Writer) error { return s.node.ExportChanges(ctx, s.id, w) }, func(archive io.Reader) error {
		entries, out := tar.NewReader(archive), tar.NewWriter(w)
		for {
			header, err := entries.Next()
			if errors.Is(err, io.EOF) {
				if _, err := io.Copy(io.Discard, archive); err != nil {
					return err
				}
				return out.Close()
			}
			if err != nil {
				return err
			}
			name := strings.Trim(strings.TrimPrefix(header.Name, "./"), "/")
			if slices.ContainsFunc(ofRuntime, func(of string) bool { return name == of || strings.HasPrefix(name, of+"/") }) {
				continue
			}
			header.Format = tar.FormatPAX
			if err := out.WriteHeader(header); err != nil {
				return err
			}
			if header.Typeflag == tar.TypeReg {
				if _, err := io.Copy(out, entries); err != nil {
					return err
				}
			}
		}
	})
}

func (s *boxSandbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	// What it said goes with it.
	return errors.Join(s.node.Delete(ctx, s.id), s.node.Forget(s.running, false))
}
