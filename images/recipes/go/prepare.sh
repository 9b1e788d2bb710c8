# Compiles the standard library, and a program, so that the first `go run` in a sandbox compiles the user's code alone.
export GOROOT=/usr/local/go GOPROXY=off
cd /tmp
mkdir warm
cat >warm/main.go <<'GO'
package main

import "fmt"

func main() { fmt.Println("warm") }
GO
go build std
# `go test` looks up its own packages in one more way, and `go vet` keeps facts about each package.
go run warm/main.go
rm -rf warm
