#!/usr/bin/env bash
# Writes node/gen from proto/. Needs protoc (Debian: protobuf-compiler); the generators come from the Go module proxy, pinned.
set -euo pipefail
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.0
PATH=$bin:$PATH protoc -I ../proto --go_out=. --go_opt=module=atoll/node \
  --go-grpc_out=. --go-grpc_opt=module=atoll/node,require_unimplemented_servers=false \
  ../proto/atoll/exec/v1/exec.proto ../proto/atoll/engine/v1/engine.proto
PATH=$bin:$PATH protoc -I ../proto --go_out=. --go_opt=module=atoll/node ../proto/atoll/agent/v1/agent.proto ../proto/atoll/file/v1/file.proto
