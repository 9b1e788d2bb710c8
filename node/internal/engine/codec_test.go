package engine

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/filev1"
)

func encodedCall(t testing.TB, request *filev1.WriteFileRequest) []byte {
	t.Helper()
	encoded, err := proto.Marshal(&enginev1.WriteFileCall{Request: request})
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func uploadData(data []byte) *filev1.WriteFileRequest {
	return &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Data{Data: data}}
}

// inPieces is a message as the network brings it, in buffers of the pool's.
func inPieces(encoded []byte, size int) mem.BufferSlice {
	var all mem.BufferSlice
	for piece := range slices.Chunk(encoded, size) {
		all = append(all, mem.Copy(piece, mem.DefaultBufferPool()))
	}
	return all
}

// received gives messages in pieces, as a call does.
type received struct {
	grpc.ServerStream
	encoded [][]byte
}

func (r *received) RecvMsg(m any) error {
	data := inPieces(r.encoded[0], 16<<10)
	r.encoded = r.encoded[1:]
	defer data.Free()
	return newCodec().Unmarshal(data, m)
}

func TestUploadsAreTakenAsTheyWouldBeByTheCodecOfGRPC(t *testing.T) {
	with := func(encoded []byte, more ...byte) []byte { return append(slices.Clone(encoded), more...) }
	whole := encodedCall(t, uploadData([]byte("data")))
	opens, err := proto.Marshal(&enginev1.WriteFileCall{BoxId: "box", Request: uploadData([]byte("data"))})
	if err != nil {
		t.Fatal(err)
	}
	for name, encoded := range map[string][]byte{
		"data":              whole,
		"no data":           encodedCall(t, uploadData(nil)),
		"much data":         encodedCall(t, uploadData(bytes.Repeat([]byte("0123456789"), 30_000))),
		"open":              encodedCall(t, &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Open{Open: &filev1.WriteFileOpen{Path: "/a"}}}),
		"commit":            encodedCall(t, &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Commit_{Commit: &filev1.WriteFileRequest_Commit{}}}),
		"nothing":           {},
		"an empty request":  encodedCall(t, &filev1.WriteFileRequest{}),
		"a box's id":        opens,
		"two requests":      with(whole, encodedCall(t, uploadData([]byte("other")))...),
		"data, then commit": {0x12, 0x05, 0x12, 0x01, 'x', 0x1a, 0x00},
		"another field":     with(whole, 0x98, 0x06, 0x01),
		"another kind":      {0x12, 0x02, 0x10, 0x01},
		"cut":               whole[:len(whole)-1],
		"too long inside":   {0x12, 0x03, 0x12, 0x7f, 'x'},
		"broken":            with(whole, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			want := &enginev1.WriteFileCall{}
			wantErr := proto.Unmarshal(encoded, want)
			calls := &uploadParts{stream: &received{encoded: [][]byte{encoded}}}
			got, err := calls.next()
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("%v (expected: %v)", err, wantErr)
			}
			if err == nil && !proto.Equal(got, want.GetRequest()) {
				t.Fatalf("%v (expected: %v)", got, want.GetRequest())
			}
		})
	}
}

func FuzzUploadsAreTakenAsTheyWouldBeByTheCodecOfGRPC(f *testing.F) {
	f.Add(encodedCall(f, uploadData([]byte("data"))))
	f.Add([]byte{0x12, 0x05, 0x12, 0x01, 'x', 0x1a, 0x00})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		data, ok := onlyData(encoded)
		if !ok {
			return
		}
		call := &enginev1.WriteFileCall{}
		if err := proto.Unmarshal(encoded, call); err != nil || call.GetBoxId() != "" || !bytes.Equal(call.GetRequest().GetData(), data) {
			t.Fatalf("%q: %v, %v (expected: the data %q)", encoded, call, err, data)
		}
		if _, ok := call.GetRequest().GetMessage().(*filev1.WriteFileRequest_Data); !ok {
			t.Fatalf("%q: %v (expected: data)", encoded, call)
		}
	})
}

// A buffer that was used again too early would show as bytes of a later message.
func TestDataOfAnUploadStaysUntilItWasSent(t *testing.T) {
	const count, ahead = 200, 5
	var encoded, contents [][]byte
	for i := range count {
		content := bytes.Repeat([]byte{byte(i)}, 50_000+i)
		contents = append(contents, content)
		encoded = append(encoded, encodedCall(t, uploadData(content)))
	}
	parts := &uploadParts{stream: &received{encoded: encoded}}
	var held []*filev1.WriteFileRequest
	for i := range count + ahead {
		if i < count {
			m, err := parts.next()
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, m)
		}
		if i < ahead {
			continue
		}
		if !bytes.Equal(held[0].GetData(), contents[i-ahead]) {
			t.Fatalf("message %d has changed before it was sent", i-ahead)
		}
		parts.sent(held[0])
		held = held[1:]
	}
	if len(parts.buffers) != 0 {
		t.Fatalf("%d buffers were not given back", len(parts.buffers))
	}
}
