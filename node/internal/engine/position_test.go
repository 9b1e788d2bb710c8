package engine

import (
	"testing"

	"atoll/node/gen/execv1"
)

// asRead puts what a reader gets from an offset on into one text, a gap of n bytes as n dots, and checks the offsets.
func asRead(t *testing.T, stream execv1.Stream, offset uint64, events []*execv1.ExecutionEvent) string {
	t.Helper()
	p := position{stream: stream}
	text := ""
	for _, event := range events {
		piece := p.piece(event, offset)
		if piece == nil {
			continue
		}
		for range piece.GetGapBytes() {
			text += "."
		}
		if at := offset + uint64(len(text)); piece.GetOffset() != at {
			t.Errorf("%v from %d on: a piece at %d (expected: %d)", stream, offset, piece.GetOffset(), at)
		}
		text += string(piece.GetData())
	}
	return text
}

func TestOutputIsReadFromAnyOffsetOfEitherStreamOrBoth(t *testing.T) {
	out, errs := execv1.Stream_STREAM_STDOUT, execv1.Stream_STREAM_STDERR
	said := func(stream execv1.Stream, offset uint64, data string) *execv1.ExecutionEvent {
		return &execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Output{Output: &execv1.Output{Stream: stream, Offset: offset, Data: []byte(data)}}}
	}
	gap := func(stream execv1.Stream, offset, bytes uint64) *execv1.ExecutionEvent {
		return &execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Gap{Gap: &execv1.Gap{Stream: stream, Offset: offset, Bytes: bytes}}}
	}
	events := []*execv1.ExecutionEvent{
		{Event: &execv1.ExecutionEvent_Started{Started: &execv1.Started{}}},
		said(out, 0, "abc"), said(errs, 0, "XY"), said(out, 3, "de"), gap(out, 5, 4), gap(errs, 2, 3), said(errs, 5, "Z"), said(out, 9, "f"),
		{Event: &execv1.ExecutionEvent_Finished{Finished: &execv1.Finished{}}},
	}
	for stream, whole := range map[execv1.Stream]string{out: "abcde....f", errs: "XY...Z", execv1.Stream_STREAM_COMBINED: "abcXYde.......Zf"} {
		for offset := range len(whole) + 2 {
			if got, want := asRead(t, stream, uint64(offset), events), whole[min(offset, len(whole)):]; got != want {
				t.Errorf("%v from %d on: %q (expected: %q)", stream, offset, got, want)
			}
		}
	}
}
