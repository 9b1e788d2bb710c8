package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// apiVersion is the Engine API that is spoken: Docker 20.10 has it, and every one since.
const apiVersion = "v1.41"

// client speaks Docker's Engine API (https://docs.docker.com/reference/api/engine/) over its socket: the nine calls that a driver needs.
type client struct {
	http   *http.Client
	socket string
}

func newClient(socket string) *client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	return &client{http: &http.Client{Transport: transport}, socket: socket}
}

// statusError is a refusal of Docker's.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string { return fmt.Sprintf("docker: %s (%d)", e.message, e.status) }

func isStatus(err error, status int) bool {
	var refused *statusError
	return errors.As(err, &refused) && refused.status == status
}

// call sends in as JSON, or as it is if it is a reader, and reads the answer into out; nil: neither.
func (c *client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	contentType := "application/json"
	switch in := in.(type) {
	case nil:
	case io.Reader:
		body, contentType = in, "application/x-tar"
	default:
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	address := "http://docker/" + apiVersion + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("docker at %s: %w", c.socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		var said struct{ Message string }
		if json.Unmarshal(text, &said) != nil || said.Message == "" {
			said.Message = strings.TrimSpace(string(text))
		}
		return &statusError{status: response.StatusCode, message: said.Message}
	}
	switch out := out.(type) {
	case nil:
		_, err = io.Copy(io.Discard, response.Body)
	case *progress:
		err = out.read(response.Body)
	default:
		err = json.NewDecoder(response.Body).Decode(out)
	}
	if err != nil {
		return fmt.Errorf("docker: %s %s: %w", method, path, err)
	}
	return nil
}

// progress reads an answer that tells step by step how it goes, and of errors only there.
type progress struct{}

func (progress) read(body io.Reader) error {
	decoder := json.NewDecoder(body)
	for {
		var step struct{ Error string }
		err := decoder.Decode(&step)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && step.Error != "" {
			err = errors.New(step.Error)
		}
		if err != nil {
			return err
		}
	}
}

// labelled is a filter for what carries a label.
func labelled(label string) url.Values {
	text, _ := json.Marshal(map[string][]string{"label": {label}})
	return url.Values{"filters": {string(text)}}
}
