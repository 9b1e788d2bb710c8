package engine

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/filev1"
)

// codec is gRPC's own, which also leaves an upload's data where it came: as a message of its own each piece was garbage after its next
// copy, and the collector took a fifth of the engine's CPU.
type codec struct {
	encoding.CodecV2
}

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

// uploadPart is a message of an upload. Where it has a buffer, its data lies in there.
type uploadPart struct {
	request *filev1.WriteFileRequest
	buffer  mem.Buffer
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	part, ok := v.(*uploadPart)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	if piece, ok := onlyData(buffer.ReadOnlyData()); ok {
		part.request = &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Data{Data: piece}}
		part.buffer = buffer
		return nil
	}
	defer buffer.Free()
	call := &enginev1.WriteFileCall{}
	err := proto.Unmarshal(buffer.ReadOnlyData(), call)
	part.request = call.GetRequest()
	return err
}

const (
	requestField = 2 // of a WriteFileCall
	dataField    = 2 // of its WriteFileRequest
)

// onlyData finds the data of an encoded WriteFileCall that has nothing else; false for any other.
func onlyData(encoded []byte) ([]byte, bool) {
	request, ok := onlyBytes(encoded, requestField)
	if !ok {
		return nil, false
	}
	return onlyBytes(request, dataField)
}

// onlyBytes is the content of the one field that a message consists of.
func onlyBytes(encoded []byte, wanted protowire.Number) ([]byte, bool) {
	field, kind, n := protowire.ConsumeTag(encoded)
	if n < 0 || field != wanted || kind != protowire.BytesType {
		return nil, false
	}
	content, length := protowire.ConsumeBytes(encoded[n:])
	return content, length >= 0 && n+length == len(encoded)
}

// uploadParts takes an upload's messages from a call, and gives their buffers back.
type uploadParts struct {
	stream grpc.ServerStream

	mu      sync.Mutex
	buffers map[*filev1.WriteFileRequest]mem.Buffer // guarded by mu
}

// next is for one goroutine.
func (u *uploadParts) next() (*filev1.WriteFileRequest, error) {
	part := &uploadPart{}
	if err := u.stream.RecvMsg(part); err != nil {
		return nil, err
	}
	if part.buffer != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.buffers == nil {
			u.buffers = map[*filev1.WriteFileRequest]mem.Buffer{}
		}
		u.buffers[part.request] = part.buffer
	}
	return part.request, nil
}

func (u *uploadParts) sent(m *filev1.WriteFileRequest) {
	u.mu.Lock()
	buffer, ok := u.buffers[m]
	delete(u.buffers, m)
	u.mu.Unlock()
	if ok {
		buffer.Free()
	}
}
