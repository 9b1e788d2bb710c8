module atoll/kernels/go

go 1.26.8

require (
	github.com/traefik/yaegi v0.16.1
	golang.org/x/sys v0.44.0
)
