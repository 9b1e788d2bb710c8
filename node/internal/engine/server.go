package engine

import (
	"google.golang.org/grpc"
)

const (
	// 16 MiB of code and what comes with it.
	maxReceive = 20 << 20
	// A stream's window. Output flows in chunks of up to 64 KiB; the default window of
	// 64 KiB would wait for the reader after each.
	streamWindow     = 1 << 20
	connectionWindow = 8 << 20
	// Of each connection, of which a server has few: files come and go in pieces of 64 KiB.
	connectionBuffer = 256 << 10
)

// NewServer makes the gRPC server that the engine's service is registered with.
func NewServer(claims *Claims) *grpc.Server {
	return grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.MaxSendMsgSize(maxReceive),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.ReadBufferSize(connectionBuffer),
		grpc.WriteBufferSize(connectionBuffer),
		grpc.ChainUnaryInterceptor(claims.Unary, tellPaused),
		grpc.ChainStreamInterceptor(claims.Stream, tellPausedStream),
	)
}
