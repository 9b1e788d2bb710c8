# Compiles the standard library, and what is known of it to `go vet`, which `go test` calls too: the first `go run`, `go test` and `go vet` in
# a sandbox then look at the user's code alone.
export GOROOT=/usr/local/go GOPROXY=off
cd /tmp
mkdir warm
cat >warm/go.mod <<'GO'
module warm

go 1.22
GO
{
  printf 'package main\n\nimport (\n'
  go list std | grep -Ev '(^|/)(internal|vendor|cgo)(/|$)|^(builtin|embed|plugin|unsafe|runtime/race)$' | sed 's/.*/\t_ "&"/'
  printf ')\n\nfunc main() { println("warm") }\n'
} >warm/main.go
printf 'package main\n\nimport "testing"\n\nfunc TestWarm(t *testing.T) { t.Log("warm") }\n' >warm/main_test.go
go build std
cd warm
go vet .
go run .
# With a count its result is not kept, which has the time in it.
go test -count=1 .
cd ..
rm -rf warm
