package main

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/engine"
	"atoll/node/internal/engine/enginetest"
)

func fromDockerfile(e *enginetest.Engine, ctx context.Context, text string) *enginev1.MakeImageBegin {
	return &enginev1.MakeImageBegin{Name: "test@1", Source: &enginev1.MakeImageBegin_Dockerfile{Dockerfile: &enginev1.DockerfileSource{
		Dockerfile: text, NamedImages: map[string]string{"python": e.Image(ctx, "python").GetDigest()},
		Limits: &execv1.Limits{MemoryBytes: 256 << 20, DiskBytes: 256 << 20},
	}}}
}

func oneFile(t *testing.T, name, content string) io.Reader {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &text
}

func TestDockerfileBecomesAnImageThatBoxesAreMadeOf(t *testing.T) {
	e := start(t)
	ctx := t.Context()
	begin := fromDockerfile(e, ctx, "FROM python\nCOPY greeting /srv/\nRUN echo building && tr a-z A-Z </srv/greeting >/srv/loud\n")
	m, err := makeImage(ctx, e, begin, oneFile(t, "greeting", "hello"))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.steps) != 3 || !strings.HasPrefix(m.steps[2], "RUN echo building") || !strings.Contains(m.log, "building\n") {
		t.Errorf("steps %q, log %q", m.steps, m.log)
	}
	if m.image.GetOrigin() != enginev1.ImageOrigin_IMAGE_ORIGIN_DOCKERFILE || m.image.GetDefaultLanguage() != "python" {
		t.Errorf("image %v", m.image)
	}
	request := &enginev1.CreateBoxRequest{BoxId: enginetest.NewID("box"), Spec: &enginev1.BoxSpec{
		ImageDigest: m.image.GetDigest(), WarmContexts: []*execv1.ContextSpec{{ContextId: enginetest.NewID("ctx"), Language: "python"}},
	}}
	if _, err := e.CreateBox(ctx, request); err != nil {
		t.Fatal(err)
	}
	box := e.Sandbox(request)
	wantOutput(t, box.Run(ctx, "print(open('/srv/loud').read())"), "HELLO\n")
	box.Delete(ctx)
	// What is kept of builds is nobody's snapshot.
	if reply, err := e.ListSnapshots(ctx, &enginev1.ListSnapshotsRequest{}); err != nil || len(reply.GetSnapshots()) != 0 {
		t.Errorf("%v, %v (expected: no snapshots)", reply, err)
	}
	if reply, err := e.ListProcesses(ctx, &enginev1.ListProcessesRequest{}); err != nil || len(reply.GetProcesses()) != 0 {
		t.Errorf("%v, %v (expected: no processes)", reply, err)
	}
}

func TestDockerfileThatFailsSaysAtWhichStep(t *testing.T) {
	e := start(t)
	ctx := t.Context()
	m, err := begin(ctx, e, fromDockerfile(e, ctx, "FROM python\nRUN true\nRUN echo why && false\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = m.finish()
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "why") {
		t.Errorf("%v (expected: a failed step, with what it said)", err)
	}
	if step := m.stream.Trailer().Get(engine.StepKey); len(step) != 1 || step[0] != "3" {
		t.Errorf("step %q (expected: 3)", step)
	}
	if _, err := makeImage(ctx, e, fromDockerfile(e, ctx, "FROM python\nNONSENSE\n"), nil); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v (expected: what is wrong in line 2)", err)
	}
}

func TestBuildsThatAreCutOffLeaveNothing(t *testing.T) {
	e := start(t)
	text := "FROM python\nRUN echo begun && sleep 1000\n"
	begun := func(ctx context.Context) *making {
		t.Helper()
		m, err := begin(ctx, e, fromDockerfile(e, ctx, text), nil)
		if err != nil {
			t.Fatal(err)
		}
		for {
			event, err := m.stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(event.GetLog().GetData()), "begun") {
				return m
			}
		}
	}
	nothing := func() {
		t.Helper()
		wantNoBoxes(t, e)
		enginetest.Await(t, 20*time.Second, func() (bool, string) {
			var left []string
			for _, pattern := range []string{"spool/*", "builds/*"} {
				found, _ := filepath.Glob(filepath.Join(e.Data, pattern))
				left = append(left, found...)
			}
			return len(left) == 0, strings.Join(left, " ")
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun(ctx)
	// Nobody sees its box.
	if reply, err := e.ListBoxes(t.Context(), &enginev1.ListBoxesRequest{}); err != nil || len(reply.GetBoxes()) != 0 {
		t.Errorf("%v, %v (expected: no boxes)", reply, err)
	}
	cancel()
	nothing()
	begun(t.Context())
	e.Kill()
	e.Launch()
	nothing()
}
