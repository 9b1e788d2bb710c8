// Command atoll-cli runs code on an Atoll server from a terminal.
//
//	atoll-cli exec 'CODE' [-l LANGUAGE] [-s SANDBOX] [-c CONTEXT] [-t SECONDS]
//
// The code's stdout and stderr come out on stdout and stderr while it runs; "-" reads the code from stdin. The exit status is 0
// when the code completed, 1 when it did not, 2 when the server could not be asked. The server is the one of ATOLL_URL and
// ATOLL_API_KEY, else the installation in ATOLL_DATA_DIR (default /var/lib/atoll).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	statusFailed = 1
	statusUnable = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "atoll: "+err.Error())
	}
	os.Exit(status)
}

func run(ctx context.Context, arguments []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	if len(arguments) == 0 || arguments[0] != "exec" {
		return statusUnable, errors.New("usage: atoll-cli exec 'CODE' [-l LANGUAGE] [-s SANDBOX] [-c CONTEXT] [-t SECONDS]")
	}
	request, err := parse(arguments[1:], stdin)
	if err != nil {
		return statusUnable, err
	}
	server, err := findServer(os.Getenv)
	if err != nil {
		return statusUnable, err
	}
	outcome, err := server.execute(ctx, request, stdout, stderr)
	if err != nil {
		return statusUnable, err
	}
	outcome.report(stderr)
	if !outcome.completed() {
		return statusFailed, nil
	}
	return 0, nil
}

// parse reads flags before and after the code, as people type them.
func parse(arguments []string, stdin io.Reader) (request, error) {
	var r request
	flags := flag.NewFlagSet("exec", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&r.Language, "l", "", "")
	flags.StringVar(&r.Sandbox, "s", "", "")
	flags.StringVar(&r.Context, "c", "", "")
	flags.Float64Var(&r.TimeoutSeconds, "t", 0, "")
	var code []string
	for rest := arguments; ; {
		if err := flags.Parse(rest); err != nil {
			return request{}, err
		}
		if flags.NArg() == 0 {
			break
		}
		code = append(code, flags.Arg(0))
		rest = flags.Args()[1:]
	}
	if len(code) != 1 {
		return request{}, fmt.Errorf("%d pieces of code (expected: one, in quotes)", len(code))
	}
	r.Code, r.Stream = code[0], true
	if r.Code == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return request{}, fmt.Errorf("reading the code: %w", err)
		}
		r.Code = string(text)
	}
	return r, nil
}

// findServer takes the named server, else the installation that runs on this machine.
func findServer(getenv func(string) string) (server, error) {
	s := server{url: strings.TrimRight(getenv("ATOLL_URL"), "/"), key: getenv("ATOLL_API_KEY")}
	if s.url != "" && s.key != "" {
		return s, nil
	}
	data := getenv("ATOLL_DATA_DIR")
	if data == "" {
		data = "/var/lib/atoll"
	}
	instance, err := readLine(filepath.Join(data, "instance"))
	if err != nil {
		return server{}, fmt.Errorf("no installation in %s (remedy: ./atoll up, or set ATOLL_URL and ATOLL_API_KEY): %w", data, err)
	}
	port, err := readLine(filepath.Join("/run", "atoll-"+instance, "port"))
	if err != nil {
		return server{}, fmt.Errorf("the server of %s does not run (remedy: ./atoll up): %w", data, err)
	}
	key, err := readLine(filepath.Join(data, "secret", "api-key"))
	if err != nil {
		return server{}, fmt.Errorf("the key cannot be read (remedy: sudo, or set ATOLL_URL and ATOLL_API_KEY): %w", err)
	}
	return server{url: "http://127.0.0.1:" + port, key: key}, nil
}

func readLine(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}
