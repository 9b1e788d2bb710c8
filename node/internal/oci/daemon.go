package oci

import (
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

// DefaultDaemon is where a Docker daemon listens.
const DefaultDaemon = "/run/docker.sock"

// FromDaemon takes an image that a Docker daemon has, over its socket.
func (c *Cache) FromDaemon(ctx context.Context, socket, reference string, progress Progress) (*Pulled, error) {
	if reference == "" || len(reference) > 1000 || strings.ContainsAny(reference, "?#%\x00 ") {
		return nil, fmt.Errorf("%w: reference %.200q (expected: as `docker images` shows it)", ErrInvalid, reference)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	get := func(what string) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/images/"+(&url.URL{Path: reference}).EscapedPath()+what, nil)
		if err != nil {
			return nil, fmt.Errorf("%w: reference %.200q: %w", ErrInvalid, reference, err)
		}
		response, err := client.Do(request)
		if err != nil {
			return nil, fmt.Errorf("the Docker daemon at %s %w: %w (remedy: start it, or pull from a registry)", socket, ErrUnavailable, err)
		}
		if response.StatusCode == http.StatusOK {
			return response, nil
		}
		defer response.Body.Close()
		var answer struct{ Message string }
		text, _ := readAll(response.Body, 64<<10)
		_ = json.Unmarshal(text, &answer)
		kind := ErrUnavailable
		switch response.StatusCode {
		case http.StatusNotFound:
			kind = ErrNotFound
		case http.StatusBadRequest:
			kind = ErrInvalid
		}
		return nil, fmt.Errorf("%w: the Docker daemon says of %.200q: %s %.500s", kind, reference, response.Status, answer.Message)
	}
	response, err := get("/json")
	if err != nil {
		return nil, err
	}
	text, err := readAll(response.Body, maxConfig)
	response.Body.Close()
	var found struct{ ID string }
	if err != nil || json.Unmarshal(text, &found) != nil {
		return nil, errors.Join(fmt.Errorf("%w: what the Docker daemon says of %.200q is no JSON", ErrUnavailable, reference), err)
	}
	if response, err = get("/get"); err != nil {
		return nil, err
	}
	defer response.Body.Close()
	p, err := c.Import(ctx, &cut{response.Body}, progress)
	if err != nil {
		return nil, err
	}
	p.Reference = reference
	if _, err := sha256Of(found.ID); err == nil {
		p.Reference += "@" + found.ID
	}
	return p, nil
}

// cut tells a connection that broke from an archive that is damaged.
type cut struct{ r io.Reader }

func (c *cut) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return n, err
}
