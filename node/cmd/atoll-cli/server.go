package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// server is where the sandboxes are.
type server struct {
	url, key string
	// patience is for how long a call that is safe to repeat is tried again while the server is away. 0: not at all, so that a server that does
	// not run is told at once; commands set it when they have something to lose.
	patience time.Duration
	// progress is the terminal on which long transfers tell how far they are, or nil.
	progress io.Writer
}

// patient is for how long a program's output is waited for while the server is away.
const patient = 2 * time.Minute

// unreachable is a call without an answer.
type unreachable struct {
	url   string
	cause error
}

func (u unreachable) Error() string {
	where := "at " + u.url
	if !strings.Contains(u.url, "://") {
		where = "of " + u.url
	}
	return fmt.Sprintf("the server %s cannot be reached: %v (remedy: ./atoll up, or set ATOLL_URL and ATOLL_API_KEY)", where, u.cause)
}

func (u unreachable) Unwrap() error { return u.cause }

// apiError is the API's error form.
type apiError struct {
	Code        string `json:"code"`
	Message     string `json:"message"`
	Cause       string `json:"cause"`
	Remediation string `json:"remediation"`
	status      int
}

func (e apiError) Error() string {
	text := e.Message
	if text == "" {
		text = e.Code
	}
	if e.Cause != "" {
		text += ": " + e.Cause
	}
	if e.Remediation != "" {
		text += " (remedy: " + e.Remediation + ")"
	}
	return text
}

// transient says whether the same call may succeed in a moment.
func transient(err error) bool {
	var refused apiError
	if errors.As(err, &refused) {
		return refused.status == 0 || refused.status == 429 || refused.status >= 502 && refused.status <= 504
	}
	var away unreachable
	return errors.As(err, &away) || errors.Is(err, errBrokenOff)
}

// errBrokenOff is an answer that ended before its end.
var errBrokenOff = errors.New("the connection broke off")

// apiCall describes a request; its body can be sent again.
type apiCall struct {
	method, path string
	query        url.Values
	body         any
	header       http.Header
}

func (s *server) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	address := s.url + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	return r, nil
}

// send returns an answer that is no error; the caller closes its body.
func (s *server) send(r *http.Request) (*http.Response, error) {
	s.watched(r)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		if cause := r.Context().Err(); cause != nil {
			return nil, cause
		}
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, unreachable{s.url, err}
	}
	if reply.StatusCode >= 300 {
		defer reply.Body.Close()
		return nil, readError(reply)
	}
	s.watchedReply(reply)
	return reply, nil
}

func readError(reply *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(reply.Body, 1<<20))
	if err != nil {
		return apiError{Message: fmt.Sprintf("HTTP %d: %v", reply.StatusCode, err), status: reply.StatusCode}
	}
	var form struct{ Error apiError }
	if json.Unmarshal(text, &form) != nil || form.Error == (apiError{}) {
		form.Error = apiError{Message: fmt.Sprintf("HTTP %d: %s", reply.StatusCode, strings.TrimSpace(string(text)))}
	}
	form.Error.status = reply.StatusCode
	return form.Error
}

// open sends the call and returns its answer, trying again as long as the server's patience goes.
func (s *server) open(ctx context.Context, c apiCall) (*http.Response, error) {
	var text []byte
	if c.body != nil {
		var err error
		if text, err = json.Marshal(c.body); err != nil {
			return nil, err
		}
	}
	var reply *http.Response
	err := s.again(ctx, func() error {
		var body io.Reader
		if text != nil {
			body = bytes.NewReader(text)
		}
		r, err := s.request(ctx, c.method, c.path, c.query, body)
		if err != nil {
			return err
		}
		for name, values := range c.header {
			r.Header[name] = values
		}
		if text != nil {
			r.Header.Set("Content-Type", "application/json")
		}
		reply, err = s.send(r)
		return err
	})
	return reply, err
}

// do sends the call and reads its answer into `into`, where that is not nil.
func (s *server) do(ctx context.Context, c apiCall, into any) error {
	reply, err := s.open(ctx, c)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return unreachable{s.url, err}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s %s: the answer is not what was expected: %w", c.method, c.path, err)
	}
	return nil
}

// again repeats what fails for want of a server until the patience is used up. What got somewhere starts it afresh by returning progress.
func (s *server) again(ctx context.Context, try func() error) error {
	return s.follow(ctx, func() (bool, error) { return false, try() })
}

// follow is again for a stream: a try that brought something on gives the next ones all the time again.
func (s *server) follow(ctx context.Context, try func() (progress bool, err error)) error {
	end, pause := time.Now().Add(s.patience), 50*time.Millisecond
	for {
		progress, err := try()
		if err == nil || ctx.Err() != nil || !transient(err) {
			return err
		}
		if progress {
			end, pause = time.Now().Add(s.patience), 50*time.Millisecond
		}
		if !time.Now().Before(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
}

// once gives a call a key by which the server knows its repetition.
func once() http.Header { return http.Header{"Idempotency-Key": {rand.Text()}} }

// cursorParameter names the next page of most lists.
const cursorParameter = "cursor"

// page is an answer of lists.
type page[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
}

// list calls each with every item of every page; cursor is the parameter that names the next one.
func list[T any](ctx context.Context, s *server, path string, query url.Values, cursor string, each func(T) error) error {
	if query == nil {
		query = url.Values{}
	}
	for {
		var p page[T]
		if err := s.do(ctx, apiCall{method: http.MethodGet, path: path, query: query}, &p); err != nil {
			return err
		}
		for _, item := range p.Items {
			if err := each(item); err != nil {
				return err
			}
		}
		if p.Next == nil || *p.Next == "" {
			return nil
		}
		query.Set(cursor, *p.Next)
	}
}
